"""Claims: due runs are locked, judged in their order, and taken.

A claim skips locked rows (SKIP LOCKED), so claimers do not wait for each other. A special run needs a place at a gate,
may expire, or was lost before: such runs are judged one by one. One statement takes all others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant
from mainspring.core.model import Claim, Event, RunOptions, Worker, named_queue
from mainspring.core.runs.outcome import is_suspect
from mainspring.core.runs.priority import STEPS, Ordering, rank
from mainspring.errors import StoreError
from mainspring.stores.postgres.claims.gates import Room
from mainspring.stores.postgres.server.database import Database, Record, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "work")
_options = msgspec.json.Decoder(RunOptions)
_encode = msgspec.json.Encoder().encode
_ROUNDS = 50
_WINDOW = 500
"""After some candidates had to wait at gates, a claim reads more candidates: the batch size, and the number of
batches."""

SLOW: Duration = 5 * MILLISECOND
SLOW_EACH: Duration = 20
"""A search that takes longer than this, plus this for each run that it finds, passes over many dead index entries."""
WRITE_EACH: Duration = 20
_TELLING = 100
"""How long it takes to write a claim; and from how many claims on the duration says something about the search."""
FULL_LOOK_EVERY: Duration = SECOND
FULL_LOOK_SHARE = 5
"""Full searches take at most a sixth of the time: the interval between them is this multiple of their duration."""
LATE: Duration = 2 * SECOND
"""A run that comes due is found within this time, except in rare cases, which a full search finds."""
_START = (-1, -1)

Mark = tuple[Instant, int]
"""Due time and seq of the last run that was found in a place."""


class IndexRange(NamedTuple):
    """Where runs wait: one range of the index of claimable runs."""

    namespace: str
    queue: str
    region: str
    priority: int
    tasks: tuple[str, ...]


class Look(NamedTuple):
    """The result of a search for due runs."""

    places: Sequence[IndexRange]
    rows: Sequence[Record]
    """The best runs that were found, best first, locked."""
    full: bool
    """Whether the search began at the start of the index."""
    exhausted: bool
    """Whether the search reached the end of the index."""
    began: Instant
    took: Duration


class Marks:
    """Where to begin the search in each place, while full searches are slow.

    A long transaction elsewhere keeps every deleted run in the index, and each search would pass over all of them. So
    for a second after a slow search, searches begin where the last one ended. A run that appears before that point (it
    was freed, or its claimer gave up) is found by the next full search: a second later or, where a full search takes a
    fifth of a second or more, five times its duration later.
    """

    def __init__(self) -> None:
        self._marks: dict[IndexRange, Mark] = {}
        self._from: Instant = 0
        self._until: Instant = 0

    def of(self, places: Sequence[IndexRange], now: Instant) -> list[Mark] | None:
        """Where to begin now; None for a full search."""
        if not self._from <= now < self._until:
            return None
        return [self._marks.get(place, _START) for place in places]

    def note(self, look: Look, handled: Container[str]) -> None:
        """A search has ended, and these of its runs have been claimed."""
        if look.exhausted:
            nothing_before = (look.began - LATE, -1)
            for place in look.places:
                self._marks[place] = max(self._marks.get(place, _START), nothing_before)
        stopped: set[int] = set()
        for row in look.rows:
            number = row["number"] - 1
            if row["id"] not in handled:
                stopped.add(number)
            elif number not in stopped:
                self._marks[look.places[number]] = (row["due_at"], row["seq"])
        if look.full and look.took > SLOW + SLOW_EACH * len(look.rows):
            self._from = look.began + look.took
            self._until = self._from + max(FULL_LOOK_EVERY, look.took * FULL_LOOK_SHARE)


class Judgement(NamedTuple):
    """The candidates that may be claimed now."""

    chosen: list[Record]
    alone: bool
    """Whether the claim ends here, because a run that was lost before is given alone."""
    blocked: set[str]
    """The runs that have to wait at a gate."""


class Claims:
    """What the claims of one process share."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._careful = False
        """Whether the last search met a special run: then the next one may, too."""
        self._seen: tuple[Worker, Instant | None] | None = None
        """What the last claim found beyond due runs, if it returned fewer than asked for, and for which worker."""
        self.marks = Marks()

    def seen(self, worker: Worker) -> tuple[bool, Instant | None]:
        """Whether the last claim was this worker's and returned fewer than asked for; and when the next run is due by
        it."""
        seen, self._seen = self._seen, None
        return (True, seen[1]) if seen is not None and seen[0] == worker else (False, None)

    async def take(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, ahead: Duration = 0
    ) -> list[Claim]:
        """Claim plain runs in one round trip; one by one if a special run is among them."""
        self._seen = None
        if not self._careful:
            claims = await self._take_plain(worker, limit, ttl, ordering, ahead)
            if claims is not None:
                return claims
        return await self._take_carefully(worker, limit, ttl, ordering, ahead)

    async def _take_plain(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, ahead: Duration
    ) -> list[Claim] | None:
        """None if there is a special run; then nothing was claimed."""
        places, now = _places(worker), self._db.clock.now()
        marks = self.marks.of(places, now)
        question = _question(places, marks, worker, now, limit, ordering, ahead)
        shared = {"kind": "run.running", "namespace": worker.namespace, "worker": worker.id}
        event = _encode(shared).decode().removesuffix("}") + ',"at":'
        rows = await self._db.alone(
            _Q["claim_plain"], self._db.clock.given(), *question, worker.id, ttl, STEPS[ordering], event
        )
        if rows[-1]["special"]:
            return None
        next_due = rows[0]["next_due"]
        if rows[0]["id"] is None:
            rows = []
        if not ahead and len(rows) < limit:
            self._seen = (worker, next_due)
        if not ahead:
            took = _search_time(self._db.clock.now() - now, len(rows))
            look = Look(places, rows, marks is None, len(rows) < limit, now, took)
            self.marks.note(look, {row["id"] for row in rows})
        return [Claim(*row[:14]) for row in rows]

    async def _take_carefully(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, ahead: Duration
    ) -> list[Claim]:
        """Claims in rounds, because some candidates may have to wait at a gate, while others behind them need not. Each
        round is a transaction, so that gates are locked no longer than it takes to enter them."""
        claims: list[Claim] = []
        for number in range(_ROUNDS):
            wanted = limit - len(claims)
            window = wanted if number == 0 else max(wanted, _WINDOW)
            try:
                taken, done = await self._round(worker, wanted, window, ttl, ordering, ahead, first=not claims)
            except StoreError:
                if claims:
                    break  # Claims of earlier rounds must be returned although this round failed.
                raise
            claims += taken
            if done or len(claims) >= limit:
                break
        return claims

    async def next_due(self, worker: Worker) -> Instant | None:
        """When the earliest pending run that this worker may take is due."""
        places = _places(worker)
        marks = self.marks.of(places, self._db.clock.now())
        due_at: Instant | None = await self._db.read(
            lambda tx: tx.fetchval(_Q["earliest"], *_columns(places, marks), worker.namespace, tx.now, worker.tasks)
        )
        return due_at

    async def _round(
        self,
        worker: Worker,
        wanted: int,
        window: int,
        ttl: Duration,
        ordering: Ordering,
        ahead: Duration,
        *,
        first: bool,
    ) -> tuple[list[Claim], bool]:
        """The claims, and whether another round would be useless."""

        async def work(tx: Transaction) -> tuple[Look, list[Claim], Judgement]:
            look = await self._look(tx, worker, window, ordering, ahead)
            judgement = await judge(tx, worker.namespace, look.rows, wanted, first=first)
            claims = await take(tx, worker, judgement.chosen, ttl) if judgement.chosen else []
            return look, claims, judgement

        look, claims, judgement = await self._db.write(work)
        self._careful = any(row["special"] for row in look.rows)
        if not ahead:  # Runs that are not due yet say nothing about due ones.
            self.marks.note(look, {claim.run_id for claim in claims} | judgement.blocked)
        return claims, judgement.alone or not judgement.blocked or len(look.rows) < window

    async def _look(self, tx: Transaction, worker: Worker, limit: int, ordering: Ordering, ahead: Duration = 0) -> Look:
        places = _places(worker)
        began = self._db.clock.now()
        marks = self.marks.of(places, began)
        rows = await tx.fetch(
            _Q["candidates"], tx.given, *_question(places, marks, worker, tx.now, limit, ordering, ahead)
        )
        took = self._db.clock.now() - began
        exhausted = len(rows) < limit
        if _lanes(places, ordering) > 1:
            rows = sorted(rows, key=lambda row: (rank(row["priority"], row["due_at"], ordering), row["seq"]))[:limit]
        return Look(places, rows, marks is None, exhausted, began, took)


def look_columns(worker: Worker) -> tuple[list[object], ...]:
    """Queues, regions and priorities in which to search for runs that will be due."""
    return _columns(_places(worker), None)[:3]


def _places(worker: Worker) -> list[IndexRange]:
    return [
        IndexRange(worker.namespace, queue, region, priority, worker.tasks)
        for priority, queue, region in product(worker.priorities, worker.queues, worker.regions)
    ]


def _search_time(took: Duration, found: int) -> Duration:
    """How long the search of a claim took that also wrote what it found. With few runs, the sync may have taken longer
    than the rest, so the duration says nothing; the empty claim that follows shows it."""
    return 0 if 0 < found < _TELLING else max(took - WRITE_EACH * found, 0)


def _question(
    places: Sequence[IndexRange],
    marks: Sequence[Mark] | None,
    worker: Worker,
    now: Instant,
    limit: int,
    ordering: Ordering,
    ahead: Duration,
) -> tuple[object, ...]:
    """What `candidates` is asked for, but for the server's clock."""
    most = limit * _lanes(places, ordering)
    return (*_columns(places, marks), worker.namespace, now, worker.tasks, limit, most, now + ahead)


def _lanes(places: Sequence[IndexRange], ordering: Ordering) -> int:
    """Within a priority, all queues and regions are searched before the best runs are known. The next priority is
    searched only if there are too few."""
    return len(places) if ordering != "strict" else len(places) // len({place.priority for place in places})


def _columns(places: Sequence[IndexRange], marks: Sequence[Mark] | None) -> tuple[list[object], ...]:
    marks = marks or [_START] * len(places)
    return (
        [place.queue for place in places],
        [place.region for place in places],
        [place.priority for place in places],
        [due_at for due_at, _ in marks],
        [seq for _, seq in marks],
    )


async def judge(tx: Transaction, namespace: str, found: Sequence[Record], wanted: int, *, first: bool) -> Judgement:
    """The found runs that may be claimed now, in their order."""
    room = await Room.at(tx, namespace, [name for row in found if row["gates"] for name in row["gates"]])
    chosen: list[Record] = []
    alone = False
    for row in found:
        if len(chosen) >= wanted:
            break
        losses, gates = row["losses"], row["gates"]
        if not row["special"]:
            chosen.append(row)
            continue
        alone = losses > 0 and is_suspect(losses, _options.decode(row["options"]))
        if alone and (chosen or not first):
            break
        if gates is None or room.enter(row["id"], gates):
            chosen.append(row)
            if alone:
                break
        alone = False
    return Judgement(chosen, alone, await room.apply(tx))


async def take(tx: Transaction, worker: Worker, chosen: Sequence[Record], ttl: Duration) -> list[Claim]:
    """Claim runs that are locked."""
    until = chosen[0]["store_now"] + ttl
    await tx.run(_Q["take"], [row["id"] for row in chosen], worker.id, until, tx.now)
    claims = [Claim(*(*row[:13], until)) for row in chosen]
    tx.events += [
        Event("run.running", max(tx.now, claim.due_at), claim.namespace, claim.run_id, row["job_id"], claim.job,
              claim.task, worker.id, claim.fire_at, claim.attempt + 1, priority=claim.priority,
              late=max(tx.now - claim.due_at, 0), queue=named_queue(row["queue"]))
        for claim, row in zip(claims, chosen, strict=True)
    ]  # fmt: skip
    return claims
