"""Manifests as they are written, and as kustomize and Helm render them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
ROOT = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "mainspring"
VERSION = "1.36.0"
"""The Kubernetes that manifests are checked against."""
OF_OPERATORS = {"ServiceMonitor", "PodMonitor", "ScaledObject"}
"""Kinds of the Prometheus operator and of KEDA, which Kubernetes has no schema of."""
Manifest = dict[str, Any]


def read(path: Path) -> list[Manifest]:
    """The objects of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


@cache
def kustomize(folder: str) -> list[Manifest]:
    """The objects of `base`, or of an overlay such as `overlays/dev`."""
    return _rendered(["kubectl", "kustomize", str(ROOT / folder)])


def helm(program: Path, namespace: str, *options: str) -> list[Manifest]:
    """The objects of the chart, for a release `mainspring`."""
    argv = [str(program), "template", "mainspring", str(CHART), "--namespace", namespace, "--kube-version", VERSION]
    return _rendered([*argv, *options])


def _rendered(argv: Sequence[str]) -> list[Manifest]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def check_schema(manifest: Manifest) -> None:
    """Fail where an object has a field that Kubernetes does not know, or lacks one that it needs."""
    if manifest["kind"] not in OF_OPERATORS:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
