"""Bugs that are planted on purpose, to see whether they are found: a test of the tests.

Each is a small, believable mistake in the real program, in place only while a simulation runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mainspring.testing.simulation import mistakes

_STORE: Final = "mainspring.stores.sqlite"
_SERVICES: Final = "mainspring.services"


class InQuery(NamedTuple):
    """A wrong word in a query."""

    topic: str
    query: str
    right: str
    wrong: str

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the query is wrong."""
        # By name: what the program's own layers forbid, its tests must be able to reach.
        queries: dict[str, str] = import_module("mainspring.stores.sql").load_queries("sqlite", self.topic)
        text = queries[self.query]
        if self.right not in text:
            raise LookupError(f"{self.topic}.{self.query} does not say {self.right!r}: plant this bug elsewhere")
        queries[self.query] = text.replace(self.right, self.wrong)
        try:
            yield
        finally:
            queries[self.query] = text


class InCode(NamedTuple):
    """A wrong function: `make` gets the right one."""

    place: str
    """`module:name` or `module:Class.name`."""
    make: Callable[[Any], Any]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the function is wrong."""
        module, _, path = self.place.partition(":")
        holder: Any = import_module(module)
        *classes, name = path.split(".")
        for part in classes:
            holder = getattr(holder, part)
        right = getattr(holder, name)
        setattr(holder, name, self.make(right))
        try:
            yield
        finally:
            setattr(holder, name, right)


Mistake = InQuery | InCode


class Planted(NamedTuple):
    """A bug, where it is, and in which weather it shows."""

    mistakes: Sequence[Mistake]
    profile: str = "chaos"


PLANTED: Final = MappingProxyType(
    {
        "the term is not checked": Planted([InCode(f"{_STORE}.plans:_check_term", mistakes.nothing)], "time"),
        "terms do not grow": Planted([InQuery("leases", "begin_term", "number = number + 1", "number = number")]),
        "a claim keeps the token": Planted([InQuery("work", "take", "token = token + 1", "token = max(token, 1)")]),
        "a claim is not atomic": Planted(
            [
                InQuery("work", "take", " AND state = 'pending'", ""),
                InCode(f"{_STORE}.work:Work.claim", mistakes.claim_in_two_steps),
            ],
            "calm",
        ),
        "a stale report is accepted": Planted([InCode(f"{_STORE}.reports:_report", mistakes.accept_any_token)]),
        "lost claims are renewed": Planted(
            [
                InCode(f"{_STORE}.work:Work.renew", mistakes.renew_for_anyone),
                InCode(f"{_SERVICES}.heart:Heart._fence", mistakes.nothing),
            ],
            "time",
        ),
        "losses are not counted": Planted(
            [InQuery("endings", "back_to_pending", "losses = losses + ?4", "losses = losses")], "crash"
        ),
        "a retry does not wait": Planted(
            [InQuery("endings", "back_to_pending", "due_at = ?2", "due_at = min(due_at, ?2)")], "calm"
        ),
        "retries have no end": Planted([InCode("mainspring.core.retry:_refusal", lambda _: lambda *_: "")], "calm"),
        "lost work is not recovered": Planted(
            [InQuery("care", "expired", "claimed_until < ?", "claimed_until < ? - 1e15")], "crash"
        ),
        "a gate is not left": Planted([InQuery("endings", "leave_gate", "used - 1", "used - 0")], "calm"),
        "a gate is not checked": Planted([InQuery("work", "gate_free", "capacity - used", "capacity")], "calm"),
        "a line is served from its end": Planted(
            [InQuery("endings", "next_in_line", "ORDER BY seq", "ORDER BY seq DESC")], "calm"
        ),
        "a line lets everybody in": Planted(
            [InQuery("endings", "granted_in_line", "SELECT count(*)", "SELECT 0 * count(*)")], "calm"
        ),
        "a dependant is freed too early": Planted(
            [InQuery("endings", "wait_less", "WHEN waits_for <= ?1", "WHEN 1")], "calm"
        ),
        "overlap=forbid is not checked": Planted(
            [InQuery("firings", "unfinished", "ORDER BY", "AND 0 ORDER BY")], "calm"
        ),
        "misfires are not recorded": Planted(
            [InCode(f"{_STORE}.firing:Recorder._record_idle", mistakes.nothing)], "time"
        ),
        "an instant is passed over": Planted([InCode(f"{_SERVICES}.planner:plan", mistakes.pass_over_some)], "calm"),
        "a firing has a run too many": Planted(
            [InCode(f"{_STORE}.firing:Recorder._write_rows", mistakes.one_run_more)], "calm"
        ),
        "a cancel is forgotten": Planted(
            [InQuery("endings", "request_cancel", "coalesce(cancel_requested_at, ?1)", "NULL")], "calm"
        ),
        "idempotency keys are forgotten": Planted(
            [InQuery("runs", "recall", "expires_at > ?", "expires_at > ? + 1e15")], "calm"
        ),
        "a submission is lost": Planted([InCode(f"{_STORE}.intake:_insert_plain", mistakes.lose_one)], "calm"),
        "priorities are upside down": Planted(
            [InCode(f"{_STORE}.work:_PRIORITIES", lambda right: range(10, 0, -1))], "herd"
        ),
        "runs start early": Planted([InQuery("work", "candidates", "due_at <= ?", "due_at <= ? + 2000000")], "calm"),
        "a finished run stays in the queue": Planted(
            [InQuery("endings", "forget_runs", "json_each(?))", "json_each(?)) AND state = 'running'")], "calm"
        ),
        "deadlines are forgotten": Planted([InCode(f"{_SERVICES}.crew:Crew._stop", mistakes.ignore_deadline)], "calm"),
        "an hour that comes twice fires twice": Planted(
            [InCode("mainspring.core.cron:Cron._next_by_wall_clock", mistakes.by_elapsed_time)], "calm"
        ),
        "some that succeeded run again": Planted([InCode(f"{_STORE}.reports:settle", mistakes.run_again)], "calm"),
    }
)


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """While this lasts, the program has that bug."""
    if name is None:
        yield
        return
    undo = []
    try:
        for mistake in PLANTED[name].mistakes:
            place = mistake.in_place()
            place.__enter__()
            undo.append(place)
        yield
    finally:
        for place in reversed(undo):
            place.__exit__(None, None, None)
