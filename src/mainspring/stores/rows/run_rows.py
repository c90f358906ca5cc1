"""Runs as rows: what every store reads and writes alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter

import msgspec

from mainspring.core.answers import DELAYS, Change, Delay, RunFilter
from mainspring.core.instants import DAY, Duration
from mainspring.core.model import Event, KeptOptions, NewRun, Run, named_queue
from mainspring.core.states import RUNNING, UNFINISHED, State
from mainspring.errors import Conflict, NotFound

IDEMPOTENCY_KEPT: Duration = 7 * DAY
SUBMIT = "run.submit"
"""The audit trail's name of a single submission; indexes contain it, too."""
FEW_UNFINISHED, FEW_RUNNING = 1_000, 20_000
"""Up to this many unfinished runs are filtered one by one, however many others there are."""
FEW_RUNS = 5_000
"""This many runs are filtered one by one in well under 50 ms."""
AFTER_ALL, LAST_NAME = "~", "\U0010ffff"
"""What sorts after every id, and after every name."""
_encode = msgspec.json.Encoder().encode
_MERGED = re.compile(r"(\) AS (?:newest|found)\s+)ORDER BY \S+ DESC (?=LIMIT \$4$)")
"""The order of a list that several lists were merged into."""

RUN_FIELDS = (
    *("id", "namespace", "queue", "region", "task", "args", "state", "reason", "priority", "due_at", "created_at"),
    *("options", "expires_at", "job_id", "job", "fire_at", "idx", "key", "token", "attempt", "losses", "worker"),
    *("claimed_until", "started_at", "finished_at", "cancel_requested_at", "cancel_reason", "waits_for", "blocked_on"),
    *("progress", "progress_note", "result", "error", "retry_of", "attempt_ended_at"),
)
"""In the order in which queries give them."""


def run_of(row: Sequence[object]) -> Run:
    """A run from a row with these fields."""
    return msgspec.convert(dict(zip(RUN_FIELDS, row, strict=True)), Run)


def run_in(namespace: str, run_id: str, row: Sequence[object] | None) -> Run:
    """The run of a row; NotFound if there is no row, or if it is of another namespace."""
    run = None if row is None else run_of(row)
    if run is None or run.namespace != namespace:
        raise NotFound(f"there is no run {run_id}: `mainspring run list` shows those that are kept")
    return run


def ended_already(run: Run) -> Conflict:
    """The error of cancelling a run that has ended."""
    return Conflict(f"run {run.id} has ended already ({run.state}): there is nothing to cancel")


shared_values = attrgetter(
    "namespace", "queue", "region", "task", "options", "priority", "due_at", "expires_at", "job_id", "job", "fire_at",
    "idx", "key", "retry_of", "created_at",
)  # fmt: skip
"""What the runs of one bulk submission share."""


_noted_for = attrgetter("noted_for")


def common_values(run: NewRun) -> tuple[object, ...]:
    """The same, bound once for all of them. First, whether the runs are special for claims, because they may expire."""
    return (run.expires_at is not None, *shared_values(run))


def submitted(run: NewRun) -> Event:
    """A run was accepted."""
    about = (run.namespace, run.id, run.job_id, run.job, run.task)
    return Event("run.submitted", run.created_at, *about, queue=named_queue(run.queue))


def noted(runs: Sequence[NewRun], events: Collection[Event]) -> list[Change]:
    """The audit trail's entries for accepted runs that are noted one by one, made from their events."""
    if not any(map(_noted_for, runs)):
        return []
    accepted = {event.run_id for event in events if event.kind == "run.submitted"}
    return [
        Change(
            namespace=run.namespace,
            subject=run.noted_for,
            action=SUBMIT,
            target=f"run:{run.id}",
            after=_encode({"task": run.task, "queue": run.queue, "priority": run.priority}).decode(),
            request_id=run.request_id,
        )
        for run in runs
        if run.noted_for and run.id in accepted
    ]


def fingerprint(run: NewRun) -> str:
    """What makes two requests the same: the work, not the moment. Under a unique key, only the arguments count."""
    if run.unique:
        return blake2b(run.args.encode(), digest_size=16).hexdigest()
    options = run.options
    if '"context"' in options:  # It names the caller's trace, which differs each time that the caller asks.
        kept = msgspec.json.decode(options, type=KeptOptions)
        options = msgspec.json.encode(msgspec.structs.replace(kept, context={})).decode()
    same = (run.task, run.args, run.queue, run.region, run.priority, options, run.key, run.after, run.job_id)
    return blake2b(_encode(same), digest_size=16).hexdigest()


def other_request(run: NewRun, run_id: str) -> Conflict:
    """A key came a second time with another request."""
    if run.unique:
        key = (run.idempotency_key or "").rpartition("\x1f")[2]
        return Conflict(
            f"run {run_id} of task {run.task} waits under the unique key {key!r} with other arguments: "
            "submit again once it has started, or use another key"
        )
    return Conflict(
        f"idempotency key {run.idempotency_key!r} was used for another request (run {run_id}): "
        "use a new key, or repeat the request unchanged"
    )


def unfinished_states(where: RunFilter) -> tuple[list[State], int]:
    """The states in which an unfinished run can fit a filter, and how many runs in these are few. Only a running run
    has a worker, and no more runs are running than workers have slots."""
    states = sorted(UNFINISHED.intersection(where.states) if where.states else UNFINISHED)
    if where.worker is not None:
        states = [state for state in states if state == RUNNING]
    return states, FEW_RUNNING if {RUNNING}.issuperset(states) else FEW_UNFINISHED


def delay_steps(least: Delay) -> range:
    """The steps of an index of delays, from 0 on, that are at least as long as one."""
    return range(list(DELAYS).index(least), len(DELAYS))


def ids_only(queries: Mapping[str, str]) -> dict[str, str]:
    """The queries that list runs, with the id as their only column: to count what they list."""
    lists = {name: query for name, query in queries.items() if name.startswith("list_")}
    return {name: f"SELECT id FROM ({query.rstrip().rstrip(';')}) AS found" for name, query in lists.items()}


def counts_only(queries: Mapping[str, str]) -> dict[str, str]:
    """The queries that list runs, as counts: one row with a number. What fetches whole rows by their ids is left out,
    so that a count reads an index and sends nothing but its result. Lists that are merged are not put in order: that
    would read each of them up to the limit, where a count ends at the limit of all."""
    counts = {}
    for name, query in queries.items():
        if name.startswith("list_"):
            inner, fetched, _ = query.rstrip().rstrip(";").partition(") AS found\nCROSS JOIN LATERAL")
            text = _MERGED.sub(r"\1", inner.partition("FROM (")[2] if fetched else inner)
            counts[name] = f"SELECT count(*) FROM ({text}) AS counted"
    return counts
