"""A job as the manifest of a CronJob. Every field that has a counterpart is written; what has none is named."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

from mainspring.core.instants import SECOND, Duration, format_duration
from mainspring.core.model import DEFAULT, Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.tasks.commands import split_command
from mainspring.core.tasks.containers import ContainerSpec, write_container, write_placement
from mainspring.core.tasks.specs import CommandSpec, is_secret
from mainspring.errors import InvalidInput
from mainspring.ops.kubernetes.cron_dialect import write_schedule
from mainspring.ops.kubernetes.shapes import Manifest

NAME_ANNOTATION = "mainspring/name"
"""The name of a job that no CronJob can have."""
LONGEST_NAME = 52
"""Kubernetes adds eleven characters to the name of a CronJob for its Jobs, and allows 63."""
_DNS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
OVERLAPS = {"allow": "Allow", "forbid": "Forbid", "replace": "Replace", "queue": "Forbid"}
NO_COUNTERPART = {
    "grace": "a late start is always made up for",
    "catch_up_window": "one missed instant is made up for",
    "catch_up_limit": "one missed instant is made up for",
    "jitter": "",
    "start_at": "",
    "end_at": "",
    "max_firings": "",
    "calendars": "",
    "on_excluded": "",
    "regions": "",
    "dependencies": "",
    "on_dependency_failure": "",
    "soft_timeout": "",
    "max_losses": "",
    "on_key_failure": "",
    "isolation": "",
    "alert": "",
    "under_pressure": "",
    "per": "",
    "region_failover": "",
    "failover_regions": "",
}
"""Options without a counterpart, and what Kubernetes does instead."""


class Exported(msgspec.Struct, frozen=True):
    """A manifest, and what of the job it does not say."""

    manifest: Manifest
    lost: list[str]


def write_cronjob(job: Job, image: str | None = None) -> Exported:
    """The CronJob of a job whose task is `container`, or `command`, which then runs in `image`. InvalidInput if no
    CronJob can have its task or trigger."""
    schedule, zone, lost = write_schedule(job.trigger)
    container, pod, namespace, ttl = _write_work(job, image)
    policy, options = job.policy, job.options
    work: Manifest = {**_write_attempts(job, pod, lost)}
    if ttl is not None:
        work["ttlSecondsAfterFinished"] = ttl
    work["template"] = {"spec": {**pod, "restartPolicy": "Never", "containers": [container]}}
    spec: Manifest = {"schedule": schedule}
    if zone is not None:
        spec["timeZone"] = zone
    spec |= {"concurrencyPolicy": OVERLAPS[policy.overlap], "suspend": job.paused_at is not None}
    if policy.overlap == "queue":
        lost.append("overlap: queue becomes Forbid, which skips an instant that comes while a run goes on")
    if policy.start_deadline is not None:
        spec["startingDeadlineSeconds"] = _seconds("start_deadline", policy.start_deadline, lost)
    _write_history(policy, spec, lost)
    spec["jobTemplate"] = {"spec": work}
    metadata = _write_metadata(job, namespace, lost)
    lost += _without_counterpart(job, policy, options)
    return Exported({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}, lost)


def _write_attempts(job: Job, pod: Manifest, lost: list[str]) -> Manifest:
    """How many pods there are, how often they are tried, and how long each may take."""
    policy, options = job.policy, job.options
    completions = policy.completions
    work: Manifest = {"parallelism": min(policy.parallelism or completions, completions), "completions": completions}
    if completions > 1:  # Retries are counted by run here, so by index there.
        work |= {"completionMode": "Indexed", "backoffLimitPerIndex": options.retry.retries}
    else:
        work["backoffLimit"] = options.retry.retries
    if options.retry.retries and options.retry != kubernetes_retry(options.retry.retries):
        lost.append("retry: Kubernetes waits 10 s, doubling to 6 min, whatever the error")
    # A Job's deadline covers all its attempts, a pod's only its own.
    if options.total_timeout is not None:
        work["activeDeadlineSeconds"] = _seconds("total_timeout", options.total_timeout, lost)
    if options.timeout is not None:
        pod["activeDeadlineSeconds"] = _seconds("timeout", options.timeout, lost)
    return work


def kubernetes_retry(retries: int) -> Retry:
    """The waits of Kubernetes between the attempts of a Job."""
    return Retry(retries, delay=10, factor=2.0, cap=360, jitter=0.0)


def _seconds(field: str, duration: Duration, lost: list[str]) -> int:
    if duration % SECOND:
        lost.append(f"{field}: {format_duration(duration)} becomes whole seconds, rounded up")
    return -(-duration // SECOND)


def _write_history(policy: JobPolicy, spec: Manifest, lost: list[str]) -> None:
    for name, field, usual in (
        ("keep_succeeded", "successfulJobsHistoryLimit", 3),
        ("keep_failed", "failedJobsHistoryLimit", 1),
    ):
        kept = getattr(policy, name)
        if kept is not None:
            spec[field] = kept
        else:
            lost.append(f"{name}: without a limit, Kubernetes keeps {usual}")


def _write_metadata(job: Job, namespace: str | None, lost: list[str]) -> Manifest:
    name = _dns_name(job.name)
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    labels = dict(tag.partition("=")[::2] for tag in job.options.tags if "=" in tag and _is_label(tag))
    unlabelled = [tag for tag in job.options.tags if labels.get(tag.partition("=")[0]) != tag.partition("=")[2]]
    unlabelled += [tag for tag in job.options.tags if "=" not in tag and tag not in unlabelled]
    if labels:
        metadata["labels"] = labels
    if unlabelled:
        lost.append(f"tags: {', '.join(unlabelled)} (a label is written NAME=VALUE)")
    if name != job.name:
        metadata["annotations"] = {NAME_ANNOTATION: job.name}
    return metadata


def _is_label(tag: str) -> bool:
    name, _, value = tag.partition("=")
    return bool(_LABEL_NAME.fullmatch(name) and _LABEL_VALUE.fullmatch(value))


def _dns_name(name: str) -> str:
    """A name that a CronJob can have. Two jobs do not get the same one."""
    if len(name) <= LONGEST_NAME and _DNS.fullmatch(name):
        return name
    digest = sha256(name.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: LONGEST_NAME - 9].strip("-")
    return f"{plain}-{digest}" if plain else f"job-{digest}"


def _without_counterpart(job: Job, policy: JobPolicy, options: RunOptions) -> list[str]:
    lost = []
    for values, usual in ((policy, JobPolicy()), (options, RunOptions())):
        for name in values.__struct_fields__:
            if name in NO_COUNTERPART and getattr(values, name) != getattr(usual, name):
                lost.append(f"{name}: {NO_COUNTERPART[name] or 'a CronJob has nothing like it'}")
    if policy.misfire != "once":
        lost.append(f"misfire: {policy.misfire}; Kubernetes makes up for one missed instant")
    for name, usual_value in (("priority", 5), ("queue", DEFAULT), ("key", None), ("limit", None)):
        if getattr(job, name) != usual_value:
            lost.append(f"{name}: a CronJob has nothing like it")
    return lost


def _write_work(job: Job, image: str | None) -> tuple[Manifest, Manifest, str | None, int | None]:
    """The container, what its pod says of it, the Kubernetes namespace, and how long a finished Job is kept."""
    args = msgspec.json.decode(job.args)
    if job.task == "container":
        spec = msgspec.convert(args, ContainerSpec)
    elif job.task == "command":
        spec = _command_in(job, args, image)
    else:
        problem = f"of job {job.name!r} is no container and no command, so no pod can run it"
        raise InvalidInput("task", job.task, problem, "export jobs of the tasks container and command")
    return write_container(spec), write_placement(spec), spec.namespace, spec.ttl_after_finished


def _command_in(job: Job, args: Any, image: str | None) -> ContainerSpec:
    """A command as a container of an image that has its program."""
    if image is None:
        raise InvalidInput("image", None, f"is missing for the command of job {job.name!r}", "give --image IMAGE")
    if any(is_secret(each) for each in args.get("env", {}).values()) or is_secret(args.get("stdin")):
        raise InvalidInput("args", job.name, "refers to secrets of the worker", "make it a container with secret keys")
    spec = msgspec.convert(args, CommandSpec)
    unsaid = [
        field.name
        for field in msgspec.structs.fields(CommandSpec)
        if field.name not in ("argv", "shell", "cwd", "env") and getattr(spec, field.name) != field.default
    ]
    if unsaid:
        problem = f"of job {job.name!r} has {', '.join(unsaid)}, which a container cannot have"
        raise InvalidInput("command", job.task, problem, "take it away, or make it a container")
    if isinstance(spec.argv, list):
        argv = spec.argv
    else:
        argv = ["/bin/sh", "-c", spec.argv] if spec.shell else split_command(spec.argv, "argv")
    return ContainerSpec(image=image, command=argv, env=dict(spec.env), cwd=spec.cwd)
