"""Every manifest against the schemas of Kubernetes, without a server. `test_cluster` asks a server."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from kubernetes_validate import ValidationError
from manifests import ROOT, Manifest, check_schema, kustomize, read


@pytest.mark.parametrize("folder", ["base", "overlays/dev", "overlays/production"])
def test_kubernetes_knows_every_field(folder: str) -> None:
    objects = kustomize(folder)
    assert len(objects) > 10
    for each in objects:
        check_schema(each)


def test_the_example_of_a_secret_fits() -> None:
    for each in read(ROOT / "base" / "secret.example.yaml"):
        check_schema(each)


def misspell(place: Manifest, name: str) -> None:
    place[name + "x"] = place.pop(name)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("templatex", lambda spec: misspell(spec, "template")),
        ("livenessProbex", lambda spec: misspell(spec["template"]["spec"]["containers"][0], "livenessProbe")),
        ("integer", lambda spec: spec["template"]["spec"].update(terminationGracePeriodSeconds="300")),
    ],
)
def test_a_misspelt_field_or_a_value_of_the_wrong_type_is_found(name: str, spoil: Callable[[Manifest], None]) -> None:
    """So the tests above can fail."""
    [worker] = [
        copy.deepcopy(each)
        for each in kustomize("base")
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "mainspring-worker")
    ]
    check_schema(worker)
    spoil(worker["spec"])
    with pytest.raises(ValidationError, match=name):
        check_schema(worker)
