"""The manifest of a CronJob as a job. Fields that a job has no counterpart for are named, each by its path."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mainspring.core.instants import SECOND, Instant
from mainspring.core.model import Job, JobPolicy, Overlap, RunOptions
from mainspring.core.tasks.containers import ContainerSpec, Resources, SecretKey
from mainspring.errors import InvalidInput
from mainspring.ops.kubernetes.cron_dialect import read_schedule
from mainspring.ops.kubernetes.writing import NAME_ANNOTATION, Manifest, kubernetes_retry

SUSPENDED = "suspended in the manifest"
_OVERLAPS: dict[str, Overlap] = {"Allow": "allow", "Forbid": "forbid", "Replace": "replace"}
_SERVERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_USUAL: dict[str, object] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "resources": {},
    "creationTimestamp": None,
    "completionMode": "NonIndexed",
    "manualSelector": False,
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
"""What the API server adds to every manifest: nothing is lost with it."""


class Imported(msgspec.Struct, frozen=True):
    """A job without id and owner, and what it does not say of the manifest."""

    job: Job
    lost: list[str]


def read_manifests(path: Path) -> list[Manifest]:
    """The CronJobs of a file: JSON, or YAML where PyYAML is installed; single documents, several, or a List."""
    text = path.read_text()
    try:
        documents = [msgspec.json.decode(text)]
    except msgspec.DecodeError:
        documents = _read_yaml(path, text)
    found: list[Manifest] = []
    for document in documents:
        items = document.get("items", []) if _kind(document) in ("List", "CronJobList") else [document]
        found += [each for each in items if _kind(each) == "CronJob"]
    if not found:
        raise InvalidInput("file", str(path), "has no CronJob", "give the manifest of one")
    return found


def _kind(document: object) -> object:
    return document.get("kind") if isinstance(document, dict) else None


def _read_yaml(path: Path, text: str) -> list[Any]:
    try:
        import yaml  # an optional dependency
    except ImportError:
        problem = "is not JSON, and YAML needs PyYAML"
        raise InvalidInput("file", str(path), problem, "install mainspring[kubernetes]") from None
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise InvalidInput("file", str(path), f"is neither JSON nor YAML: {error}", "correct it") from None


def read_cronjob(manifest: Manifest, namespace: str, now: Instant) -> Imported:
    """The job of a CronJob; InvalidInput if a job cannot run what it describes."""
    rest = copy.deepcopy(manifest)
    lost: list[str] = []
    try:
        job = _read_job(rest, namespace, now, lost)
    except (KeyError, TypeError, AttributeError, ValueError, msgspec.ValidationError) as error:
        if isinstance(error, InvalidInput):
            raise
        name = str(manifest.get("metadata", {}))[:100]
        raise InvalidInput("manifest", name, f"is not a CronJob: {error!r}", "check it with kubectl") from None
    return Imported(job, lost + [f"{path}: a job has nothing like it" for path in _leftovers(rest)])


def _read_job(rest: Manifest, namespace: str, now: Instant, lost: list[str]) -> Job:
    for name in ("apiVersion", "kind", "status"):
        rest.pop(name, None)
    metadata, spec = rest["metadata"], rest["spec"]
    work = spec["jobTemplate"]["spec"]
    pod = work["template"]["spec"]
    name, place, tags = _read_metadata(metadata)
    trigger = read_schedule(spec.pop("schedule"), spec.pop("timeZone", None))
    deadline = spec.pop("startingDeadlineSeconds", None)
    completions, parallelism = _read_counts(work, lost)
    retries = _read_retries(work, completions, lost)
    options = RunOptions(
        timeout=_read_timeout(work, pod, retries, completions, lost), retry=kubernetes_retry(retries), tags=tags
    )
    policy = JobPolicy(
        overlap=_OVERLAPS[spec.pop("concurrencyPolicy", "Allow")],
        start_deadline=None if deadline is None else deadline * SECOND,
        keep_succeeded=spec.pop("successfulJobsHistoryLimit", 3),
        keep_failed=spec.pop("failedJobsHistoryLimit", 1),
        completions=completions,
        parallelism=parallelism,
    )
    suspended = spec.pop("suspend", False)
    container = _read_container(work, pod, place, lost)
    return Job(
        id="",
        name=name,
        task="container",
        trigger=trigger,
        namespace=namespace,
        args=msgspec.json.encode(container).decode(),
        policy=policy,
        options=options,
        paused_at=now if suspended else None,
        paused_why=SUSPENDED if suspended else "",
        created_at=now,
        updated_at=now,
    )


def _read_metadata(metadata: Manifest) -> tuple[str, str | None, tuple[str, ...]]:
    for name in _SERVERS_OWN:
        metadata.pop(name, None)
    annotations = metadata.get("annotations", {})
    annotations.pop(_APPLIED, None)
    name = metadata.pop("name")
    tags = tuple(f"{label}={value}" for label, value in metadata.pop("labels", {}).items())
    return annotations.pop(NAME_ANNOTATION, name), metadata.pop("namespace", None), tags


def _read_counts(work: Manifest, lost: list[str]) -> tuple[int, int | None]:
    """Completions, and how many of them at once; None: all."""
    completions, parallelism = work.pop("completions", None), work.pop("parallelism", 1)
    if completions is None:
        completions = max(parallelism, 1)
        if completions > 1:
            lost.append("spec.jobTemplate.spec.completions: pods that share a queue become one run for each")
    if completions > 1 and work.get("completionMode") == "Indexed":
        del work["completionMode"]
    if parallelism < 1:
        problem = "lets no pod start"
        raise InvalidInput("spec.jobTemplate.spec.parallelism", parallelism, problem, "use spec.suspend to pause it")
    return completions, parallelism if parallelism < completions else None


def _read_retries(work: Manifest, completions: int, lost: list[str]) -> int:
    by_index, in_all = work.pop("backoffLimitPerIndex", None), work.pop("backoffLimit", None)
    if by_index is not None:
        return int(by_index)
    if completions > 1:
        lost.append(
            "spec.jobTemplate.spec.backoffLimit: it counts all pods together there, and each run by itself here"
        )
    return 6 if in_all is None else int(in_all)


def _read_timeout(work: Manifest, pod: Manifest, retries: int, completions: int, lost: list[str]) -> int | None:
    whole, each = work.pop("activeDeadlineSeconds", None), pod.pop("activeDeadlineSeconds", None)
    if whole is not None and (retries or completions > 1 or each is not None):
        lost.append(
            "spec.jobTemplate.spec.activeDeadlineSeconds: it covers all attempts there; a timeout covers one attempt"
        )
    given = whole if each is None else each
    return None if given is None else int(given) * SECOND


def _read_container(work: Manifest, pod: Manifest, place: str | None, lost: list[str]) -> ContainerSpec:
    containers = pod.pop("containers")
    if len(containers) != 1 or pod.get("initContainers"):
        problem = "has several containers, and a run has one"
        raise InvalidInput("spec.jobTemplate.spec.template.spec", len(containers), problem, "make it one container")
    [container] = containers
    container.pop("name", None)
    if pod.pop("restartPolicy", "Never") == "OnFailure":
        lost.append("spec.jobTemplate.spec.template.spec.restartPolicy: each attempt is its own container here")
    if pod.get("serviceAccount") == pod.get("serviceAccountName"):
        pod.pop("serviceAccount", None)
    read = ContainerSpec(
        image=container.pop("image"),
        command=container.pop("command", []),
        args=container.pop("args", []),
        env=dict(_read_variable(each) for each in container.pop("env", [])),
        cwd=container.pop("workingDir", None),
        resources=msgspec.convert(container.pop("resources", {}), Resources),
        pull=container.pop("imagePullPolicy", None),
        service_account=pod.pop("serviceAccountName", None),
        node_selector=pod.pop("nodeSelector", {}),
        namespace=place,
        ttl_after_finished=work.pop("ttlSecondsAfterFinished", None),
    )
    pod["containers"] = [container]
    return msgspec.convert(msgspec.to_builtins(read), ContainerSpec)


def _read_variable(variable: Manifest) -> tuple[str, str | SecretKey]:
    source = variable.get("valueFrom")
    if source is None:
        return variable["name"], variable.get("value", "")
    if set(source) != {"secretKeyRef"} or set(source["secretKeyRef"]) != {"name", "key"}:
        problem = "comes from something other than a key of a Secret"
        raise InvalidInput("env", variable["name"], problem, "give its value, or a secretKeyRef with name and key")
    return variable["name"], SecretKey(source["secretKeyRef"]["name"], source["secretKeyRef"]["key"])


def _leftovers(value: Any, path: str = "") -> Iterator[str]:
    """The paths of what was not read, but for what the API server adds."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not (name in _USUAL and each == _USUAL[name]):
                yield from _leftovers(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _leftovers(each, f"{path}[{index}]")
    else:
        yield path
