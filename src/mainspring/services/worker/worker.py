"""A worker: claims, executes and reports runs, renews its claims, and drains.

Its loops run beside the loop of the user's tasks, so that a function that blocks cannot stop the renewal of claims.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Literal

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import MARGIN
from mainspring.core.model import Amendment, Report
from mainspring.core.model import Worker as WorkerRow
from mainspring.errors import MainspringError
from mainspring.executor import AttemptContext, Executor, Leftovers, StopKind
from mainspring.services.activity import Activity
from mainspring.services.loop import Loop, log, within
from mainspring.services.worker.claimer import Claimer, ClaimSource, PooledClaimer
from mainspring.services.worker.claims import Claims
from mainspring.services.worker.fence import Fence
from mainspring.services.worker.heartbeat import Heartbeat
from mainspring.services.worker.loop_monitor import LoopMonitor
from mainspring.services.worker.reporter import Reporter
from mainspring.services.worker.runner import Runner, conclude, stopped
from mainspring.services.worker.sweeper import Sweeper
from mainspring.services.worker.worker_breaker import WorkerBreaker
from mainspring.settings import Settings, breaker_policy
from mainspring.store import Store

DRAIN_LOOK_S = 0.02
ENDING_S = 4.0
"""How long work that did not finish within the grace may take to end: a process gets SIGTERM before SIGKILL."""
PARTING_S, HASTE_S = 2.0, 0.3
"""How long a last call to the store may take, and how long each call after one without an answer."""
EXIT_UNSTOPPABLE = 70


def end_process() -> None:
    """The last resort: work that lost its claim and cannot be stopped must not go on."""
    os._exit(EXIT_UNSTOPPABLE)


class UnfinishedWork(msgspec.Struct):
    """What a worker that has to end leaves to its successor, which reports it once the worker has ended. Not before, so
    that no retry begins beside work that could not be stopped."""

    worker: WorkerRow
    reports: list[Report]
    returned: list[tuple[str, int]]

    async def settle(self, store: Store) -> None:
        """Report it to the store."""
        if self.reports:
            await store.report(self.reports)
        if self.returned:
            await store.hand_back(self.returned)
        await store.register(msgspec.structs.replace(self.worker, state="stopped", running=0))


class WorkerService:
    """Assembles the loops. `task_loop` is the event loop on which tasks run; it may be the worker's own. After a drain
    `on_stopped` is called there."""

    def __init__(
        self,
        store: Store,
        row: WorkerRow,
        executor_of: Callable[[str], Executor],
        task_loop: asyncio.AbstractEventLoop,
        settings: Settings,
        clock: Clock,
        random: Random,
        on_unstoppable: Callable[[], None] = end_process,
        on_stopped: Callable[[], None] | None = None,
        on_replaced: Callable[[UnfinishedWork], None] | None = None,
        mask: Callable[[str], str] | None = None,
        source: ClaimSource | None = None,
    ) -> None:
        """`on_replaced` has to end this process because of work that goes on past its deadline, after all other work is
        done; unless given, it is ended as if it were unstoppable. `mask` takes out of texts what must not be shown.
        `source`: where claims come from; the store unless given."""
        self.row, self.random = row, random
        self._on_replaced = on_replaced or (lambda _: on_unstoppable())
        self._deaf: dict[str, AttemptContext] = {}
        self._replacing: asyncio.Task[None] | None = None
        self._store = store
        self._clock = clock
        self._settings = settings
        self._task_loop = task_loop
        self._own_loop = asyncio.get_running_loop()
        self._on_unstoppable = on_unstoppable
        self._on_stopped = on_stopped
        self._is_waking, self._patience_s = False, PARTING_S
        self._endings: set[asyncio.Task[None]] = set()
        self.claims = Claims()
        self.runner = Runner(
            *(executor_of, row.concurrency, clock, store.now, store.surely_now, self._tell_done),
            on_deaf=self._on_deaf,
            deaf_after_s=settings.deaf_after / SECOND,
            mask=mask,
        )
        self.claimer = (PooledClaimer if settings.pools else Claimer)(
            *(store, source or store, row, self.claims, self._hand_over, self._start_here, self._give_back),
            *(self._on_full, settings, clock, random),
        )
        self.runner.notices = {notice.name: notice for notice in row.notices}
        self.claimer.amend = self._amend
        self.reporter = Reporter(store, self.runner, self.claims, self.claimer.make_room, settings, clock, random)
        self.reporter.on_aside = self.claimer.step_aside
        self.breaker = self._make_breaker()
        self.fence = Fence(self.claims, self._stop_run, clock, random)
        self.heartbeat = Heartbeat(store, row, self.claims, self._stop_run, self.fence.lower, settings, clock, random)
        self.loop_monitor: LoopMonitor | None = None
        if task_loop is not self._own_loop:
            self.loop_monitor = LoopMonitor(self.runner, task_loop, self._on_deaf, settings, clock, random)
        self._connect()

    def _connect(self) -> None:
        self.sweeper: Sweeper | None = None
        self.claimer.on_alive = self.heartbeat.count
        self._asked_to_drain = self._has_left = False
        self._leaving: asyncio.Task[None] | None = None
        self.on_drain: Callable[[], None] = self._leave
        """Called once, on the worker's loop, when the worker is asked to drain. By default, the worker drains and the
        rest of this process goes on."""
        self.heartbeat.on_drain = self.claimer.on_drain = self._hear_drain

    def sweep(self, leftovers: Leftovers) -> None:
        """Also look after work that can outlive a worker. Called before the loops are run."""
        self.sweeper = Sweeper(self._store, leftovers, self.row.id, self._settings, self._clock, self.random)

    def report_to(self, activity: Activity) -> None:
        """Count what this worker does from now on."""
        activity.claimed, activity.in_hand = lambda: self.claims.total, lambda: len(self.claims)
        self.reporter.activity = activity
        if activity.detailed:
            self.runner.on_begun = activity.began

    @property
    def needs_hints(self) -> bool:
        """Whether the worker needs a hint of each change by other processes. A worker with standing claims does not:
        the store starts their runs itself."""
        return not self.claimer.stands

    @property
    def loops(self) -> Iterable[Loop]:
        """All loops, to be run."""
        loops = (self.claimer, self.reporter, self.heartbeat, self.fence, self.loop_monitor, self.sweeper)
        return [loop for loop in loops if loop is not None]

    def wake(self, *, work: bool = True) -> None:
        """The store has changed: there may be a cancellation and, unless a broker announces it, work."""
        if work:
            self.claimer.hint()
        if len(self.claims):
            self.heartbeat.wake()

    def _on_task_loop(self, call: Callable[..., object], *args: object) -> None:
        if self._task_loop is self._own_loop:
            call(*args)
        else:
            self._task_loop.call_soon_threadsafe(call, *args)

    def _hand_over(self, attempts: list[AttemptContext], early: bool) -> None:
        for attempt in attempts:
            run_id = attempt.claim.run_id
            if (token := self.claims.token_of(run_id)) is not None:
                # It expired while this process was suspended, before the heartbeat could notice.
                self._stop_run(run_id, "fenced", "its claim expired and was granted anew")
                self.claims.remove([(run_id, token)])
        if self.claimer.stopping:
            self._give_back(_claims_of(attempts))
        else:
            self._on_task_loop(self.runner.begin_when_due if early else self.runner.begin, attempts)
            self.reporter.wake()  # It looks for output more often while runs execute.

    def _start_here(self, attempts: list[AttemptContext], until: float) -> None:
        """Start attempts now, from any thread. The worker's own loop learns of them before it can learn of their
        end."""
        if self.claimer.stopping or self._clock.monotonic() >= until:
            self._own_loop.call_soon_threadsafe(self._give_back, _claims_of(attempts))
            return
        self.claims.promise(attempts, until)
        if asyncio.get_running_loop() is self._task_loop:
            self._begin_here(attempts, until)
        else:
            self._task_loop.call_soon_threadsafe(self._begin_here, attempts, until)

    def _begin_here(self, attempts: list[AttemptContext], until: float) -> None:
        """On the task loop, which starts them before the other thread gets the interpreter."""
        self._own_loop.call_soon_threadsafe(self._hear_begun)
        if self._clock.monotonic() < until:
            self.runner.begin(attempts)
        else:
            self._own_loop.call_soon_threadsafe(self._give_back, _claims_of(attempts))

    def _hear_begun(self) -> None:
        """On the worker's own loop: another thread has started attempts."""
        self.reporter.wake()
        if len(self.claims) >= self.row.concurrency:
            self.claimer.wake()  # It has no standing claim any more.

    def _give_back(self, claims: list[tuple[str, int]]) -> None:
        self.runner.returned.extend(claims)
        self.reporter.wake()

    def _amend(self, attempts: list[AttemptContext], amendments: list[Amendment], until: float) -> None:
        """Callable from any thread. The claims are held, and so renewed, until the store has taken them back."""
        self.claims.promise(attempts, until)
        self.runner.amended.extend(amendments)
        with suppress(RuntimeError):  # The worker's loop has ended; its claims expire.
            self._own_loop.call_soon_threadsafe(self.reporter.wake)

    def _make_breaker(self) -> WorkerBreaker:
        """The breaker, which keeps the claimer from claiming what the runner cannot execute."""
        breaker = WorkerBreaker(breaker_policy(self._settings), self._clock.monotonic, self._store.metrics)
        breaker.on_open = self._on_breaker_open
        self.claimer.breaker, self.runner.on_executed = breaker, breaker.executed
        return breaker

    def _on_breaker_open(self) -> None:
        """On the task loop: withdraw the standing claim."""
        self._own_loop.call_soon_threadsafe(self.claimer.wake)

    def _on_full(self) -> None:
        if len(self.claims) > self.row.concurrency:
            self._on_task_loop(self.runner.return_stuck)

    def _tell_done(self) -> None:
        """Called on the task loop. Several ends are one wake-up of the reporter."""
        if self._task_loop is self._own_loop:
            self.reporter.wake()
        elif not self._is_waking:
            self._is_waking = True
            with suppress(RuntimeError):  # The worker's loop has ended.
                self._own_loop.call_soon_threadsafe(self._hear_done)

    def _hear_done(self) -> None:
        self._is_waking = False
        self.reporter.wake()

    def _stop_run(self, run_id: str, kind: StopKind, reason: str) -> None:
        attempt = self.runner.under_way(run_id) if kind == "fenced" else None
        if attempt is not None:
            ending = self._own_loop.create_task(self._see_to_end(attempt))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
        self._on_task_loop(self.runner.stop, run_id, kind, reason)

    async def _see_to_end(self, attempt: AttemptContext) -> None:
        """Work that lost its claim may go on only until another worker may have the run. A function in a thread cannot
        be stopped, nor one that blocks the loop or swallows its cancellation."""
        if not attempt.unstoppable:
            await self._clock.sleep(self._settings.claim_ttl / SECOND * MARGIN)
            if self.runner.under_way(attempt.claim.run_id) is not attempt:
                return
        log.critical("run %s has lost its claim and cannot be stopped: ending the process", attempt.claim.run_id)
        self._on_unstoppable()

    def _on_deaf(self, attempt: AttemptContext) -> None:
        """Work of this process goes on past its deadline. On the task loop, or on the worker's own."""
        if self._task_loop is self._own_loop:
            self._replace(attempt)
        else:
            self._own_loop.call_soon_threadsafe(self._replace, attempt)

    def _replace(self, attempt: AttemptContext) -> None:
        ends = self.claimer.stopping and self._replacing is None and self._leaving is None
        if attempt.claim.run_id in self._deaf or ends:
            return  # It is known, or the process ends anyway.
        self._deaf[attempt.claim.run_id] = attempt
        stack = "".join(self.loop_monitor.stack()) if self.loop_monitor is not None and not attempt.unstoppable else ""
        log.critical(
            "run %s of task %s does not end although its time is up, and only the end of this process can stop it. "
            "The worker lets other runs finish, then replaces itself%s",
            *(attempt.claim.run_id, attempt.claim.task, stack and f". It may be here:\n{stack}"),
        )
        attempt.write("log", "this run does not end although its time is up: its worker replaces itself")
        if self._leaving is not None:
            self._leaving.cancel()  # Only the end of the process ends this run.
        if self._replacing is None:
            self._replacing = self._own_loop.create_task(self._be_replaced())

    async def _be_replaced(self) -> None:
        """Finish what can finish, and end. Claims are renewed until then."""
        self.claimer.stop()
        await self._part(self.register("draining"))
        self._on_task_loop(self.runner.return_waiting)
        await self._until_free(self._settings.drain_grace / SECOND, but_for=self._deaf)
        for run_id, _ in self.claims.pairs():
            if run_id not in self._deaf:
                self._on_task_loop(self.runner.stop, run_id, "handed_back", "")
        await self._until_free(ENDING_S, but_for=self._deaf)
        self._on_replaced(self._unfinished())

    def _unfinished(self) -> UnfinishedWork:
        reports, returned = [], []
        for run_id, token in self.claims.pairs():
            attempt = self._deaf.get(run_id)
            if attempt is None or attempt.claim.token != token:
                returned.append((run_id, token))
                continue
            attempt.stop_kind = attempt.stop_kind or "timed_out"
            reports.append(conclude(attempt, stopped(attempt), self._store.now()))
        return UnfinishedWork(self.row, reports, returned)

    async def register(self, state: Literal["active", "draining", "stopped"] = "active") -> None:
        """Register this worker with the store, or change its state there."""
        self.row = msgspec.structs.replace(self.row, state=state, running=len(self.claims))
        await self._store.register(self.row)

    async def drain(self, grace_s: float | None = None) -> None:
        """Claim no more, hand back what has not started, let the rest finish within the grace, and hand back what does
        not. Takes no longer than the grace and a few seconds, whatever the store does."""
        if self._replacing is not None:
            self._replacing.cancel()  # The worker ends instead of being replaced.
        if self._leaving is not None:
            self._leaving.cancel()
        if self._has_left:
            return
        await self._finish(self._settings.drain_grace / SECOND if grace_s is None else grace_s)
        if late := self.claims.pairs():
            log.warning("%d runs do not end: handing them back unfinished", len(late))
            await self._part(self._store.hand_back(late))
        await self._say_stopped()

    async def _finish(self, grace_s: float) -> None:
        """Claim no more, and let what is held finish within the grace, or stop it."""
        self.claimer.stop()
        await self._part(self.register("draining"))
        self._on_task_loop(self.runner.return_waiting)
        await self._until_free(grace_s)
        for run_id, _ in self.claims.pairs():
            self._on_task_loop(self.runner.stop, run_id, "handed_back", "")
        await self._until_free(ENDING_S)

    async def _say_stopped(self) -> None:
        await self._part(self.register("stopped"))
        if self._on_stopped is not None:
            self._on_task_loop(self._on_stopped)
        self._has_left = True

    def _hear_drain(self) -> None:
        if not self._asked_to_drain:
            self._asked_to_drain = True
            log.warning("worker %s was asked to drain: it claims no more runs", self.row.id)
            self.on_drain()

    def _leave(self) -> None:
        self._leaving = self._own_loop.create_task(self._drain_alone())

    async def _drain_alone(self) -> None:
        """Drain while the process goes on. Work that does not end keeps its claim: handed back, it would run in two
        places at once."""
        if self._replacing is not None:
            return  # Only the end of the process ends what it still runs.
        await self._finish(self._settings.drain_grace / SECOND)
        if late := self.claims.pairs():
            log.warning("%d runs do not end: worker %s drains until they do", len(late), self.row.id)
        while len(self.claims) or not self.reporter.idle:
            await self._clock.sleep(DRAIN_LOOK_S)
        await self._say_stopped()
        for loop in self.loops:
            loop.stop()
        log.warning("worker %s has drained and stopped; the rest of this process goes on", self.row.id)

    async def _until_free(self, seconds: float, but_for: Collection[str] = ()) -> None:
        """Wait until nothing is held `but_for` these runs. Stop waiting after `seconds`, or if a task blocks the loop
        of the tasks."""
        deadline = self._clock.monotonic() + seconds
        while self._clock.monotonic() < deadline and not self._is_blocked():
            if self.reporter.idle and all(run_id in but_for for run_id, _ in self.claims.pairs()):
                return
            await self._clock.sleep(DRAIN_LOOK_S)

    def _is_blocked(self) -> bool:
        return self.loop_monitor is not None and self.loop_monitor.blocked_s > self._settings.deaf_after / SECOND

    async def _part(self, word: Awaitable[object]) -> None:
        """Make a last call to the store, if it answers."""
        began = self._clock.monotonic()
        try:
            await within(self._clock, self._patience_s, word)
        except MainspringError as error:
            if self._clock.monotonic() - began >= self._patience_s:
                self._patience_s = HASTE_S
            log.warning("worker %s, while stopping: %s", self.row.id, error)


def _claims_of(attempts: Sequence[AttemptContext]) -> list[tuple[str, int]]:
    return [(attempt.claim.run_id, attempt.claim.token) for attempt in attempts]
