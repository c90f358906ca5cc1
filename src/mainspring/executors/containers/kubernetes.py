"""Executes containers as Jobs of Kubernetes: one per run, whichever worker accompanies it."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from mainspring.core.model import Failure
from mainspring.core.tasks.containers import ContainerSpec
from mainspring.core.tasks.specs import SECRET
from mainspring.drivers.kubernetes.client import KubernetesLink, KubernetesRefused
from mainspring.drivers.kubernetes.config import find_access
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.containers.jobs import LeftJobs, NotOurs, RunJob, write_job
from mainspring.executors.containers.pods import DEADLINE_EXCEEDED, PodEnd, PodFollower
from mainspring.executors.containers.request import ContainerRefused, complete, judge, read_spec
from mainspring.executors.failures import failed_by
from mainspring.executors.programs.output import Output
from mainspring.settings import Settings

FIELD: Final = "containers"
REQUEST_S: Final = 10.0
END_S: Final = 14.0
"""How long a stopped attempt waits until its pod is gone: its grace of ten seconds, and a little."""
_INVALID: Final = (400, 404, 422)
"""Statuses by which the API server refuses a Job for good: no such namespace, no valid field."""


class KubernetesExecutor:
    """Runs one Job per run. It survives the worker: the next attempt after a loss, or after a worker that stopped,
    adopts it. A run that is cancelled or past its deadline deletes it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        parts = urlsplit(settings.containers or "")
        options = dict(parse_qsl(parts.query))
        access = find_access(options, field=FIELD)
        self._restricted = _read_security(options.get("security"))
        self._namespace = parts.netloc or access.namespace
        self._allowed = settings.container_namespaces or (self._namespace,)
        self._link = KubernetesLink(access, REQUEST_S)
        # In each cluster its own API server often has the same address. Their workers differ in regions.
        place = f"{access.server}/{','.join(self._allowed)}/{','.join(settings.regions)}"
        self.leftovers = LeftJobs(self._link, self._allowed, place)

    async def run(self, attempt: AttemptContext) -> Outcome:
        try:
            spec = self._read(attempt)
        except ContainerRefused as refusal:
            return failed_by("ContainerRefused", str(refusal), final=True)
        job = RunJob(
            self._link, spec.namespace or self._namespace, write_job(attempt, spec, restricted=self._restricted)
        )
        output = Output(attempt, self._settings.output_limit)
        try:
            return await self._accompany(job, spec, attempt, output)
        except asyncio.CancelledError:
            # A worker that is fenced or stops leaves the container to the next one.
            if attempt.stop_kind in ("timed_out", "cancelled"):
                await complete(self._end(job, attempt))
            raise
        except NotOurs as refusal:
            return failed_by("ContainerTaken", str(refusal))
        except KubernetesRefused as refusal:
            if refusal.status in _INVALID:
                return failed_by("ContainerRefused", str(refusal), final=True)
            await self._end(job, attempt)
            return failed_by("KubernetesUnavailable", str(refusal))
        except LeaseUnavailable as error:
            return failed_by("KubernetesUnavailable", str(error))
        finally:
            output.finish()

    def _read(self, attempt: AttemptContext) -> ContainerSpec:
        if f'"{SECRET}"' in attempt.claim.args:
            raise ContainerRefused(
                "it refers to a secret of the worker, which would be readable in the Job: put it into a Secret of "
                'Kubernetes, and write {"secret": NAME, "key": KEY}'
            )
        spec = read_spec(attempt, self._settings)
        if spec.namespace is not None and spec.namespace not in self._allowed:
            allowed = ", ".join(self._allowed)
            raise ContainerRefused(
                f"namespace {spec.namespace} is not allowed on this worker (allowed: {allowed}): add it to "
                "container_namespaces"
            )
        return spec

    async def _accompany(self, job: RunJob, spec: ContainerSpec, attempt: AttemptContext, output: Output) -> Outcome:
        if await job.start():
            attempt.write("log", f"continues with the Job {job.name} that an earlier worker started")
        end = await PodFollower(self._link, job, attempt, output).follow(self._settings.container_start)
        if end.code is None and end.reason != DEADLINE_EXCEEDED:
            await self._end(job, attempt)
        return _judge(end, spec, output)

    async def _end(self, job: RunJob, attempt: AttemptContext) -> None:
        """Delete the Job. If that cannot be done now, its deadline ends it, or the next attempt does."""
        try:
            await job.end(END_S)
        except (TimeoutError, LeaseUnavailable) as error:
            attempt.write("log", f"the Job {job.name} could not be deleted: {error or 'it is still there'}")


def _read_security(text: str | None) -> bool:
    if text not in (None, "restricted"):
        raise InvalidInput(FIELD, text, "is no standard of pod security", "write ?security=restricted, or nothing")
    return text is not None


def _judge(end: PodEnd, spec: ContainerSpec, output: Output) -> Outcome:
    if end.reason == DEADLINE_EXCEEDED:
        failure = Failure("TimeoutError", end.message or "not done within its timeout")
        return Outcome("timed_out", failure=failure, error_types=("builtins.TimeoutError", "builtins.Exception"))
    if end.code is None:
        text = f"{end.reason}: {end.message}" if end.message else end.reason
        return failed_by("ContainerNotRun" if end.final else "ContainerLost", text, "ContainerFailed", final=end.final)
    memory = spec.resources.limits.get("memory")
    line = output.last_lines.get("stdout", b"")
    return judge(end.code, line, out_of_memory=end.reason == "OOMKilled", memory=memory)
