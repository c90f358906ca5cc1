"""The hands of a worker: starts attempts on the user's loop, stops them, and concludes what follows from how they
ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from mainspring.clock import Clock
from mainspring.context import RunContext
from mainspring.core.instants import SECOND, Instant, format_duration
from mainspring.core.model import Failure, LogLine, Progress, Report, RunOptions
from mainspring.core.outcome import Next, after_failure
from mainspring.core.states import CANCELLED, SKIPPED, SUCCEEDED
from mainspring.executor import AttemptContext, Executor, Outcome, StopKind
from mainspring.services.loop import log

INSIST_S = 1.0
INSIST_TIMES = 5
"""An async function that swallows its cancellation is cancelled again so often, then left to itself."""

_options = msgspec.json.Decoder(RunOptions).decode
_encode_failure = msgspec.json.Encoder().encode


class Crew:
    """Lives on one event loop, the user's; only `done`, `lines` and `marks` are read by others (deques: safe across
    threads)."""

    def __init__(
        self,
        executor_of: Callable[[str], Executor],
        concurrency: int,
        clock: Clock,
        now: Callable[[], Instant],
        on_done: Callable[[], None],
    ) -> None:
        self._executor_of = executor_of
        self._concurrency = concurrency
        self._clock = clock
        self._now = now
        self._on_done = on_done
        self._waiting: deque[AttemptContext] = deque()
        self._tasks: dict[str, tuple[AttemptContext, asyncio.Task[None]]] = {}
        self.done: deque[Report] = deque()
        self.lines: deque[LogLine] = deque()
        self.marks: deque[Progress] = deque()

    def begin(self, attempts: Sequence[AttemptContext]) -> None:
        """Start attempts, or keep them until there is room."""
        self._waiting.extend(attempts)
        while self._waiting and len(self._tasks) < self._concurrency:
            self._start(self._waiting.popleft())

    def _start(self, attempt: AttemptContext) -> None:
        attempt.started_at = self._now()
        attempt.write = self._writer(attempt)
        attempt.context = RunContext(attempt.claim, attempt.deadline, attempt.write, self._marker(attempt))
        task = asyncio.get_running_loop().create_task(self._execute(attempt))
        self._tasks[attempt.claim.run_id] = (attempt, task)

    def _writer(self, attempt: AttemptContext) -> Callable[[str, str], None]:
        claim = attempt.claim
        number = claim.attempt + 1
        return lambda stream, text: self.lines.append(LogLine(claim.run_id, number, self._now(), stream, text))

    def _marker(self, attempt: AttemptContext) -> Callable[[float, str], None]:
        claim = attempt.claim
        return lambda fraction, note: self.marks.append(Progress(claim.run_id, claim.token, fraction, note))

    async def _execute(self, attempt: AttemptContext) -> None:
        timer = None
        if attempt.options.timeout is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(attempt.options.timeout / SECOND, self._stop, attempt, "timed_out", "")
        try:
            outcome = await self._executor_of(attempt.claim.task).run(attempt)
        except asyncio.CancelledError:
            outcome = _stopped(attempt)
        except Exception as error:
            log.exception("run %s: its executor failed", attempt.claim.run_id)
            outcome = Outcome("failed", failure=Failure(type(error).__name__, f"the executor failed: {error}"))
        if timer is not None:
            timer.cancel()
        self._finish(attempt, outcome)

    def _finish(self, attempt: AttemptContext, outcome: Outcome) -> None:
        held = self._tasks.get(attempt.claim.run_id)
        if held is None or held[0] is not attempt:
            return  # it was given up before it ended
        del self._tasks[attempt.claim.run_id]
        if attempt.stop_kind == "timed_out":
            outcome = _stopped(attempt)
        if attempt.stop_kind not in ("fenced", "handed_back"):
            self.done.append(conclude(attempt, outcome, self._now()))
            self._on_done()
        self.begin(())

    def stop(self, run_id: str, kind: StopKind, reason: str = "") -> None:
        """End an attempt, if it has not ended yet; one that has not started never will."""
        held = self._tasks.get(run_id)
        if held is not None:
            self._stop(held[0], kind, reason)
            return
        for attempt in self._waiting:
            if attempt.claim.run_id == run_id:
                self._waiting.remove(attempt)
                attempt.stop_kind, attempt.stop_reason = kind, reason
                if kind == "cancelled":
                    self.done.append(conclude(attempt, _stopped(attempt), self._now()))
                    self._on_done()
                return

    def _stop(self, attempt: AttemptContext, kind: StopKind, reason: str) -> None:
        held = self._tasks.get(attempt.claim.run_id)
        if held is None or held[0] is not attempt or (attempt.stop_kind is not None and kind != "fenced"):
            return
        if attempt.context is not None:
            attempt.context.cancel()
        if attempt.unstoppable and kind == "cancelled":
            return  # a function in a thread ends when it sees `current_run().cancelled`, or by itself
        attempt.stop_kind, attempt.stop_reason = kind, reason
        if kind == "fenced":
            attempt.grace_s = 0.0
        held[1].cancel()
        self._insist(attempt, held[1], INSIST_TIMES)

    def _insist(self, attempt: AttemptContext, task: asyncio.Task[None], times: int) -> None:
        if task.done():
            return
        if times == 0:
            log.error("run %s ignores its cancellation: it goes on without being watched", attempt.claim.run_id)
            self._finish(attempt, _stopped(attempt))
            return
        pause = attempt.grace_s + INSIST_S
        asyncio.get_running_loop().call_later(pause, self._cancel_again, attempt, task, times - 1)

    def _cancel_again(self, attempt: AttemptContext, task: asyncio.Task[None], times: int) -> None:
        if not task.done():
            task.cancel()
            self._insist(attempt, task, times)

    def take_waiting(self) -> list[tuple[str, int]]:
        """Give up the attempts that have not started."""
        claims = [(attempt.claim.run_id, attempt.claim.token) for attempt in self._waiting]
        self._waiting.clear()
        return claims

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait([task for _, task in self._tasks.values()])

    def unstoppable(self) -> list[str]:
        """The runs that nothing can end but the end of this process."""
        return [run_id for run_id, (attempt, _) in list(self._tasks.items()) if attempt.unstoppable]

    @property
    def busy(self) -> int:
        """How many attempts are under way."""
        return len(self._tasks)


def prepare(options: str) -> RunOptions:
    """The options of a claim, read once."""
    return _options(options) if options != "{}" else _DEFAULTS


_DEFAULTS = RunOptions()


def _stopped(attempt: AttemptContext) -> Outcome:
    if attempt.stop_kind == "timed_out":
        limit = format_duration(attempt.options.timeout or 0)
        failure = Failure("TimeoutError", f"not done within its timeout of {limit}")
        return Outcome("timed_out", failure=failure, error_types=("builtins.TimeoutError", "builtins.Exception"))
    return Outcome("cancelled")


def conclude(attempt: AttemptContext, outcome: Outcome, now: Instant) -> Report:
    """The report of an attempt: what happened and, by the run's policy, what follows."""
    claim = attempt.claim
    if outcome.kind == "succeeded":
        verdict = Next(SUCCEEDED, "")
    elif outcome.kind == "cancelled":
        verdict = Next(CANCELLED, attempt.stop_reason or "cancelled")
    elif outcome.kind == "skipped":
        verdict = Next(SKIPPED, "the task asked to be skipped")
    else:
        failure = outcome.failure or Failure("Error", "failed")
        summary = f"{failure.type}: {failure.message}" if failure.message else failure.type
        summary = summary.splitlines()[0][:500]
        verdict = after_failure(
            claim.run_id, claim.attempt, claim.losses, attempt.options, summary, outcome.error_types, outcome.asked
        )
    error = None if outcome.failure is None else _encode_failure(outcome.failure).decode("utf-8", "replace")
    return Report(
        claim.run_id, claim.token, outcome.kind, verdict.state, verdict.reason, verdict.delay, outcome.result, error,
        attempt.started_at or None, now,
    )  # fmt: skip
