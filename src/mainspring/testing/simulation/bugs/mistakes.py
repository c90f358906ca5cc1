"""What planted bugs do instead of the right thing. Each takes the right function and gives a wrong one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from itertools import count
from typing import Any

import msgspec

from mainspring.broker import Notice
from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.core.model import Claim, NewRun, Report, Worker
from mainspring.core.planning.plans import Plan
from mainspring.core.runs.priority import Ordering
from mainspring.core.states import PENDING, SUCCEEDED, State
from mainspring.errors import BrokerUnavailable
from mainspring.executor import AttemptContext, StopKind
from mainspring.store import Renewal

Right = Callable[..., Any]


def nothing(_right: Right) -> Right:
    """It is not done at all."""
    return lambda *_args, **_options: None


def none_at_all(_right: Right) -> Right:
    """What it returns is passed over."""
    return lambda *_args, **_options: []


def in_one_group(right: Right) -> Right:
    """All tenants wait in one line, behind the one that has used up its budget."""
    return lambda queue, _group, *rest: right(queue, "everybody", *rest)


def in_a_hurry(right: Right) -> Right:
    """No mistake: some of the runs have a total timeout."""
    return lambda client, *args, **options: right(client, *args, **{**options, "hurried": True})


def count_firings(_right: Right) -> Right:
    """A firing counts as one run, however many it has."""
    return lambda made: sum(bool(firing.runs) for firing in made.firings)


def cut_by_firings(_right: Right) -> Right:
    """As much of a plan is written as there is budget for its firings, however many runs they have."""

    def cut(made: Plan, firings: int) -> Plan | None:
        rest = [firing for firing in made.firings if firing.runs][firings:]
        if not rest:
            return made
        kept = tuple(firing for firing in made.firings if firing.fire_at < rest[0].fire_at)
        return msgspec.structs.replace(made, firings=kept, next_fire_at=rest[0].fire_at) if kept else None

    return cut


def fail_unfit(_right: Right) -> Right:
    """A run whose arguments the code here does not take has failed for good."""
    fitting = import_module("mainspring.core.runs.fitting")
    return lambda *_args, **_options: fitting.Unfit(None, step_aside=False)


def claim_in_two_steps(_right: Right) -> Right:
    """Look in one transaction, take in another."""
    work = import_module("mainspring.stores.sqlite.claims.work")

    async def claim(
        store: Any, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        found = await store._db.read(lambda tx: work._candidates(tx, worker, limit, ordering, ahead))
        await asyncio.sleep(0.005)
        chosen = [seq for _, seq, _ in found]

        def take(tx: Any) -> list[Claim]:
            there = [seq for seq in chosen if tx.execute("SELECT 1 FROM runs WHERE seq = ?", (seq,)).fetchone()]
            claims: list[Claim] = work.take(tx, worker, there, tx.now + ttl)
            return claims

        claims: list[Claim] = await store._db.write(take)
        return claims

    return claim


def worst_first(right: Right) -> Right:
    """The least urgent runs are served first."""

    def candidates(tx: Any, worker: Worker, *args: Any) -> Any:
        return right(tx, msgspec.structs.replace(worker, priorities=worker.priorities[::-1]), *args)

    return candidates


def accept_any_token(right: Right) -> Right:
    """A report counts for the current holder of the run."""
    reports_of = import_module("mainspring.stores.sqlite.ends.reports")

    def report(tx: Any, reports: Sequence[Report]) -> Any:
        claimed = reports_of.load_claimed(tx, [each.run_id for each in reports])
        tokens = {run_id: run.token for run_id, run in claimed.items()}
        return right(tx, [msgspec.structs.replace(each, token=tokens.get(each.run_id, each.token)) for each in reports])

    return report


def renew_for_anyone(right: Right) -> Right:
    """Every claim that is asked for is said to stand."""

    async def renew(store: Any, worker: Worker, claims: Collection[tuple[str, int]], ttl: Duration) -> Renewal:
        renewal: Renewal = await right(store, worker, claims, ttl)
        return Renewal(frozenset(claims), renewal.cancels, renewal.drain)

    return renew


def take_late(right: Right) -> Right:
    """However long the answer took, what was claimed is begun."""

    def take(claimer: Any, claims: Sequence[Claim], _until: float, *, early: bool) -> None:
        right(claimer, claims, math.inf, early=early)

    return take


def pass_over_some(right: Right) -> Right:
    """Now and then an instant is moved past and not fired."""

    def plan(job: Any, now: Instant, calendars: Any, *bounds: Any) -> Plan:
        made: Plan = right(job, now, calendars, *bounds)
        kept = tuple(firing for firing in made.firings if firing.fire_at // SECOND % 4)
        return msgspec.structs.replace(made, firings=kept) if made.kind == "scheduled" else made

    return plan


def one_run_more(right: Right) -> Right:
    """The first run of a firing is made twice, under two ids."""

    def insert_runs(store: Any, tx: Any, runs: Sequence[NewRun]) -> Any:
        return right(store, tx, [*runs, msgspec.structs.replace(runs[0], id=runs[0].id[::-1])])

    return insert_runs


def lose_one(right: Right) -> Right:
    """Of many runs submitted together the last is not written."""

    def insert(tx: Any, runs: Sequence[NewRun]) -> None:
        right(tx, runs[:-1] if len(runs) > 3 else runs)

    return insert


def ignore_deadline(right: Right) -> Right:
    """Work goes on past its deadline."""

    def stop(runner: Any, attempt: AttemptContext, kind: StopKind, reason: str) -> None:
        if kind != "timed_out":
            right(runner, attempt, kind, reason)

    return stop


def by_elapsed_time(_right: Right) -> Right:
    """Every expression follows elapsed time, whatever its shape."""
    return lambda cron, start, zone: cron._next_by_elapsed_time(start, zone)


def run_again(right: Right) -> Right:
    """Every fifth success is put back into the queue."""
    numbers = count(1)

    def state_of(report: Report) -> State:
        return PENDING if report.state == SUCCEEDED and next(numbers) % 5 == 0 else report.state

    def report(tx: Any, reports: Sequence[Report]) -> Any:
        return right(tx, [msgspec.structs.replace(each, state=state_of(each)) for each in reports])

    return report


def claim_whatever_its_token(right: Right) -> Right:
    """A message that was doubled counts as the first one did."""

    async def claim_these(store: Any, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        def tokens(tx: Any) -> list[tuple[str, int]]:
            query = "SELECT token FROM runs WHERE id = ?"
            rows = [(run_id, tx.execute(query, (run_id,)).fetchone()) for run_id, _ in runs]
            return [(run_id, row[0]) for run_id, row in rows if row is not None]

        claims: list[Claim] = await right(store, worker, await store._db.read(tokens), ttl)
        return claims

    return claim_these


def tell_once(_right: Right) -> Right:
    """What was delivered once is not delivered again."""

    def is_news(dispatcher: Any, notice: Notice, _now: float) -> bool:
        token: int = dispatcher._published.get(notice.run_id, (-1, 0.0))[0]
        return token != notice.token

    return is_news


def trust_the_broker(_right: Right) -> Right:
    """No loop looks for what was not delivered."""

    async def claim(
        source: Any, worker: Worker, limit: int, ttl: Duration, _ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        try:
            claims: list[Claim] = [] if ahead else (await source._receive(worker, limit, ttl))[0]
        except BrokerUnavailable:
            return []
        return claims

    return claim


def count_again(right: Any) -> Any:
    """Tallies are added wherever others have counted to: after a lost reply the same events are counted twice."""

    async def wrong(self: Any, expected: int | None, position: int, tallies: Any, failures: Any) -> Any:
        return await right(self, await self.tallied(), position, tallies, failures)

    return wrong
