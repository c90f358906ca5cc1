"""The arguments of the task `container`: one container of a pod, in the words of the manifest that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

MAIN = "main"
"""The name of the container in its pod."""


class SecretKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key of a Kubernetes Secret."""

    secret: str
    key: str


class Resources(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a container asks for, and may take: `{"cpu": "500m", "memory": "1Gi"}`."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ContainerSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A container to run."""

    image: Annotated[str, msgspec.Meta(min_length=1)]
    command: list[str] = []
    """Instead of the image's own entry point."""
    args: list[str] = []
    env: dict[str, str | SecretKey] = {}
    cwd: str | None = None
    resources: Resources = Resources()
    pull: Literal["Always", "IfNotPresent", "Never"] | None = None
    service_account: str | None = None
    node_selector: dict[str, str] = {}
    namespace: str | None = None
    """The Kubernetes namespace."""
    ttl_after_finished: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Seconds after which Kubernetes forgets a finished Job."""

    def __post_init__(self) -> None:
        """Refuse what no container engine could start."""
        if any("=" in name or not name or "\0" in name for name in self.env):
            raise ValueError("a variable of the environment needs a name without =")
        if self.image != self.image.strip() or self.image.startswith("-"):
            raise ValueError(f"{self.image!r} cannot be the name of an image")


Manifest = dict[str, Any]


def write_container(spec: ContainerSpec, added: Mapping[str, str] | None = None) -> Manifest:
    """The container of a pod. `added` are variables of the environment beside those of the spec, which win."""
    container: Manifest = {"name": MAIN, "image": spec.image}
    own = {"command": spec.command, "args": spec.args, "workingDir": spec.cwd, "imagePullPolicy": spec.pull}
    container |= {name: value for name, value in own.items() if value}
    if env := {**(added or {}), **spec.env}:
        container["env"] = [_write_variable(name, value) for name, value in env.items()]
    if resources := msgspec.to_builtins(spec.resources):
        container["resources"] = resources
    return container


def write_placement(spec: ContainerSpec) -> Manifest:
    """The fields of a pod that say as which account and on which nodes it runs."""
    pod = {"serviceAccountName": spec.service_account, "nodeSelector": spec.node_selector}
    return {name: value for name, value in pod.items() if value}


def _write_variable(name: str, value: str | SecretKey) -> Manifest:
    if isinstance(value, str):
        return {"name": name, "value": value}
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
