"""What status queries answer; see `shapes`."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainspring.api.shapes import Moment
from mainspring.core.states import State


class RunStatus(msgspec.Struct):
    """How a run stands, and when that was known."""

    run_id: str
    namespace: str
    state: State
    reason: str
    attempt: int
    worker: str | None
    job: str | None
    task: str | None
    as_of: Moment


class WorkerStatus(msgspec.Struct):
    """How a worker stands."""

    worker: str
    namespace: str
    state: Literal["active", "draining", "stopped", "dead"]
    as_of: Moment
