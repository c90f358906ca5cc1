"""The arguments of the task `container`: one container of a pod, in the words of the manifest that it becomes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


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
