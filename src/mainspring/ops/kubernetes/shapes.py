"""The fields of a CronJob that a job has a counterpart for, with their types; and the paths of all other fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

Manifest = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
_USUAL: dict[str, object] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "manualSelector": False,
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
"""What the API server adds to every manifest: nothing is lost with it."""


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a manifest. Fields that it does not name are ignored here, and found by `unread`."""


class SecretRef(_Shape, frozen=True):
    """A key of a Secret."""

    name: str
    key: str


class Source(_Shape, frozen=True):
    """Where the value of a variable comes from."""

    secret_key_ref: SecretRef | None = None


class Variable(_Shape, frozen=True):
    """A variable of the environment."""

    name: str
    value: str = ""
    value_from: Source | None = None


class Quantities(_Shape, frozen=True):
    """What a container asks for, and may take. A quantity may be a number."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class Container(_Shape, frozen=True):
    """A container of a pod."""

    image: Name
    name: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    working_dir: str | None = None
    resources: Quantities = Quantities()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None


class Pod(_Shape, frozen=True):
    """What a pod runs, and where."""

    containers: list[Container]
    init_containers: list[Container] = []
    restart_policy: Literal["OnFailure", "Never"] = "Never"
    service_account_name: str | None = None
    service_account: str | None = None
    """The older name of the field above."""
    node_selector: dict[str, str] = {}
    active_deadline_seconds: Positive | None = None


class PodTemplate(_Shape, frozen=True):
    """The pods of a Job."""

    spec: Pod


class Work(_Shape, frozen=True):
    """The Job that a CronJob makes."""

    template: PodTemplate
    completions: Positive | None = None
    parallelism: Count = 1
    completion_mode: Literal["Indexed", "NonIndexed"] = "NonIndexed"
    backoff_limit: Count | None = None
    backoff_limit_per_index: Count | None = None
    active_deadline_seconds: Positive | None = None
    ttl_seconds_after_finished: Count | None = None


class JobTemplate(_Shape, frozen=True):
    """The Jobs of a CronJob."""

    spec: Work


class Spec(_Shape, frozen=True):
    """When a CronJob fires, and what it makes then."""

    schedule: str
    job_template: JobTemplate
    time_zone: str | None = None
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = "Allow"
    starting_deadline_seconds: Count | None = None
    suspend: bool = False
    successful_jobs_history_limit: Count = 3
    failed_jobs_history_limit: Count = 1


class Metadata(_Shape, frozen=True):
    """The name of a CronJob, and what the API server adds to it."""

    name: Name
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: object = None
    managed_fields: object = None
    self_link: str = ""


class CronJob(_Shape, frozen=True):
    """A CronJob, as far as a job can say it."""

    api_version: Literal["batch/v1", "batch/v1beta1"]
    kind: Literal["CronJob"]
    metadata: Metadata
    spec: Spec
    status: object = None


def without_nulls(value: Any) -> Any:
    """The same without fields that are null: Kubernetes reads these as not given."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def unread(value: Any, shape: Any = CronJob, path: str = "") -> Iterator[str]:
    """The paths of the fields that a shape does not name, but for what the API server adds."""
    if isinstance(value, dict) and isinstance(shape, type) and issubclass(shape, _Shape):
        known = dict(zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True))
        types = get_type_hints(shape)
        for name, each in value.items():
            inner = f"{path}.{name}" if path else name
            if name in known:
                yield from unread(each, _inner(types[known[name]]), inner)
            elif not (name in _USUAL and each == _USUAL[name]):
                yield from _leaves(each, inner)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from unread(each, shape, f"{path}[{index}]")


def _inner(kind: Any) -> Any:
    """The shape in a list of shapes, or in a shape that may be missing."""
    return next((each for each in get_args(kind) if isinstance(each, type) and issubclass(each, _Shape)), kind)


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _leaves(each, f"{path}[{index}]")
    else:
        yield path
