"""The manifest of a CronJob as a job. Fields that a job has no counterpart for are named, each by its path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.core.model import Job, JobPolicy, Overlap, RunOptions
from mainspring.core.tasks.containers import ContainerSpec, Resources, SecretKey
from mainspring.errors import InvalidInput
from mainspring.ops.kubernetes.cron_dialect import read_schedule
from mainspring.ops.kubernetes.shapes import (
    CronJob,
    Manifest,
    Metadata,
    Quantities,
    Variable,
    Work,
    unread,
    without_nulls,
)
from mainspring.ops.kubernetes.writing import NAME_ANNOTATION, kubernetes_retry

SUSPENDED = "suspended in the manifest"
CRONJOB = "CronJob"
_OVERLAPS: dict[str, Overlap] = {"Allow": "allow", "Forbid": "forbid", "Replace": "replace"}
_LISTS = ("List", "CronJobList")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_WORK = "spec.jobTemplate.spec"
_POD = f"{_WORK}.template.spec"


class Imported(msgspec.Struct, frozen=True):
    """A job without id and owner, and what it does not say of the manifest."""

    job: Job
    lost: list[str]


def read_manifests(path: Path) -> list[Manifest]:
    """The objects of a file, at least one of them a CronJob: JSON, or YAML where PyYAML is installed; single documents,
    several, or a List."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise InvalidInput("file", str(path), "is not text", "give a manifest in YAML or JSON") from None
    try:
        documents = [msgspec.json.decode(text)]
    except msgspec.DecodeError:
        documents = _read_yaml(path, text)
    found = [each for document in documents for each in _objects(document)]
    if not any(each.get("kind") == CRONJOB for each in found):
        raise InvalidInput("file", str(path), "has no CronJob", "give the manifest of one")
    return found


def _objects(document: object) -> Iterator[Manifest]:
    if isinstance(document, dict):
        if document.get("kind") in _LISTS:
            yield from (each for each in document.get("items") or () if isinstance(each, dict))
        else:
            yield document


def _read_yaml(path: Path, text: str) -> list[Any]:
    try:
        import yaml  # an optional dependency
    except ImportError:
        problem = "is not JSON, and YAML needs PyYAML"
        raise InvalidInput("file", str(path), problem, "install mainspring[kubernetes]") from None
    try:
        return list(yaml.safe_load_all(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        problem = f"is neither JSON nor YAML: {where}{error.problem}"
        raise InvalidInput("file", str(path), problem, "correct it") from None
    except yaml.YAMLError as error:
        raise InvalidInput("file", str(path), f"is neither JSON nor YAML: {error}", "correct it") from None


def read_cronjob(manifest: Manifest, namespace: str, now: Instant) -> Imported:
    """The job of a CronJob; InvalidInput if a job cannot run what it describes."""
    given = without_nulls(manifest)
    try:
        cronjob = msgspec.convert(given, CronJob)
    except msgspec.ValidationError as error:
        metadata = given.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise InvalidInput("manifest", name, f"is not a CronJob: {error}", "check it with kubectl") from None
    lost: list[str] = []
    job = _read_job(cronjob, namespace, now, lost)
    rest = [*_other_annotations(cronjob.metadata), *unread(given)]
    return Imported(job, lost + [f"{path}: a job has nothing like it" for path in rest])


def _other_annotations(metadata: Metadata) -> Iterator[str]:
    for name in metadata.annotations:
        if name not in (NAME_ANNOTATION, _APPLIED):
            yield f"metadata.annotations.{name}"


def _read_job(cronjob: CronJob, namespace: str, now: Instant, lost: list[str]) -> Job:
    metadata, spec = cronjob.metadata, cronjob.spec
    work = spec.job_template.spec
    completions, parallelism = _read_counts(work, lost)
    retries = _read_retries(work, completions, lost)
    return Job(
        id="",
        name=metadata.annotations.get(NAME_ANNOTATION, metadata.name),
        task="container",
        trigger=read_schedule(spec.schedule, spec.time_zone),
        namespace=namespace,
        args=msgspec.json.encode(_read_container(work, metadata.namespace, lost)).decode(),
        policy=JobPolicy(
            overlap=_OVERLAPS[spec.concurrency_policy],
            start_deadline=_seconds(spec.starting_deadline_seconds),
            keep_succeeded=spec.successful_jobs_history_limit,
            keep_failed=spec.failed_jobs_history_limit,
            completions=completions,
            parallelism=parallelism,
        ),
        options=RunOptions(
            timeout=_read_timeout(work),
            total_timeout=_seconds(work.active_deadline_seconds),
            retry=kubernetes_retry(retries),
            tags=tuple(f"{label}={value}" for label, value in metadata.labels.items()),
        ),
        paused_at=now if spec.suspend else None,
        paused_why=SUSPENDED if spec.suspend else "",
        created_at=now,
        updated_at=now,
    )


def _read_counts(work: Work, lost: list[str]) -> tuple[int, int | None]:
    """Completions, and how many of them at once; None: all."""
    if work.parallelism < 1:
        problem = "lets no pod start"
        raise InvalidInput(f"{_WORK}.parallelism", work.parallelism, problem, "use spec.suspend to pause it")
    completions = work.completions or work.parallelism
    if work.completions is None and completions > 1:
        lost.append(f"{_WORK}.completions: pods that share a queue become one run for each")
    if work.completion_mode == "Indexed" and completions == 1:
        lost.append(f"{_WORK}.completionMode: a job has nothing like it")
    return completions, work.parallelism if work.parallelism < completions else None


def _read_retries(work: Work, completions: int, lost: list[str]) -> int:
    if work.backoff_limit_per_index is not None:
        return work.backoff_limit_per_index
    if completions > 1:
        lost.append(f"{_WORK}.backoffLimit: it counts all pods together there, and each run by itself here")
    return 6 if work.backoff_limit is None else work.backoff_limit


def _read_timeout(work: Work) -> Duration | None:
    """The deadline of a pod. One that is longer than that of its Job never comes."""
    whole, each = work.active_deadline_seconds, work.template.spec.active_deadline_seconds
    return _seconds(each if each is None or whole is None else min(each, whole))


def _seconds(given: int | None) -> Duration | None:
    return None if given is None else given * SECOND


def _read_container(work: Work, place: str | None, lost: list[str]) -> ContainerSpec:
    pod = work.template.spec
    if pod.init_containers:
        first = pod.init_containers[0].name
        problem = "runs before the container of the pod, and a run has one container"
        raise InvalidInput(f"{_POD}.initContainers", first, problem, "make it one container")
    if len(pod.containers) != 1:
        names = ", ".join(each.name for each in pod.containers)
        raise InvalidInput(f"{_POD}.containers", names, "are not one container, as a run has", "make it one container")
    if pod.restart_policy == "OnFailure":
        lost.append(f"{_POD}.restartPolicy: each attempt is its own container here")
    [container] = pod.containers
    try:
        return ContainerSpec(
            image=container.image,
            command=container.command,
            args=container.args,
            env=dict(_read_variables(container.env)),
            cwd=container.working_dir,
            resources=_read_resources(container.resources),
            pull=container.image_pull_policy,
            service_account=pod.service_account_name or pod.service_account,
            node_selector=pod.node_selector,
            namespace=place,
            ttl_after_finished=work.ttl_seconds_after_finished,
        )
    except ValueError as error:
        raise InvalidInput(f"{_POD}.containers[0]", container.name, f"cannot run: {error}", "correct it") from None


def _read_variables(variables: list[Variable]) -> Iterator[tuple[str, str | SecretKey]]:
    """Without those from elsewhere than a Secret, which `unread` names."""
    for each in variables:
        if each.value_from is None:
            yield each.name, each.value
        elif each.value_from.secret_key_ref is not None:
            yield each.name, SecretKey(each.value_from.secret_key_ref.name, each.value_from.secret_key_ref.key)


def _read_resources(given: Quantities) -> Resources:
    requests, limits = ({name: str(each) for name, each in part.items()} for part in (given.requests, given.limits))
    return Resources(requests, limits)
