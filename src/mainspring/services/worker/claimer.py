"""Takes work: claims as many due runs as the runner can start soon, and hands them over in one go. When there are no
more, it claims what is due in a moment, which the runner starts at its instant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant
from mainspring.core.load.leadership import trusted_until
from mainspring.core.model import Amendment, Claim, Worker
from mainspring.core.runs.fitting import ASIDE, fill_in
from mainspring.core.runs.pacing import CLAIM_AHEAD, MOST_EARLY, room, typical
from mainspring.core.states import SUCCEEDED
from mainspring.executor import AttemptContext
from mainspring.services.loop import Loop, log
from mainspring.services.worker.claims import Claims
from mainspring.services.worker.runner import prepare, with_deadline
from mainspring.services.worker.worker_breaker import WorkerBreaker
from mainspring.settings import Settings
from mainspring.store import RunFilter, Standing, Store

LONGEST_WAIT_S = 1.0
"""New work is told by a hint that may be lost, so look for it at least this often."""
SHORTEST_WAIT_S = 0.001
OVERDUE_WAIT_S = 0.02
"""What was due but was not given is somebody else's at this moment, or must run alone: look again, but not at once."""
FULL_WAIT_S = 1.0
HEAD_START_S = 0.001
"""What was just claimed starts first, on its own loop, before this one looks further: they share one interpreter."""
VAIN = 4
DEFERENCE_S, MOST_DEFERENCE_S = 0.002, 0.016
"""Who came in vain so often, though there was a hint, is not the quickest of those who hear it: it lets them go first
for a moment, twice as long with each time, instead of taking the processor and the store from them."""
LEAD = 400 * MILLISECOND
"""How long before it is due to claim what will be: less than it may be claimed ahead, so that more than one is."""
SPREAD = 50 * MILLISECOND
"""Over so long workers that do not go first spread their claims of what comes due."""
LATELY = 20
"""So many of the last runs say how long runs are."""
EARLY_BATCH = 300
"""So many are claimed ahead in one go, so that workers that wait for the same instant share them."""


class Claimer(Loop):
    """`hand_over` passes attempts to the task loop and says whether they may be early. `start`, callable from any
    thread, starts the attempts of a standing claim. `give_back` passes claims that arrived too late to the reporter.
    `on_full` is called while all places are taken."""

    name = "claimer"
    stands = True
    """Whether it leaves claims with the store."""

    def __init__(
        self,
        store: Store,
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
        self._store = store
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
        """Tasks that are left to others, and until when."""
        self.amend: Callable[[list[AttemptContext], list[Amendment], float], None] = lambda *_: None
        """Takes claims that are to be given back with something changed; from any thread."""
        self._rests = False
        """Whether there was nothing at the last look, and nothing was told since."""
        self._was_short = False
        """Whether the last claim came back short, and it was not looked yet at what will be due."""
        self._turns = False
        self._goes_first = True
        self.on_alive: Callable[[], None] = lambda: None
        """Called when a look counted as a heartbeat."""
        self.on_drain: Callable[[], None] = lambda: None
        """Called when a look says that the worker is asked to drain."""
        self._is_new = True
        """Whether it has never known how long runs are."""
        self.breaker: WorkerBreaker | None = None

    async def _turn_safely(self) -> float:
        wait_s = 0.0 if self.breaker is None else self.breaker.wait_s(len(self._claims))
        if wait_s == 0:
            return await super()._turn_safely()
        self._sated = False
        self._stand()  # Nothing is to be handed over meanwhile.
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
            self._stand()
            return FULL_WAIT_S
        if was_short:
            return await self._settle()
        if rests and (wait := await self._rest()) is not None:
            return wait
        self._store.stand(None)
        hinted, self._hinted = self._hinted, False
        self._asked_at = self._store.now()
        claimed = await self._claim(wanted)
        self._in_vain = 0 if claimed else self._in_vain + hinted
        self._sated = claimed < wanted
        if not self._sated:
            self._stand()
            return 0.0
        if claimed:
            self._was_short = True
            return HEAD_START_S
        return await self._settle()

    async def _settle(self) -> float:
        """The last claim came back short: see what will be due, and stand by for what comes."""
        wait = await self._look_ahead()
        self._rests = True
        self._stand()
        return wait

    async def _rest(self) -> float | None:
        """There was nothing, and nobody has told of anything since. How long to wait; None if there is something."""
        outlook = await self._store.look(self._asking(), idle=not len(self._claims))
        self._goes_first = outlook.goes_first
        if outlook.alive:
            self.on_alive()
        if outlook.drain:
            self.on_drain()
        ahead = CLAIM_AHEAD if self._goes_first else 0
        if self._hinted or (outlook.due_at is not None and outlook.due_at <= self._store.now() + ahead):
            return None
        self._sated = self._rests = True
        self._stand()
        return self._until(outlook.due_at)

    def _stand(self) -> None:
        """While there are places and nothing waits: what comes next goes straight to the runner."""
        free = self._worker.concurrency - len(self._claims)
        may = self._sated and free > 0 and not self._claims.solitary and not self.stopping
        wanted = room(self._worker.concurrency, len(self._claims), self._claims.run_s) if may else 0
        self._store.stand(Standing(self._asking(), wanted, self._ttl, self._ordering, self._take_here))

    async def _claim(self, wanted: int, ahead: Duration = 0) -> int:
        sent_at = self.clock.monotonic()
        limit = min(wanted, self.breaker.most) if self.breaker is not None else wanted
        claims = await self._store.claim(self._asking(), limit, self._ttl, self._ordering, ahead=ahead)
        if claims:
            self._take(claims, trusted_until(sent_at, self._ttl), early=ahead > 0)
        return len(claims)

    def _take(self, claims: Sequence[Claim], until: float, *, early: bool) -> None:
        if self.clock.monotonic() >= until:
            # The answer took so long that somebody else may have them by now: none of them may begin here.
            self._give_back([(claim.run_id, claim.token) for claim in claims])
            return
        attempts = self._prepare(claims, until)
        self._hand_over(attempts, early)
        self._claims.add(attempts, until)
        if early:
            self._early += [claim.due_at for claim in claims]

    def _take_here(self, claims: Sequence[Claim], sent_at: float) -> None:
        """A standing claim was made, on whatever thread somebody submitted."""
        until = trusted_until(sent_at, self._ttl)
        if attempts := self._prepare(claims, until):
            self._start(attempts, until)

    def _prepare(self, claims: Sequence[Claim], until: float) -> list[AttemptContext]:
        """Attempts to start. What a submitter could not know of the task is filled in; a run that its task limits goes
        back, to be claimed within the limit."""
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
        """Leave a task to others for a while: their code is newer."""
        log.warning("task %s: others have newer code for some of its runs; leaving it to them for a while", task)
        self._aside[task] = self.clock.monotonic() + ASIDE / SECOND

    def _asking(self) -> Worker:
        """This worker, for the tasks that it takes now."""
        if self._aside:
            now = self.clock.monotonic()
            self._aside = {task: until for task, until in self._aside.items() if until > now}
        if not self._aside:
            return self._worker
        tasks = tuple(task for task in self._worker.tasks if task not in self._aside)
        return msgspec.structs.replace(self._worker, tasks=tasks)

    def stop(self) -> None:
        self._store.stand(Standing(self._worker, 0, self._ttl, self._ordering, self._take_here))
        super().stop()

    def hint(self) -> None:
        """Somebody changed something, and there may be work."""
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
        """Runs have ended here. After a claim that came back short there is nothing to fill their places with, until
        something changes or comes due; while a claim is under way, that will show."""
        if self._turns:
            return
        if self._sated:
            self._stand()
        else:
            self.wake()

    def _early_now(self) -> int:
        """How many of the claims are not due yet: they take no place so far."""
        if self._early:
            now = self._store.now()
            self._early = [due_at for due_at in self._early if due_at > now]
        return len(self._early)

    async def _look_ahead(self) -> float:
        """Nothing more is due: claim what soon will be. How long to wait for the rest."""
        outlook = await self._store.look(self._asking(), fresh=False)
        due_at, self._goes_first = outlook.due_at, outlook.goes_first
        if due_at is not None and due_at <= self._asked_at:
            return OVERDUE_WAIT_S
        if self._goes_first and due_at is not None and due_at <= self._store.now() + CLAIM_AHEAD:
            await self._ask_around()
            while await self._claim_early() >= EARLY_BATCH:
                pass
            due_at = await self._store.next_due(self._asking())
        return self._until(due_at)

    def _until(self, due_at: Instant | None) -> float:
        """How long to wait for what will be due: less than until then, to claim it before its instant. A worker that
        does not go first comes a little later, and not together with all others: for what is left then."""
        if due_at is None:
            return LONGEST_WAIT_S
        wait = due_at - self._store.now()
        if not self._goes_first:
            wait += int(self._random.random() * SPREAD)
        elif wait > CLAIM_AHEAD:
            wait -= LEAD
        return min(max(wait / SECOND, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    async def _ask_around(self) -> None:
        """Who has not run anything yet takes it that runs are as long as they were lately, here or elsewhere: otherwise
        it would leave most of what is due at once to be claimed after its instant."""
        if self._is_new:
            runs = await self._store.list_runs(RunFilter(self._worker.namespace, states=(SUCCEEDED,), limit=LATELY))
            lengths = [run.finished_at - run.started_at for run in runs if run.started_at and run.finished_at]
            self._claims.run_s = typical(None, sum(lengths) / SECOND, len(lengths))

    async def _claim_early(self) -> int:
        """A part at a time, so that whatever comes due meanwhile is among the next."""
        places, run_s, early = self._worker.concurrency, self._claims.run_s, self._early_now()
        # Some of it may be due by then: no more of that than otherwise.
        wanted = min(room(places, early, run_s, MOST_EARLY), room(places, len(self._claims) - early, run_s))
        if wanted <= 0 or self._claims.solitary:
            return 0
        return await self._claim(min(wanted, EARLY_BATCH), CLAIM_AHEAD)
