"""Bugs that are planted into real processes: those of the simulation where the store is SQLite, and their like for
PostgreSQL; each with the fault that brings it to light within seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import count
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from mainspring.core.model import NewRun, Report
from mainspring.testing.simulation.bugs import mistakes
from mainspring.testing.simulation.bugs.planted import InCode, InQuery, Mistake, planted

_STORE: Final = "mainspring.stores.postgres"


def in_statement(topic: str, query: str, right: str, wrong: str) -> InQuery:
    """A wrong word in a query of PostgreSQL's."""
    return InQuery(topic, query, right, wrong, "postgres")


class Bug(NamedTuple):
    """Where it is, which invariant it breaks, and the faults that show it."""

    mistakes: Sequence[Mistake]
    breaks: int
    faults: tuple[str, ...] = ()
    nodes: int = 2
    """How many it takes."""
    also: tuple[int, ...] = ()
    """Invariants by which it may come to light instead."""


def _accept_any_token(right: Callable[..., Any]) -> Callable[..., Any]:
    """A report counts for the current holder of the run."""
    reports_of = import_module(f"{_STORE}.ends.reports")

    async def report(tx: Any, reports: Sequence[Report]) -> Any:
        claimed = await reports_of.load_claimed(tx, [each.run_id for each in reports])
        tokens = {run_id: run.token for run_id, run in claimed.items()}
        forged = [msgspec.structs.replace(each, token=tokens.get(each.run_id, each.token)) for each in reports]
        return await right(tx, forged)

    return report


def _lose_some(right: Callable[..., Any]) -> Callable[..., Any]:
    """The last run of every third submission is not written, and said to be."""
    numbers = count(1)

    async def accept(db: Any, runs: Sequence[NewRun]) -> list[str]:
        kept = runs[:-1] if next(numbers) % 3 == 0 else runs
        answers: list[str] = await right(db, kept) if kept else []
        return [*answers, *(run.id for run in runs[len(kept) :])]

    return accept


BUGS: Final = MappingProxyType(
    {
        "the term is not checked": Bug(
            [InCode("mainspring.stores.rows.plans:check_term", mistakes.nothing)], 17, ("stop leader",)
        ),
        "a stale report is accepted": Bug(
            [
                InCode(f"{_STORE}.ends.reports:_report", _accept_any_token),
                in_statement("endings", "end_plain", "token = ($10::jsonb -> id)::bigint", "$10::jsonb IS NOT NULL"),
            ],
            6,
            ("stop worker",),
        ),
        "commits are not synced": Bug(
            [InCode(f"{_STORE}.server.connection:SETTINGS", lambda right: (*right, "synchronous_commit = off"))],
            3,
            ("kill server",),
            also=(4, 6, 8),
        ),
        "a submission is lost": Bug([InCode(f"{_STORE}.submissions.group_commit:accept", _lose_some)], 3, nodes=1),
        "a claim is not atomic": Bug(
            [
                in_statement("work", "candidates", " FOR UPDATE SKIP LOCKED", ""),
                in_statement("work", "claim_plain", " FOR UPDATE SKIP LOCKED", ""),
                # Taken by its place, a run is given once also without the lock: by its id, again to a later worker.
                in_statement(
                    "work",
                    "claim_plain",
                    "WHERE ctid = ANY (ARRAY(\n    SELECT spot",
                    "WHERE id = ANY (ARRAY(\n    SELECT id",
                ),
            ],
            4,
        ),
        "claims are taken away early": Bug(
            [
                in_statement("maintenance", query, "claimed_until <", "claimed_until - 60000000 <")
                for query in ("anything", "expired", "lock_expired")
            ],
            5,
        ),
        "lost work is not recovered": Bug(
            [in_statement("maintenance", "expired", "state = 'running'", "false")], 19, ("kill worker",)
        ),
        "retries have no end": Bug(
            [InCode("mainspring.core.runs.retry:_refusal", lambda _: lambda *_: "")], 9, nodes=1
        ),
        "an instant is passed over": Bug(
            [InCode("mainspring.services.scheduler.planner:plan", mistakes.pass_over_some)], 1, nodes=1
        ),
    }
)
"""By name, for PostgreSQL."""


@contextmanager
def planted_in(store: str, name: str | None) -> Iterator[None]:
    """While this lasts, the program on that store has that bug."""
    if name is None or not store.startswith("postgres"):
        with planted(name):
            yield
        return
    with ExitStack() as stack:
        for mistake in BUGS[name].mistakes:
            stack.enter_context(mistake.in_place())
        yield
