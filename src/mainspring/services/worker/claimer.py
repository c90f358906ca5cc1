"""Claims runs: as many due ones as the runner can start soon, handed over in one step. When there are no more, it
claims runs that come due in a moment, which the runner starts at their instant."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from random import Random
from typing import Protocol

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant
from mainspring.core.load.leadership import trusted_until
from mainspring.core.load.rate_limits import Pace, format_pace
from mainspring.core.model import Amendment, Claim, Worker
from mainspring.core.runs.fitting import ASIDE, fill_in
from mainspring.core.runs.pacing import CLAIM_AHEAD, MOST_EARLY, room, typical
from mainspring.core.runs.pools import PriorityPool, make_pools, room_of
from mainspring.core.runs.priority import Ordering
from mainspring.core.states import SUCCEEDED
from mainspring.core.tasks.limits import Turns, share_of
from mainspring.executor import AttemptContext
from mainspring.services.loop import Loop, log
from mainspring.services.worker.claims import Claims
from mainspring.services.worker.runner import prepare, with_deadline
from mainspring.services.worker.worker_breaker import WorkerBreaker
from mainspring.settings import Settings
from mainspring.store import Outlook, RunFilter, StandingClaim, Store

LONGEST_WAIT_S = 1.0
"""How often at least to look for work: a hint may be lost."""
SHORTEST_WAIT_S = 0.001
OVERDUE_WAIT_S = 0.02
"""How soon to look again where a run is due but was not granted: another worker is claiming it, or it must run
alone."""
FULL_WAIT_S = 1.0
HEAD_START_S = 0.001
"""Lets the task loop start what was just claimed before this loop goes on: they share one interpreter."""
VAIN = 4
DEFERENCE_S, MOST_DEFERENCE_S = 0.002, 0.016
"""A worker that found nothing after this many hints in a row is slower than others. It backs off for a moment, twice as
long each time, instead of taking the processor and the store from them."""
LEAD = 400 * MILLISECOND
"""How long before its instant to claim a run: less than `CLAIM_AHEAD`, so that one call claims several."""
SPREAD = 50 * MILLISECOND
"""Workers that do not go first spread their claims of runs that come due over this time."""
LATELY = 20
"""How many recent runs to average for the length of a run."""
EARLY_BATCH = 300
"""How many runs one call claims ahead, so that workers that wait for the same instant share them."""


class ClaimSource(Protocol):
    """Where claims come from: the store itself, or a broker in front of it. See `store.WorkStore` for all three."""

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        """Claim due runs."""

    async def next_due(self, worker: Worker) -> Instant | None:
        """When to claim next, unless this source wakes the claimer itself."""

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        """As `Store.look`, for a worker that waits."""


class Claimer(Loop):
    """`hand_over` passes attempts to the task loop and says whether they may be early. `start`, callable from any
    thread, starts the attempts of a standing claim. `give_back` passes claims that arrived too late to the reporter.
    `on_full` is called while all places are taken."""

    name = "claimer"
    stands = True
    """Whether this source leaves standing claims with the store."""

    def __init__(
        self,
        store: Store,
        source: ClaimSource,
        worker: Worker,
        claims: Claims,
        hand_over: Callable[[list[AttemptContext], bool], None],
        start: Callable[[list[AttemptContext], float], None],
        give_back: Callable[[list[tuple[str, int]]], None],
        on_full: Callable[[], None],
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(clock, random)
        self._store, self._source = store, source
        self._worker = worker
        self._claims = claims
        self._hand_over = hand_over
        self._start = start
        self._give_back = give_back
        self._on_full = on_full
        self._settings = settings
        self._ttl = settings.claim_ttl
        self._ordering = settings.ordering
        self._deadlines = dict(settings.deadlines)
        self._sated = False
        self._asked_at: Instant = 0
        self._hinted = False
        self._in_vain = 0
        self._deferring = False
        self._early: list[Instant] = []
        self._notices = {notice.name: notice for notice in worker.notices}
        self._aside: dict[str, float] = {}
        """Tasks that are left to other workers, and until when."""
        self.amend: Callable[[list[AttemptContext], list[Amendment], float], None] = lambda *_: None
        """Called with claims to be handed back with a change to their run; from any thread."""
        self._rests = False
        """Whether the last look found nothing, and no hint came since."""
        self._was_short = False
        """Whether the last claim returned less than asked for, and what comes due was not looked at yet."""
        self._turns = False
        self._goes_first = True
        self.on_alive: Callable[[], None] = lambda: None
        """Called when a look counted as a heartbeat."""
        self.on_drain: Callable[[], None] = lambda: None
        """Called when a look shows that the worker is asked to drain."""
        self._is_new = True
        """Whether the durations of runs were never known so far."""
        self.breaker: WorkerBreaker | None = None

    async def _turn_safely(self) -> float:
        wait_s = 0.0 if self.breaker is None else self.breaker.wait_s(len(self._claims))
        if wait_s == 0:
            return await super()._turn_safely()
        self._sated = False
        self._leave_claim()  # The store must hand nothing over meanwhile.
        self.turned_at = self.clock.monotonic()
        return wait_s

    async def turn(self) -> float:
        self._turns = True
        try:
            return await self._turn()
        finally:
            self._turns = False

    async def _turn(self) -> float:
        rests, self._rests = self._rests and not self._hinted, False
        was_short, self._was_short = self._was_short and not self._hinted, False
        held = len(self._claims) - self._early_now()
        wanted = room(self._worker.concurrency, held, self._claims.run_s)
        self._is_new = self._is_new and self._claims.run_s is None
        if held >= self._worker.concurrency:
            self._on_full()
        if wanted <= 0 or self._claims.solitary:
            self._sated = False
            self._leave_claim()
            return FULL_WAIT_S
        if was_short:
            return await self._settle()
        if rests and (wait := await self._rest()) is not None:
            return wait
        self._store.leave_claim(None)
        hinted, self._hinted = self._hinted, False
        self._asked_at = self._store.now()
        claimed = await self._claim(wanted)
        self._in_vain = 0 if claimed else self._in_vain + hinted
        self._sated = claimed < wanted
        if not self._sated:
            self._leave_claim()
            return 0.0
        if claimed:
            self._was_short = True
            return HEAD_START_S
        return await self._settle()

    async def _settle(self) -> float:
        """The last claim returned less than asked for: look at what comes due, and leave a standing claim."""
        wait = await self._look_ahead()
        self._rests = True
        self._leave_claim()
        return wait

    async def _rest(self) -> float | None:
        """Nothing was due, and no hint came since. Returns how long to wait; None if there is something."""
        outlook = await self._source.look(self._asking(), idle=not len(self._claims))
        self._goes_first = outlook.goes_first
        if outlook.alive:
            self.on_alive()
        if outlook.drain:
            self.on_drain()
        ahead = CLAIM_AHEAD if self._goes_first else 0
        if self._hinted or (outlook.due_at is not None and outlook.due_at <= self._store.now() + ahead):
            return None
        self._sated = self._rests = True
        self._leave_claim()
        return self._until(outlook.due_at)

    def _leave_claim(self) -> None:
        """While places are free and nothing waits, leave a standing claim: the next submission goes straight to the
        runner."""
        free = self._worker.concurrency - len(self._claims)
        # A standing claim starts runs on the spot; where tasks have rates, the store is asked first.
        may = self._sated and free > 0 and not self._claims.solitary and not self.stopping and not self._rates
        wanted = room(self._worker.concurrency, len(self._claims), self._claims.run_s) if may else 0
        self._store.leave_claim(StandingClaim(self._asking(), wanted, self._ttl, self._ordering, self._take_here))

    async def _claim(self, wanted: int, ahead: Duration = 0) -> int:
        sent_at = self.clock.monotonic()
        limit = min(wanted, self.breaker.most) if self.breaker is not None else wanted
        claims = await self._source.claim(self._asking(), limit, self._ttl, self._ordering, ahead=ahead)
        until = trusted_until(sent_at, self._ttl)
        if paced := await self._pace(claims, until) if self._rates else claims:
            self._take(paced, until, early=ahead > 0)
        return len(claims)

    @cached_property
    def _rates(self) -> dict[str, Pace]:
        """The rate limits of the tasks that have one."""
        return {name: notice.rate for name, notice in self._notices.items() if notice.rate is not None}

    @cached_property
    def _rate_turns(self) -> Turns:
        return Turns()

    async def _pace(self, claims: Sequence[Claim], until: float) -> Sequence[Claim]:
        """The claims that the rates of their tasks allow to start now. The others are handed back until the rate allows
        the next; a task that counts all its runs together is left alone as long."""
        started: list[Claim] = []
        late: list[AttemptContext] = []
        amendments: list[Amendment] = []
        waits: dict[str, Duration] = {}
        for claim in claims:
            rate = self._rates.get(claim.task)
            share = share_of(self._notices[claim.task].options.per, claim.args) if rate is not None else ""
            name = f"task:{claim.namespace}:{claim.task}{share}"
            if rate is not None and name not in waits:
                allowance = await self._store.spend(name, 1, rate)
                if not allowance.granted:
                    waits[name] = allowance.wait
                    if not share:
                        self._leave_alone(claim.task, allowance.wait)
            if rate is None or name not in waits:
                started.append(claim)
                continue
            now = int(self.clock.monotonic() * SECOND)
            delay = self._rate_turns.take(name, waits[name], rate, now) if share else waits[name]
            reason = f"its task starts {format_pace(rate)} at most{share and ' for ' + share[1:]}"
            late.append(AttemptContext(claim, prepare(claim.options)))
            amendments.append(Amendment(claim.run_id, claim.token, reason, claim.options, delay))
        if late:
            self.amend(late, amendments, until)
        return started

    def _leave_alone(self, task: str, wait: Duration) -> None:
        self._aside[task] = self.clock.monotonic() + wait / SECOND
        asyncio.get_running_loop().call_later(wait / SECOND, self._follow_hint)

    def _take(self, claims: Sequence[Claim], until: float, *, early: bool) -> None:
        if self.clock.monotonic() >= until:
            # The answer came too late: other workers may hold these runs by now, so none may start here.
            self._give_back([(claim.run_id, claim.token) for claim in claims])
            return
        attempts = self._prepare(claims, until)
        self._hand_over(attempts, early)
        self._claims.add(attempts, until)
        if early:
            self._early += [claim.due_at for claim in claims]

    def _take_here(self, claims: Sequence[Claim], sent_at: float) -> None:
        """A standing claim was granted, on the thread of the submission."""
        until = trusted_until(sent_at, self._ttl)
        if attempts := self._prepare(claims, until):
            self._start(attempts, until)

    def _prepare(self, claims: Sequence[Claim], until: float) -> list[AttemptContext]:
        """The attempts to start. Options that the submitter could not know are filled in. A run that its task limits is
        handed back, to be claimed within the limit."""
        attempts: list[AttemptContext] = []
        limited: list[AttemptContext] = []
        amendments: list[Amendment] = []
        for claim in claims:
            attempt = AttemptContext(claim, prepare(claim.options))
            said = attempt.options.said
            if said is not None and (notice := self._notices.get(claim.task)) is not None:
                filled = fill_in(claim, said, notice)
                if isinstance(filled, Amendment):
                    limited.append(attempt)
                    amendments.append(filled)
                    continue
                attempt.options = filled
            attempt.options = with_deadline(attempt.options, claim.priority, self._deadlines)
            attempts.append(attempt)
        if limited:
            self.amend(limited, amendments, until)
        return attempts

    def step_aside(self, task: str) -> None:
        """Leave a task to other workers for a while: their code is newer."""
        log.warning("task %s: other workers have newer code for some of its runs; leaving it to them for a while", task)
        self._aside[task] = self.clock.monotonic() + ASIDE / SECOND

    def _asking(self) -> Worker:
        """The row of this worker, with the tasks that it claims now."""
        if self._aside:
            now = self.clock.monotonic()
            self._aside = {task: until for task, until in self._aside.items() if until > now}
        if not self._aside:
            return self._worker
        tasks = tuple(task for task in self._worker.tasks if task not in self._aside)
        return msgspec.structs.replace(self._worker, tasks=tasks)

    def stop(self) -> None:
        self._store.leave_claim(StandingClaim(self._worker, 0, self._ttl, self._ordering, self._take_here))
        super().stop()

    def hint(self) -> None:
        """The store has changed: there may be work."""
        if self._in_vain < VAIN:
            self._follow_hint()
        elif not self._deferring:
            self._deferring = True
            pause_s = min(DEFERENCE_S * 2 ** min(self._in_vain - VAIN, 10), MOST_DEFERENCE_S)
            asyncio.get_running_loop().call_later(pause_s, self._follow_hint)

    def _follow_hint(self) -> None:
        self._deferring, self._hinted = False, True
        self.wake()

    def make_room(self) -> None:
        """Runs have ended here. If the last claim returned less than asked for, nothing fills their places until
        something changes or comes due. If a claim is under way, its result decides."""
        if self._turns:
            return
        if self._sated:
            self._leave_claim()
        else:
            self.wake()

    def _early_now(self) -> int:
        """How many claims are not due yet: they take no place so far."""
        if self._early:
            now = self._store.now()
            self._early = [due_at for due_at in self._early if due_at > now]
        return len(self._early)

    async def _look_ahead(self) -> float:
        """Nothing more is due: claim what comes due soon. Returns how long to wait for the rest."""
        outlook = await self._source.look(self._asking(), fresh=False)
        due_at, self._goes_first = outlook.due_at, outlook.goes_first
        if due_at is not None and due_at <= self._asked_at:
            return OVERDUE_WAIT_S
        if self._goes_first and due_at is not None and due_at <= self._store.now() + CLAIM_AHEAD:
            await self._ask_around()
            while await self._claim_early() >= EARLY_BATCH:
                pass
            due_at = await self._source.next_due(self._asking())
        return self._until(due_at)

    def _until(self, due_at: Instant | None) -> float:
        """How long to wait for what comes due: less than until then, to claim it before its instant. A worker that does
        not go first looks a little later, at a random moment, for what is left."""
        if due_at is None:
            return LONGEST_WAIT_S
        wait = due_at - self._store.now()
        if not self._goes_first:
            wait += int(self._random.random() * SPREAD)
        elif wait > CLAIM_AHEAD:
            wait -= LEAD
        return min(max(wait / SECOND, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    async def _ask_around(self) -> None:
        """A worker that has not run anything assumes the length of recent runs of the namespace. Otherwise it would
        claim most of what is due at one instant only after it."""
        if self._is_new:
            runs = await self._store.list_runs(RunFilter(self._worker.namespace, states=(SUCCEEDED,), limit=LATELY))
            lengths = [run.finished_at - run.started_at for run in runs if run.started_at and run.finished_at]
            self._claims.run_s = typical(None, sum(lengths) / SECOND, len(lengths))

    async def _claim_early(self) -> int:
        """Claim a part at a time, so that what comes due meanwhile is in the next part."""
        places, run_s, early = self._worker.concurrency, self._claims.run_s, self._early_now()
        # Some may be due by then: of those no more than usual.
        wanted = min(room(places, early, run_s, MOST_EARLY), room(places, len(self._claims) - early, run_s))
        if wanted <= 0 or self._claims.solitary:
            return 0
        return await self._claim(min(wanted, EARLY_BATCH), CLAIM_AHEAD)


class PooledClaimer(Claimer):
    """Claims runs where the places of a worker are divided into pools (`core.runs.pools`), the highest priority first.

    A pool claims only what it can start, so that no run waits behind one of another pool.
    """

    stands = False

    @cached_property
    def _pools(self) -> tuple[PriorityPool, ...]:
        return make_pools(dict(self._settings.pools))

    @cached_property
    def _pool_of(self) -> dict[int, int]:
        """The pool of each priority."""
        return {priority: index for index, pool in enumerate(self._pools) for priority in pool.priorities}

    async def _turn(self) -> float:
        self._sated = False
        hinted, self._hinted = self._hinted, False
        self._asked_at = self._store.now()
        claimed, asked = 0, []
        for index in range(len(self._pools)):
            wanted = 0 if self._claims.solitary else room_of(self._pools, self._count_held(), index)
            if wanted > 0:
                claimed += await self._claim_for(index, wanted)
                asked.append(index)
        self._in_vain = 0 if claimed else self._in_vain + hinted
        if claimed:
            return HEAD_START_S
        self._sated = len(asked) == len(self._pools)
        return await self._wait_for(asked) if asked else FULL_WAIT_S

    def _count_held(self) -> list[int]:
        held = Counter(self._pool_of[priority] for priority in self._claims.priorities())
        return [held[index] for index in range(len(self._pools))]

    def _row(self, pools: Sequence[int]) -> Worker:
        priorities = tuple(priority for index in pools for priority in self._pools[index].priorities)
        return msgspec.structs.replace(self._asking(), priorities=priorities)

    async def _claim_for(self, pool: int, wanted: int) -> int:
        sent_at = self.clock.monotonic()
        limit = min(wanted, self.breaker.most) if self.breaker is not None else wanted
        claims = await self._source.claim(self._row([pool]), limit, self._ttl, self._ordering)
        if claims:
            self._take(claims, trusted_until(sent_at, self._ttl), early=False)
        return len(claims)

    async def _wait_for(self, pools: Sequence[int]) -> float:
        """Nothing is due for these pools. Returns when something will be. The other pools are full, and the end of a
        run wakes this loop."""
        due_at = await self._source.next_due(self._row(pools))
        if due_at is None:
            return LONGEST_WAIT_S
        if due_at <= self._asked_at:
            return OVERDUE_WAIT_S
        return min(max((due_at - self._store.now()) / SECOND, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    def _leave_claim(self) -> None:
        """Leave no standing claim with the store, which does not know pools."""
