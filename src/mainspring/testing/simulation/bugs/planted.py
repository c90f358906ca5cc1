"""Bugs that are planted on purpose, to see whether they are found: a test of the tests.

Each is a small, believable mistake in the real program, in place only while a simulation runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mainspring.testing.simulation.bugs import mistakes
from mainspring.testing.simulation.scenario import Scenario

_STORE: Final = "mainspring.stores.sqlite"
_ROWS: Final = "mainspring.stores.rows"
_SERVICES: Final = "mainspring.services"


SEEDS_NEEDED: Final = 30
"""Within this many seeds each of the bugs is found."""


class InQuery(NamedTuple):
    """A wrong word in a query."""

    topic: str
    query: str
    right: str
    wrong: str
    dialect: str = "sqlite"

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the query is wrong."""
        # By name: what the program's own layers forbid, its tests must be able to reach.
        queries: dict[str, str] = import_module("mainspring.stores.sql").load_queries(self.dialect, self.topic)
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
    """A bug, where it is, which invariant it breaks, and a small scenario in which that shows."""

    mistakes: Sequence[Mistake]
    breaks: int
    profile: str
    seed: int = 0
    """The first seed that found it when this was written, counted from 0: this many others did not."""
    minutes: float = 1.0

    def scenarios(self) -> Iterator[Scenario]:
        """Small ones, among which at least one finds the bug; first that which is known to."""
        for seed in (self.seed, *(each for each in range(SEEDS_NEEDED) if each != self.seed)):
            yield Scenario(seed, self.profile, self.minutes, nodes=2, workers=2)


_TAKEN_FROM_OTHERS: Final = (
    InQuery("dispatch", "delivered", " AND state = 'pending'", ""),
    InQuery("work", "take", " AND state = 'pending'", ""),
    InCode(f"{_STORE}.claims.dispatch:Dispatching.claim_these", mistakes.claim_whatever_its_token),
)
PLANTED: Final = MappingProxyType(
    {
        "the term is not checked": Planted([InCode(f"{_ROWS}.plans:check_term", mistakes.nothing)], 17, "time", 6),
        "terms do not grow": Planted(
            [InQuery("leases", "begin_term", "number = number + 1", "number = number")], 17, "chaos"
        ),
        "a claim keeps the token": Planted(
            [InQuery("work", "take", "token = token + 1", "token = max(token, 1)")], 4, "chaos"
        ),
        "a claim is not atomic": Planted(
            [
                InQuery("work", "take", " AND state = 'pending'", ""),
                InCode(f"{_STORE}.claims.work:Claiming.claim", mistakes.claim_in_two_steps),
            ],
            5,
            "calm",
        ),
        "a stale report is accepted": Planted(
            [InCode(f"{_STORE}.ends.reports:_report", mistakes.accept_any_token)], 6, "time", 13, 3.0
        ),
        "lost claims are renewed": Planted(
            [
                InCode(f"{_STORE}.claims.work:Claiming.renew", mistakes.renew_for_anyone),
                InCode(f"{_SERVICES}.worker.fence:Fence.lower", mistakes.nothing),
            ],
            7,
            "time",
            13,
        ),
        "a worker does not fence itself": Planted(
            [InCode(f"{_SERVICES}.worker.fence:Fence.lower", mistakes.nothing)], 7, "network", 14, 4.0
        ),
        "work begins under a claim that has run out": Planted(
            [InCode(f"{_SERVICES}.worker.claimer:Claimer._take", mistakes.take_late)], 7, "network", 0, 6.0
        ),
        "losses are not counted": Planted(
            [InQuery("endings", "back_to_pending", "losses = losses + ?4", "losses = losses")], 9, "crash", 1
        ),
        "a retry does not wait": Planted(
            [InQuery("endings", "back_to_pending", "due_at = max(due_at, ?2)", "due_at = due_at")], 9, "calm"
        ),
        "retries have no end": Planted(
            [InCode("mainspring.core.runs.retry:_refusal", lambda _: lambda *_: "")], 9, "calm"
        ),
        "lost work is not recovered": Planted(
            [InQuery("maintenance", "expired", "claimed_until < ?", "claimed_until < ? - 1e15")], 19, "crash", 1
        ),
        "a gate is not left": Planted([InQuery("endings", "leave_gate", "used - 1", "used - 0")], 19, "calm"),
        "a gate is not checked": Planted([InQuery("work", "gate_free", "capacity - used", "capacity")], 16, "calm", 1),
        "a line is served from its end": Planted(
            [InQuery("endings", "next_in_line", "ORDER BY seq", "ORDER BY seq DESC")], 22, "calm"
        ),
        "a line lets everybody in": Planted(
            [InQuery("endings", "granted_in_line", "SELECT count(*)", "SELECT 0 * count(*)")], 22, "calm"
        ),
        "a dependant is freed too early": Planted(
            [InQuery("endings", "wait_less", "WHEN waits_for <= ?1", "WHEN 1")], 15, "calm", 1
        ),
        "a line that a failure stops goes on before all have ended": Planted(
            [InQuery("endings", "keep_place", "VALUES (?, ?, ?, ?, 1, 1)", "SELECT ?, ?, ?, ?, 1, 1 WHERE 0")],
            22,
            "calm",
            3,
        ),
        "dependants that are left for later are forgotten": Planted(
            [InCode(f"{_STORE}.ends.recovery:follow_postponed", mistakes.nothing)], 3, "calm", 3
        ),
        "overlap=forbid is not checked": Planted(
            [InQuery("firings", "unfinished", "ORDER BY", "AND 0 ORDER BY")], 14, "calm"
        ),
        "misfires are not recorded": Planted(
            [InCode(f"{_ROWS}.firing:_idle_rows", mistakes.none_at_all)], 1, "time", 1
        ),
        "an instant is passed over": Planted(
            [InCode(f"{_SERVICES}.scheduler.planner:plan", mistakes.pass_over_some)], 1, "calm"
        ),
        "a firing has a run too many": Planted(
            [InCode(f"{_STORE}.definitions.jobs:Jobs._insert_runs", mistakes.one_run_more)], 2, "calm"
        ),
        "a cancel is forgotten": Planted(
            [InQuery("endings", "request_cancel", "coalesce(cancel_requested_at, ?1)", "NULL")], 18, "calm", 8
        ),
        "idempotency keys are forgotten": Planted(
            [InQuery("runs", "recall", "expires_at > ?", "expires_at > ? + 1e15")], 3, "calm"
        ),
        "a submission is lost": Planted(
            [InCode(f"{_STORE}.submissions.intake:_insert_plain", mistakes.lose_one)], 3, "calm", 2
        ),
        "priorities are upside down": Planted(
            [InCode(f"{_STORE}.claims.work:_candidates", mistakes.worst_first)], 13, "herd", 1
        ),
        "runs start early": Planted(
            [InQuery("work", "candidates", "due_at <= ?", "due_at <= ? + 2000000")], 11, "calm"
        ),
        "a finished run stays in the queue": Planted(
            [InQuery("endings", "forget_runs", "json_each(?))", "json_each(?)) AND state = 'running'")], 3, "calm", 1
        ),
        "an attempt is counted twice": Planted(
            [InQuery("endings", "back_to_pending", "attempt = attempt + ?3", "attempt = attempt + 2 * ?3")], 10, "calm"
        ),
        "deadlines are forgotten": Planted(
            [InCode(f"{_SERVICES}.worker.runner:Runner._stop", mistakes.ignore_deadline)], 12, "calm"
        ),
        "a run waits beyond its total timeout": Planted(
            [
                InQuery("maintenance", "out_of_time", "<= ?", "<= ? - 1e15"),
                InCode("mainspring.testing.simulation.load.client:Client.__init__", mistakes.in_a_hurry),
            ],
            12,
            "calm",
            1,
        ),
        "an hour that comes twice fires twice": Planted(
            [InCode("mainspring.core.schedules.cron:Cron._next_by_wall_clock", mistakes.by_elapsed_time)],
            21,
            "calm",
            1,
            6.5,
        ),
        "a budget is not paid from": Planted([InQuery("api", "pay", "excluded.paid_at", "paid_at")], 20, "calm"),
        "a delivered run is taken from its holder": Planted(_TAKEN_FROM_OTHERS, 5, "broker"),
        "what a broker lost stays lost": Planted(
            [
                InCode(f"{_SERVICES}.scheduler.dispatcher:Dispatcher._is_news", mistakes.tell_once),
                InCode(f"{_SERVICES}.worker.broker_source:BrokerSource.claim", mistakes.trust_the_broker),
            ],
            19,
            "broker",
            1,
        ),
        "the order of a partition is taken for the order of a key": Planted(
            [
                InQuery("dispatch", "due", "WHERE state = 'pending'", "WHERE state IN ('pending', 'blocked')"),
                InQuery("dispatch", "delivered", " AND state = 'pending'", " AND state IN ('pending', 'blocked')"),
                InQuery("work", "take", " AND state = 'pending'", " AND state IN ('pending', 'blocked')"),
            ],
            22,
            "partitions",
        ),
        "the next consumer of a partition takes what is worked on": Planted(_TAKEN_FROM_OTHERS, 5, "partitions"),
        "a record that was committed late begins a retry early": Planted(
            [
                InQuery("dispatch", "delivered", "due_at <= ?3", "due_at <= ?3 + 1e15"),
                InCode(f"{_STORE}.claims.dispatch:Dispatching.claim_these", mistakes.claim_whatever_its_token),
            ],
            9,
            "partitions",
            3,
        ),
        "a message that is visible again takes what is worked on": Planted(_TAKEN_FROM_OTHERS, 5, "visibility"),
        "a loop that was cancelled stays dead": Planted(
            [InCode(f"{_SERVICES}.supervisor:Supervisor._ended", mistakes.nothing)], 3, "shortage", 0, 4.0
        ),
        "a loop dies of a cancellation that was not its own": Planted(
            [
                InCode(f"{_SERVICES}.loop:is_cancelled", lambda _: lambda: True),
                InCode(f"{_SERVICES}.supervisor:Supervisor._ended", mistakes.nothing),
            ],
            3,
            "shortage",
            0,
            4.0,
        ),
        "a process stays after its store has failed": Planted(
            [InCode(f"{_SERVICES}.node:Node._give_up", mistakes.nothing)], 1, "shortage", 2, 4.0
        ),
        "all tenants wait in one line": Planted(
            [
                InCode(f"mainspring.core.planning.fair_queue:FairQueue.{name}", mistakes.in_one_group)
                for name in ("push", "push_front", "hold", "charge")
            ],
            11,
            "tenant",
        ),
        "a huge firing counts as one run": Planted(
            [
                InCode(f"{_SERVICES}.scheduler.planner:runs_in", mistakes.count_firings),
                InCode(f"{_SERVICES}.scheduler.planner:cut", mistakes.cut_by_firings),
            ],
            20,
            "completions",
            minutes=0.1,  # A few seconds of it are tens of thousands of runs.
        ),
        "older code fails what newer code could do": Planted(
            [InCode(f"{_SERVICES}.worker.reporter:judge_unfit", mistakes.fail_unfit)], 9, "versions"
        ),
        "what was counted is counted again": Planted(
            [InCode(f"{_STORE}.history.tallies:Tallies.add_tallies", mistakes.count_again)], 24, "network"
        ),
        "a paused queue goes on": Planted(
            [InCode(f"{_STORE}.claims.work:without_paused", lambda _: lambda tx, worker: worker)], 23, "queues"
        ),
        "some that succeeded run again": Planted(
            [InCode(f"{_STORE}.ends.reports:_report", mistakes.run_again)], 8, "calm"
        ),
    }
)
"""By name. Each invariant of the checker has at least one that breaks it."""


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
