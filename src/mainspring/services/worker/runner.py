"""Executes attempts on the event loop of the user's tasks: starts and stops them, and decides what follows from their
end."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Duration, Instant, format_duration
from mainspring.core.model import Amendment, Claim, Failure, LogLine, Progress, Report, RunOptions, TaskNotice
from mainspring.core.runs.outcome import Next, after_failure, ends_with_run, overrun
from mainspring.core.states import CANCELLED, FAILED, SKIPPED, SUCCEEDED
from mainspring.executor import AttemptContext, Executor, Outcome, RunContext, StopKind, plain
from mainspring.services.loop import log

INSIST_S = 1.0
INSIST_TIMES = 5
"""How often an async function that swallows its cancellation is cancelled again."""
STUCK_S = 1.0
"""Attempts that wait for a place go back to the queue if none could be started for this long."""
EARLY_TICK_S = 0.0005
"""How soon to look again at attempts that are not due when their timer fires."""
FEW = 10
"""Up to this many attempts get a task each; more may share one: see `_burst`."""
BURST = 100
"""How many begin in one step before other tasks of the loop run."""
SINGLY = 1_000
"""After an attempt that did not end in one step, this many get a task each, because those behind it had to wait."""
MOST_LINES = 10_000
"""Back-pressure: processes that write faster than the store wait once this many lines are on their way."""

_options = msgspec.json.Decoder(RunOptions).decode
_encode_failure = msgspec.json.Encoder().encode


class _AttemptLog:
    """Takes the output and progress of one attempt, from any thread."""

    __slots__ = ("_claim", "_runner")

    def __init__(self, claim: Claim, runner: Runner) -> None:
        self._claim = claim
        self._runner = runner

    def line(self, stream: str, text: str, at: Instant | None = None, /) -> None:
        now = self._runner.now() if at is None else at
        self._runner.lines.append(
            LogLine(self._claim.run_id, self._claim.attempt + 1, now, stream, self._runner.mask(text))
        )

    def mark(self, fraction: float, note: str) -> None:
        self._runner.marks.append(Progress(self._claim.run_id, self._claim.token, fraction, self._runner.mask(note)))


class Runner:
    """Runs on the event loop of the user's tasks. Other threads empty the deques, which is safe."""

    def __init__(
        self,
        executor_of: Callable[[str], Executor],
        concurrency: int,
        clock: Clock,
        now: Callable[[], Instant],
        surely_now: Callable[[], Instant],
        on_done: Callable[[], None],
        on_deaf: Callable[[AttemptContext], None] | None = None,
        deaf_after_s: float = math.inf,
        mask: Callable[[str], str] | None = None,
    ) -> None:
        """`on_deaf` is called for work in this process that goes on for `deaf_after_s` after it was stopped. Its
        attempt stays under way: it must not be retried before this process has ended. `mask` removes secrets from all
        texts of attempts."""
        self.mask = mask or _unchanged
        self._executor_of = executor_of
        self._on_deaf = on_deaf
        self._deaf_after_s = deaf_after_s
        self._concurrency = concurrency
        self._clock = clock
        self.now = now
        self._surely_now = surely_now
        self._on_done = on_done
        self._waiting: deque[AttemptContext] = deque()
        self._early: list[AttemptContext] = []
        """Attempts claimed before they are due."""
        self._early_watch: asyncio.Task[None] | None = None
        self._tasks: dict[str, tuple[AttemptContext, asyncio.Task[None]]] = {}
        self._bursting: asyncio.Task[None] | None = None
        self._singly = 0
        self._context = copy_context()
        """Every attempt begins with a copy, so that none sees the context variables of another."""
        self._started_at = clock.monotonic()
        self.done: deque[Report] = deque()
        self.returned: deque[tuple[str, int]] = deque()
        """Claims to be handed back: their work has not started, or was stopped for this."""
        self.amended: deque[Amendment] = deque()
        """Claims to be handed back with a change to their run."""
        self.unfit: deque[tuple[AttemptContext, Outcome]] = deque()
        """Attempts that could not begin, because the code of this worker does not know their arguments."""
        self.notices: Mapping[str, TaskNotice] = {}
        """The descriptions of its tasks that this worker has published."""
        self.lines: deque[LogLine] = deque()
        self.marks: deque[Progress] = deque()
        self.on_executed: Callable[[bool], bool] = lambda well: False
        """Called with whether an attempt could be executed; returns whether its run should wait if not."""
        self.on_begun: Callable[[AttemptContext], None] | None = None
        """Called with each attempt that starts."""
        self.names_alert = False
        """Whether a run here has named a recipient of alerts."""

    def begin(self, attempts: Sequence[AttemptContext]) -> None:
        """Start attempts, or keep them until there is a free place."""
        self._waiting.extend(attempts)
        self._fill()

    def begin_when_due(self, attempts: Sequence[AttemptContext]) -> None:
        """Start attempts that may have been claimed before they are due, each once it is due."""
        self._early += attempts
        if self._early_watch is not None:
            self._early_watch.cancel()
        self._early_watch = asyncio.get_running_loop().create_task(self._begin_early())

    async def _begin_early(self) -> None:
        """Timers may fire early, and the store's clock may be set: attempts that are not due then wait on."""
        while True:
            now = self._surely_now()
            self._waiting.extend([attempt for attempt in self._early if attempt.claim.due_at <= now])
            self._early = [attempt for attempt in self._early if attempt.claim.due_at > now]
            self._fill()
            if not self._early:
                return
            wait = min(attempt.claim.due_at for attempt in self._early) - now
            await self._clock.sleep(max(wait / SECOND, EARLY_TICK_S))

    def _fill(self) -> None:
        if not self._waiting or len(self._tasks) >= self._concurrency or self._bursting is not None:
            return
        create_task = asyncio.get_running_loop().create_task
        if len(self._waiting) > FEW and self._singly <= 0:
            self._bursting = create_task(self._burst(), context=self._context.copy())
        while self._bursting is None and self._waiting and len(self._tasks) < self._concurrency:
            attempt = self._waiting.popleft()
            task = create_task(self._execute(attempt), context=self._context.copy())
            self._tasks[attempt.claim.run_id] = (attempt, task)
            self._singly -= 1
        self._started_at = self._clock.monotonic()

    async def _burst(self) -> None:
        """Run one attempt after another in one task, as long as each ends in the step in which it begins: creating a
        task costs as much as everything else that such an attempt needs. The first that does not end at once keeps the
        task; so does one that has changed its context."""
        this = self._bursting
        assert this is not None
        asyncio.get_running_loop().call_soon(self._end_burst, this)
        for _ in range(BURST):
            if not self._waiting or len(self._tasks) >= self._concurrency:
                break
            attempt = self._waiting.popleft()
            self._tasks[attempt.claim.run_id] = (attempt, this)
            await self._execute(attempt)
            if self._bursting is not this:
                return
            if this.cancelling() or copy_context() != self._context:
                break
        self._bursting = None
        self._fill()

    def _end_burst(self, burst: asyncio.Task[None]) -> None:
        """The burst has yielded to the loop. If it was not at its end, start the next attempts without it."""
        if self._bursting is burst:
            self._bursting, self._singly = None, SINGLY
            self._fill()

    def _equip(self, attempt: AttemptContext) -> None:
        attempt.now = self.now
        attempt.started_at = self.now()
        said = _AttemptLog(attempt.claim, self)
        attempt.write = said.line
        attempt.behind = self._is_behind
        self.names_alert = self.names_alert or attempt.options.alert is not None
        attempt.context = RunContext(
            attempt.claim, attempt.deadline, said.line, said.mark, attempt.soft_deadline, self.now
        )
        if self.on_begun is not None:
            self.on_begun(attempt)

    def _is_behind(self) -> bool:
        return len(self.lines) > MOST_LINES

    async def _execute(self, attempt: AttemptContext) -> None:
        timers: Sequence[asyncio.TimerHandle] = ()
        if attempt.options.give_up_at is not None and self.now() >= attempt.options.give_up_at:
            self._give_up(attempt)
            return
        try:
            self._equip(attempt)
            timers = self._set_timers(attempt)
            outcome = await self._executor_of(attempt.claim.task).run(attempt)
            self.on_executed(True)
        except asyncio.CancelledError:
            if attempt.stop_kind is None:
                self._abandon(attempt)
                raise
            outcome = stopped(attempt)
        except Exception as error:
            log.exception("run %s: its executor failed", attempt.claim.run_id)
            if self.on_executed(False) and attempt.stop_kind is None:
                attempt.stop_kind = "handed_back"  # The run waits instead of using up an attempt.
            outcome = Outcome("failed", failure=Failure(type(error).__name__, plain(f"the executor failed: {error}")))
        for timer in timers:
            timer.cancel()
        if timers and not attempt.warned and self._is_overdue(attempt):
            _note_overdue(attempt)  # The task kept the loop from the timer, or read the clock before it.
        self._finish(attempt, outcome)

    def _is_overdue(self, attempt: AttemptContext) -> bool:
        return attempt.soft_deadline is not None and self.now() >= attempt.soft_deadline

    def _set_timers(self, attempt: AttemptContext) -> Sequence[asyncio.TimerHandle]:
        options, soft_timeout = attempt.options, attempt.options.soft_timeout
        if options.timeout is None and options.give_up_at is None and soft_timeout is None:
            return ()  # Most have none, and need not compute it.
        deadline = attempt.deadline
        call_later = asyncio.get_running_loop().call_later
        timers = []
        if deadline is not None:
            left_s = (deadline - attempt.started_at) / SECOND
            attempt.ends_by = self._clock.monotonic() + left_s
            timers.append(call_later(left_s, self._stop, attempt, "timed_out", ""))
        if soft_timeout is not None:
            timers.append(call_later(soft_timeout / SECOND, _warn, attempt))
        return timers

    def _give_up(self, attempt: AttemptContext) -> None:
        """The total timeout of the run has ended: report that, without an execution."""
        attempt.started_at, attempt.stop_kind = self.now(), "timed_out"
        self._finish(attempt, stopped(attempt))

    def _abandon(self, attempt: AttemptContext) -> None:
        """The loop of the tasks is ending, and the attempt with it; no other is started."""
        if self.under_way(attempt.claim.run_id) is attempt:
            del self._tasks[attempt.claim.run_id]
            self._return(attempt)

    def _return(self, attempt: AttemptContext) -> None:
        self.returned.append((attempt.claim.run_id, attempt.claim.token))
        self._on_done()

    def _finish(self, attempt: AttemptContext, outcome: Outcome) -> None:
        if self.under_way(attempt.claim.run_id) is not attempt:
            return  # It was abandoned before it ended.
        del self._tasks[attempt.claim.run_id]
        if attempt.stop_kind is None and self._is_late(attempt):
            attempt.stop_kind = "timed_out"  # It blocked the loop, so that its deadline timer could not fire.
        if attempt.stop_kind == "timed_out":
            outcome = stopped(attempt)
        if attempt.stop_kind == "handed_back" and outcome.kind != "succeeded":
            self._return(attempt)
        elif outcome.unfit and attempt.stop_kind is None and attempt.claim.task in self.notices:
            self.unfit.append((attempt, _masked(outcome, self.mask)))
            self._on_done()
        elif attempt.stop_kind != "fenced":
            self.done.append(conclude(attempt, _masked(outcome, self.mask), self.now()))
            self._on_done()
        self._fill()

    def _is_late(self, attempt: AttemptContext) -> bool:
        """Whether work in this process is past its deadline. Other processes are killed in time; their result may have
        waited to be read."""
        return attempt.here and attempt.ends_by is not None and self._clock.monotonic() > attempt.ends_by

    def stop(self, run_id: str, kind: StopKind, reason: str = "") -> None:
        """Stop an attempt, unless it has ended. One that has not started never will."""
        held = self._tasks.get(run_id)
        if held is None:
            unstarted = next((each for each in (*self._waiting, *self._early) if each.claim.run_id == run_id), None)
            if unstarted is None:
                return
            (self._early if unstarted in self._early else self._waiting).remove(unstarted)
        elif held[0].context is None:
            # Its first step has not run. If cancelled now, it never would, and so neither would its end.
            unstarted = held[0]
            del self._tasks[run_id]
            held[1].cancel()
        else:
            self._stop(held[0], kind, reason)
            return
        if kind != "fenced":
            self._return(unstarted)
        self._fill()

    def _stop(self, attempt: AttemptContext, kind: StopKind, reason: str) -> None:
        held = self._tasks.get(attempt.claim.run_id)
        if held is None or held[0] is not attempt or (attempt.stop_kind is not None and kind != "fenced"):
            return
        if attempt.context is not None:
            attempt.context.cancel()
        if attempt.unstoppable and kind == "cancelled":
            return  # A function in a thread ends when it sees `current_run().cancelled`, or by itself.
        attempt.stop_kind, attempt.stop_reason = kind, reason
        if kind == "fenced":
            attempt.grace_s = 0.0
        if attempt.here and self._on_deaf is not None and kind in ("timed_out", "cancelled"):
            asyncio.get_running_loop().call_later(self._deaf_after_s, self._notice_deaf, attempt, self._on_deaf)
            if attempt.unstoppable:
                return  # Ending the attempt now would let a retry begin beside the thread.
        held[1].cancel()
        self._insist(attempt, held[1], INSIST_TIMES)

    def _notice_deaf(self, attempt: AttemptContext, on_deaf: Callable[[AttemptContext], None]) -> None:
        if self.under_way(attempt.claim.run_id) is attempt:
            on_deaf(attempt)

    def _insist(self, attempt: AttemptContext, task: asyncio.Task[None], times: int) -> None:
        if task.done():
            return
        if times == 0:
            log.error("run %s ignores its cancellation", attempt.claim.run_id)
            if self._on_deaf is None or attempt.stop_kind == "handed_back":
                self._finish(attempt, stopped(attempt))
            return
        pause = attempt.grace_s + INSIST_S
        asyncio.get_running_loop().call_later(pause, self._cancel_again, attempt, task, times - 1)

    def _cancel_again(self, attempt: AttemptContext, task: asyncio.Task[None], times: int) -> None:
        if not task.done():
            task.cancel()
            self._insist(attempt, task, times)

    def return_waiting(self) -> None:
        """Hand back the attempts that have not started."""
        self._waiting.extend(self._early)
        self._early.clear()
        self._return_waiting()

    def return_stuck(self) -> None:
        """Hand back the attempts that have not started, if none has started lately: other workers may be free."""
        if self._clock.monotonic() - self._started_at >= STUCK_S:
            self._return_waiting()

    def _return_waiting(self) -> None:
        while self._waiting:
            self._return(self._waiting.popleft())

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks or self._bursting is not None:
            burst = [] if self._bursting is None else [self._bursting]
            await asyncio.wait([task for _, task in self._tasks.values()] + burst)

    def overrunning(self, by_s: float) -> list[AttemptContext]:
        """Attempts in this process that are this long past their deadline. Callable from any thread."""
        now = self._clock.monotonic()
        return [
            attempt
            for attempt, _ in tuple(self._tasks.values())
            if attempt.here and attempt.ends_by is not None and now > attempt.ends_by + by_s
        ]

    def attempt_of(self, task: asyncio.Task[Any] | None) -> AttemptContext | None:
        """The attempt that a task of the event loop executes. Callable from any thread."""
        return next((attempt for attempt, each in tuple(self._tasks.values()) if each is task), None)

    def under_way(self, run_id: str) -> AttemptContext | None:
        """The attempt of a run that has started here and has not ended. Callable from any thread."""
        held = self._tasks.get(run_id)
        return None if held is None else held[0]

    @property
    def busy(self) -> int:
        """How many attempts are under way."""
        return len(self._tasks)


def prepare(options: str) -> RunOptions:
    """Decode the options of a claim."""
    return _options(options) if options != "{}" else _DEFAULTS


def with_deadline(options: RunOptions, priority: int, deadlines: Mapping[int, Duration]) -> RunOptions:
    """The options, with the deadline of the priority as timeout where the run has none."""
    if options.timeout is not None or (deadline := deadlines.get(priority)) is None:
        return options
    return msgspec.structs.replace(options, timeout=deadline)


_DEFAULTS = RunOptions()
_SUCCESS = Next(SUCCEEDED, "")


def _unchanged(text: str) -> str:
    return text


def _masked(outcome: Outcome, mask: Callable[[str], str]) -> Outcome:
    """The outcome without secrets; the same object if there are none."""
    if outcome.result is not None and (result := mask(outcome.result)) != outcome.result:
        outcome = msgspec.structs.replace(outcome, result=result)
    failure = outcome.failure
    if failure is not None:
        shown = Failure(failure.type, mask(failure.message), mask(failure.traceback))
        outcome = msgspec.structs.replace(outcome, failure=shown)
    return outcome


def _warn(attempt: AttemptContext) -> None:
    _note_overdue(attempt)
    attempt.on_overdue()


def _note_overdue(attempt: AttemptContext) -> None:
    attempt.warned = True
    text = f"past its soft deadline of {format_duration(attempt.options.soft_timeout or 0)}"
    if attempt.deadline is not None:
        text += f"; it will be stopped at {format_duration(attempt.deadline - attempt.started_at)}"
    attempt.write("log", text)


def stopped(attempt: AttemptContext) -> Outcome:
    """The outcome of an attempt that was stopped."""
    if attempt.stop_kind == "timed_out":
        failure = Failure("TimeoutError", overrun(attempt.options, attempt.started_at))
        return Outcome("timed_out", failure=failure, error_types=("builtins.TimeoutError", "builtins.Exception"))
    return Outcome("cancelled")


def conclude(attempt: AttemptContext, outcome: Outcome, now: Instant) -> Report:
    """The report of an attempt: what happened and, by the run's policy, what follows."""
    claim = attempt.claim
    if outcome.kind == "succeeded":
        verdict = _SUCCESS
    elif outcome.kind == "cancelled":
        verdict = Next(CANCELLED, attempt.stop_reason or "cancelled")
    elif outcome.kind == "skipped":
        verdict = Next(SKIPPED, "the task asked to be skipped")
    else:
        failure = outcome.failure or Failure("Error", "failed")
        summary = f"{failure.type}: {failure.message}" if failure.message else failure.type
        summary = summary.splitlines()[0][:500]
        verdict = after_failure(
            claim.run_id, claim.attempt, claim.losses, attempt.options, summary, outcome.error_types, now, outcome.asked
        )
        if attempt.stop_kind == "timed_out" and ends_with_run(attempt.options, attempt.started_at):
            verdict = Next(FAILED, summary)
        elif outcome.final:
            verdict = Next(FAILED, f"{summary}; not retried, for the same would happen again")
    error = None if outcome.failure is None else _encode_failure(outcome.failure).decode()
    return Report(
        claim.run_id, claim.token, outcome.kind, verdict.state, verdict.reason, verdict.delay, outcome.result, error,
        attempt.started_at or None, now,
    )  # fmt: skip
