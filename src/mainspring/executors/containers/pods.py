"""Follows the pod of a Job to its end, and its log into the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from mainspring.core.instants import SECOND, Duration, format_duration
from mainspring.core.tasks.containers import MAIN, Manifest
from mainspring.drivers.kubernetes.client import FORBIDDEN, KubernetesLink, KubernetesRefused
from mainspring.errors import LeaseUnavailable
from mainspring.executor import AttemptContext
from mainspring.executors.containers.jobs import RunJob, failure_of
from mainspring.executors.programs.output import Output

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
_HOPELESS: Final = ("InvalidImageName", "ErrImageNeverPull")
LOOK_S: Final = 15.0
"""A watch that shows nothing for this long is opened again, after a look at the Job, which may fail without a pod."""
AGAIN_S: Final = 1.0
"""The pause after the API server could not be reached. The container goes on meanwhile."""
SETTLE_S: Final = 10.0
"""How long to wait for the reason why a pod was deleted."""
LOG_SILENCE_S: Final = 300.0
LAST_LINES_S: Final = 30.0
"""How long the end of the log may take to arrive after the container has ended."""
BEHIND_S: Final = 0.05
"""The pause after each line while the store is behind: back-pressure."""


class PodEnd(NamedTuple):
    """How a container ended. `reason` is Kubernetes' word for it; `code` is None if it never ran."""

    code: int | None
    reason: str
    message: str = ""
    final: bool = False


class PodFollower:
    """Follows the pods of one Job. There is one, unless a controller replaces it."""

    def __init__(self, link: KubernetesLink, job: RunJob, attempt: AttemptContext, output: Output) -> None:
        self._link, self._job, self._attempt, self._output = link, job, attempt, output
        self._selector = f"batch.kubernetes.io/job-name={job.name}"
        self._log: asyncio.Task[None] | None = None
        self._said = ""

    async def follow(self, start_within: Duration) -> PodEnd:
        """Return how the container ended, with its whole log in the output."""
        try:
            async with asyncio.timeout(start_within / SECOND) as starting:
                end = await self._watch(lambda: starting.reschedule(None))
        except TimeoutError:
            waited = format_duration(start_within)
            return PodEnd(None, "NotStarted", f"it has not started within {waited}: {self._said or 'it has no pod'}")
        else:
            if self._log is not None:
                await asyncio.wait([self._log], timeout=LAST_LINES_S)
            return end
        finally:
            if self._log is not None:
                self._log.cancel()

    async def _watch(self, on_started: Callable[[], None]) -> PodEnd:
        while True:
            try:
                listed = await self._link.request("GET", self._job.pods, labelSelector=self._selector)
                for pod in listed["items"]:
                    if (end := await self._look(pod, on_started)) is not None:
                        return end
                if not listed["items"] and (end := await self._end_without_pod()) is not None:
                    return end
                version = listed["metadata"]["resourceVersion"]
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        return await self._await_end(version, on_started)
            except KubernetesRefused as refusal:
                if refusal.status in FORBIDDEN:
                    raise
                await asyncio.sleep(AGAIN_S)
            except LeaseUnavailable:
                await asyncio.sleep(AGAIN_S)

    async def _await_end(self, version: str, on_started: Callable[[], None]) -> PodEnd:
        async for kind, pod in self._link.watch(self._job.pods, version, labelSelector=self._selector):
            if (end := await self._look(pod, on_started)) is not None:
                return end
            if kind == "DELETED":
                return await self._explain(PodEnd(None, "PodDeleted", "its pod was deleted"))
        raise LeaseUnavailable("the watch has ended")

    async def _look(self, pod: Manifest, on_started: Callable[[], None]) -> PodEnd | None:
        """What a version of the pod says: its end, if it has ended."""
        status: dict[str, Any] = pod.get("status", {})
        states = [each["state"] for each in status.get("containerStatuses") or () if each["name"] == MAIN]
        state: dict[str, Any] = states[0] if states else {}
        if "running" in state or "terminated" in state:
            on_started()
            if self._log is None:
                self._log = asyncio.create_task(self._stream_log(pod["metadata"]["name"]))
        ended = state.get("terminated")
        if ended is not None:
            end = PodEnd(ended["exitCode"], ended.get("reason", ""), ended.get("message", ""))
            removed = pod["metadata"].get("deletionTimestamp") is not None and end.code != 0
            return await self._explain(end) if removed else end
        if status.get("phase") == "Failed":
            return await self._explain(PodEnd(None, status.get("reason", ""), status.get("message", "")))
        waiting = state.get("waiting") or _unscheduled(status)
        self._say(waiting.get("reason", ""), waiting.get("message", ""))
        hopeless = waiting.get("reason") in _HOPELESS
        return PodEnd(None, waiting["reason"], waiting.get("message", ""), final=True) if hopeless else None

    def _say(self, reason: str, message: str) -> None:
        """Write to the run why its container waits, once."""
        text = f"{reason}: {message}" if message else reason
        if text not in ("", "ContainerCreating", "PodInitializing", self._said):
            self._attempt.write("log", f"the container waits: {text}")
            self._said = text

    async def _explain(self, end: PodEnd) -> PodEnd:
        """The reason of an end that the pod itself does not know: its Job's."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while True:
                    if (cause := await self._end_without_pod()) is not None:
                        known = cause.reason == DEADLINE_EXCEEDED or (end.code is None and not end.reason)
                        return cause if known else end
                    await asyncio.sleep(0.2)
        return end

    async def _end_without_pod(self) -> PodEnd | None:
        job = await self._job.find()
        if job is None or job["metadata"].get("deletionTimestamp") is not None:
            return PodEnd(None, "JobDeleted", f"the Job {self._job.name} was deleted")
        failure = failure_of(job)
        return None if failure is None else PodEnd(None, *failure)

    async def _stream_log(self, pod: str) -> None:
        """Copy the log. After a broken connection it goes on behind the lines that it has."""
        seen: tuple[bytes, int] = (b"", 0)
        """The time of the last line, and how many lines have this time."""
        path, query = f"{self._job.pods}/{pod}/log", {"container": MAIN, "follow": "true", "timestamps": "true"}
        while True:
            since = {} if not seen[0] else {"sinceTime": seen[0].decode("ascii", "replace")}
            before, repeated = seen[0], 0
            try:
                async for line in self._link.read_lines(path, LOG_SILENCE_S, **query, **since):
                    time, _, text = line.partition(b" ")
                    repeated += time == before
                    if time < before or (time == before and repeated <= seen[1]):
                        continue
                    seen = (time, seen[1] + 1 if time == seen[0] else 1)
                    self._output.take("stdout", text + b"\n")
                    if self._attempt.behind():
                        await asyncio.sleep(BEHIND_S)
                return
            except KubernetesRefused as refusal:
                if refusal.status in (*FORBIDDEN, 404):
                    self._attempt.write("log", f"its log cannot be read: {refusal}")
                    return
            except LeaseUnavailable:
                pass
            await asyncio.sleep(AGAIN_S)


def _unscheduled(status: Manifest) -> dict[str, Any]:
    """Why no node takes the pod."""
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return next((each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), {})
