"""What a run of the task `container` asks for, and whether this worker may do it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from mainspring.core.tasks.containers import ContainerSpec
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.facts import facts_of
from mainspring.executors.failures import failed_by
from mainspring.settings import Settings

CONTAINER = "container"
"""The task name under which containers are stored."""
_LONGEST_WORDS = 300


class ContainerRefused(Exception):
    """This worker must not, or cannot, start the container. Trying again would not help."""


def read_spec(attempt: AttemptContext, settings: Settings) -> ContainerSpec:
    """The container of a run. ContainerRefused if it is not one, or if its image is not allowed."""
    try:
        spec = msgspec.json.decode(attempt.claim.args, type=ContainerSpec)
    except ValueError as error:
        raise ContainerRefused(f"it is not a valid container: {error}") from error
    if not any(fnmatchcase(spec.image, pattern) for pattern in settings.container_images):
        allowed = ", ".join(settings.container_images)
        raise ContainerRefused(
            f"image {spec.image} is not allowed on this worker (allowed: {allowed}): add it to container_images"
        )
    return spec


def name_of(attempt: AttemptContext) -> str:
    """The name of the container: that of its run, so that no second one can be beside it."""
    return f"mainspring-{attempt.claim.run_id.lower()}"


def environment_of(attempt: AttemptContext) -> dict[str, str]:
    """The variables that describe the run; the index also by the name that Kubernetes gives it."""
    return {**facts_of(attempt), "JOB_COMPLETION_INDEX": str(attempt.claim.idx)}


def retries_of(attempt: AttemptContext) -> int:
    """How many attempts of the run have failed by themselves. A container that was started under the same number
    belongs to an attempt whose worker was lost or stopped: its work is this attempt's."""
    return attempt.claim.attempt - attempt.claim.losses


def judge(code: int, last_line: bytes, *, out_of_memory: bool, memory: str | None) -> Outcome:
    """The outcome that an exit code means."""
    if out_of_memory:
        limit = f" of {memory}" if memory else ""
        text = f"the container was killed because it used more memory than its limit{limit} (OOMKilled)"
        return failed_by("ContainerOOMKilled", f"{text}: raise resources.limits.memory", "ContainerFailed")
    if code == 0:
        return Outcome("succeeded", "null")
    line = last_line.decode("utf-8", "replace").strip()
    words = f": {line}" if 0 < len(line) <= _LONGEST_WORDS else ""
    return failed_by("ContainerFailed", f"the container exited with code {code}{words}")


async def complete(work: Coroutine[Any, Any, object]) -> None:
    """Finish what ends the container, however often this attempt is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
