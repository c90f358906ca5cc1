"""The Helm chart: it renders the same objects as kustomize, and objects that Kubernetes knows, for every choice."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from manifests import CHART, ROOT, VERSION, Manifest, check_schema, helm, kustomize, read

from mainspring.settings import unknown_variables
from mainspring.version import VERSION as PROGRAM_VERSION
from servers.kubernetes import find_helm

pytestmark = pytest.mark.kubernetes
OF_HELM = {
    "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart",
    "imagePullPolicy",
}  # fmt: skip
"""What only one of the two writes: labels, and the default that Kubernetes has for images with a tag."""


@pytest.fixture(scope="module")
def program() -> Path:
    found = find_helm()
    if found is None:
        pytest.fail("there is no helm: `make kubernetes` builds one in a minute or two")
    return found


def plain(value: Any) -> Any:
    """Without what only one of the two writes, and without the hashes that kustomize appends to names."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in OF_HELM}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return re.sub(r"^mainspring-[a-z0-9]{10}$", "mainspring", value) if isinstance(value, str) else value


def compared(objects: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """By kind and name. A Secret has its values under `data` or `stringData`: its keys are compared."""
    found = {}
    for each in objects:
        if each["kind"] == "Namespace":
            continue
        made = plain(each)
        made["metadata"].pop("namespace", None)
        if not made["metadata"].get("labels", True):
            del made["metadata"]["labels"]
        if each["kind"] == "Secret":
            made = {"keys": sorted(made.get("data") or made["stringData"])}
        found[each["kind"], plain(each["metadata"]["name"])] = made
    return found


@pytest.mark.parametrize(
    ("folder", "namespace", "options"),
    [
        ("base", "default", ["--set", "secret.name=mainspring"]),
        ("overlays/dev", "mainspring-dev", ["-f", str(CHART / "values-dev.yaml")]),
        ("overlays/production", "mainspring", ["-f", str(CHART / "values-production.yaml")]),
    ],
)
def test_it_renders_what_kustomize_renders(program: Path, folder: str, namespace: str, options: list[str]) -> None:
    wanted, found = compared(kustomize(folder)), compared(helm(program, namespace, *options))
    assert found.keys() == wanted.keys()
    if folder == "base":  # An overlay has to set the tag, the chart has one.
        for each in ("server", "worker"):
            [container] = wanted["Deployment", f"mainspring-{each}"]["spec"]["template"]["spec"]["containers"]
            container["image"] += f":{PROGRAM_VERSION}"
    for name, manifest in wanted.items():
        assert found[name] == manifest, name


CHOICES = {
    "defaults": [],
    "keda": ["--set", "autoscaling.kind=keda"],
    "no autoscaler": ["--set", "autoscaling.kind=none", "--set", "worker.replicas=7"],
    "another region": ["--set", "server.replicas=0", "--set", "worker.region=eu", "--set", "monitoring.enabled=true"],
    "regions by keda": ["--set", "autoscaling.kind=keda", "--set", r"worker.region=eu\,asia"],
    "a broker": ["--set", "secret.broker=amqp://rabbit", "--set", "networkPolicy.ports={5672}"],
    "containers": ["--set", "containers.enabled=true", "--set", "app=billing.work"],
    "settings": ["--set-string", "settings.MAINSPRING_SHARDS=4", "--set", "networkPolicy.enabled=false"],
}


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_passes_lint_and_schema(program: Path, choice: str) -> None:
    options = ["--set", "secret.store=postgresql://db/jobs", "--set", "secret.key=wheel", *CHOICES[choice]]
    lint = [str(program), "lint", "--strict", str(CHART), "--kube-version", VERSION, *options]
    done = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    objects = helm(program, "jobs", *options)
    for each in objects:
        check_schema(each)
        assert each["metadata"]["namespace"] == "jobs"
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    [config] = [each for each in objects if each["kind"] == "ConfigMap"]
    assert list(unknown_variables(config["data"])) == []
    worker = by_kind["Deployment", "mainspring-worker"]["spec"]
    [container] = worker["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert list(unknown_variables(variables)) == []
    check_choice(choice, by_kind, worker, variables)


def check_choice(
    choice: str, by_kind: dict[tuple[str, str], Manifest], worker: Manifest, variables: dict[str, str]
) -> None:
    """What the choice is for."""
    is_hpa = choice not in ("keda", "regions by keda", "no autoscaler")
    assert (("HorizontalPodAutoscaler", "mainspring-worker") in by_kind) == is_hpa
    assert worker.get("replicas") == (7 if choice == "no autoscaler" else None)
    if choice == "keda":
        written = read(ROOT / "metrics" / "keda" / "scaledobject.yaml")[0]["spec"]
        query = written["triggers"][2]["metadata"]
        query["query"] = query["query"].replace('"mainspring"', '"jobs"')
        assert by_kind["ScaledObject", "mainspring-worker"]["spec"] == written
    if choice == "regions by keda":
        query = by_kind["ScaledObject", "mainspring-worker"]["spec"]["triggers"][2]["metadata"]
        assert '{namespace="jobs",region=~"eu|asia"}' in query["query"]
    if choice == "another region":
        assert variables["MAINSPRING_REGIONS"] == "eu"
        followed = by_kind["HorizontalPodAutoscaler", "mainspring-worker"]["spec"]["metrics"][2]["external"]["metric"]
        assert followed["selector"] == {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
        assert not [name for _, name in by_kind if name == "mainspring-server"]
    if choice == "a broker":
        assert by_kind["Secret", "mainspring"]["stringData"]["MAINSPRING_BROKER"] == "amqp://rabbit"
        assert {"port": 5672} in by_kind["NetworkPolicy", "mainspring-worker"]["spec"]["egress"][1]["ports"]
    if choice == "containers":
        assert worker["template"]["spec"]["containers"][0]["args"][:2] == ["worker", "billing.work"]
    if choice == "settings":
        assert by_kind["ConfigMap", "mainspring"]["data"]["MAINSPRING_SHARDS"] == "4"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "set secret.name to a Secret that exists"),
        (["--set", "worker.replica=3", "--set", "secret.name=x"], "additional properties 'replica' not allowed"),
        (["--set", "autoscaling.kind=vpa", "--set", "secret.name=x"], "must be one of 'hpa', 'keda', 'none'"),
    ],
)
def test_wrong_values_are_refused_with_the_reason(program: Path, options: list[str], reason: str) -> None:
    argv = [str(program), "template", "mainspring", str(CHART), "--kube-version", VERSION, *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert reason in done.stderr
