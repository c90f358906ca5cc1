"""Takes work: claims as many due runs as the crew can start soon, and hands them over in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.leadership import trusted_until
from mainspring.core.model import Claim, Worker
from mainspring.core.pacing import room
from mainspring.executor import AttemptContext
from mainspring.services.crew import prepare
from mainspring.services.held import Held
from mainspring.services.loop import Loop
from mainspring.settings import Settings
from mainspring.store import Store

LONGEST_WAIT_S = 1.0
"""New work is told by a hint that may be lost, so look for it at least this often."""
SHORTEST_WAIT_S = 0.001
"""What is due but was not given (it must run alone, say) must not make the loop spin."""
FULL_WAIT_S = 1.0


class Claimer(Loop):
    """`hand_over` passes attempts to the crew's loop, `give_back` claims that came too late to the reporter; `on_full`
    is called while all places are taken."""

    name = "claimer"

    def __init__(
        self,
        store: Store,
        worker: Worker,
        held: Held,
        hand_over: Callable[[list[AttemptContext]], None],
        give_back: Callable[[list[tuple[str, int]]], None],
        on_full: Callable[[], None],
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._worker = worker
        self._held = held
        self._hand_over = hand_over
        self._give_back = give_back
        self._on_full = on_full
        self._ttl = settings.claim_ttl
        self._ordering = settings.ordering
        self._sated = False

    async def turn(self) -> float:
        wanted = room(self._worker.concurrency, len(self._held), self._held.run_s)
        self._sated = False
        if len(self._held) >= self._worker.concurrency:
            self._on_full()
        if wanted <= 0 or self._held.solitary:
            return FULL_WAIT_S
        sent_at = self.clock.monotonic()
        claims = await self._store.claim(self._worker, wanted, self._ttl, self._ordering)
        if claims:
            self._take(claims, trusted_until(sent_at, self._ttl))
        if len(claims) >= wanted:
            return 0.0
        self._sated = True
        return await self._until_due()

    def _take(self, claims: Sequence[Claim], until: float) -> None:
        if self.clock.monotonic() >= until:
            # The answer took so long that somebody else may have them by now: none of them may begin here.
            self._give_back([(claim.run_id, claim.token) for claim in claims])
            return
        attempts = [AttemptContext(claim, prepare(claim.options)) for claim in claims]
        self._hand_over(attempts)
        self._held.add(attempts, until)

    def make_room(self) -> None:
        """Runs have ended here. After a claim that came back short there is nothing to fill their places with, until
        something changes or comes due."""
        if not self._sated:
            self.wake()

    async def _until_due(self) -> float:
        due_at = await self._store.next_due(self._worker)
        if due_at is None:
            return LONGEST_WAIT_S
        return min(max((due_at - self._store.now()) / SECOND, SHORTEST_WAIT_S), LONGEST_WAIT_S)
