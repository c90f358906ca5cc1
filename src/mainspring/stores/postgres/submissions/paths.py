"""Which statement accepts runs. Four insert runs: `accept_run`, `insert` and `insert_alike` of runs.sql, and, for the
runs of jobs, `fire_plain` of firings.sql."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Final

from mainspring.core.instants import Instant
from mainspring.core.model import NewRun
from mainspring.stores.postgres.server.database import Database

log = logging.getLogger("mainspring")

MOST_IN_ONE_STATEMENT: Final = 64
"""More runs than this are worth a transaction, whose statements share what runs have in common."""
ALIKE_FROM: Final = 100
"""From this many runs on that differ only in id and arguments, `insert_alike` is worth its savepoint."""
MOST_HANDED_CHARACTERS: Final = 7_500
"""Longer arguments and options do not fit into a notification."""
SEPARATOR: Final = "\x1f"
"""Stands between the values of a column that go to the server as one text. JSON contains it only as an escape."""


class Path(Enum):
    """How runs are accepted."""

    HAND_OVER = "accept_run: claimed for an idle worker in the transaction of the submission"
    NOTIFY = "accept_run: listening workers are notified by the commit"
    CALL_BACK = "accept_run: the submitter notifies the broker when the commit is on its way to the disk"
    QUIET = "accept_run: workers hear of it together with others"
    STATEMENT = "insert: one statement that is the whole transaction"
    TRANSACTION = "a transaction of several statements"
    ALIKE = "insert_alike: many runs that differ in id and arguments only"
    EACH = "insert: each with all its columns"


def choose_path(
    runs: Sequence[NewRun], db: Database | None, now: Instant, *, audited: bool = False, alike: bool = False
) -> Path:
    """How to accept runs: by a call on this database, or, without one, by a statement of a transaction that is open.
    `alike`: they wait for nothing, and differ in id and arguments only. The decision is logged at debug level."""
    path = _choose_inside(runs, alike) if db is None else _choose(runs, db, now, audited)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("accepting %d runs from %s on by %s", len(runs), runs[0].id, path.value)
    return path


def _choose_inside(runs: Sequence[NewRun], alike: bool) -> Path:
    if alike and len(runs) >= ALIKE_FROM and not any(SEPARATOR in run.args for run in runs):
        return Path.ALIKE
    return Path.EACH


def _choose(runs: Sequence[NewRun], db: Database, now: Instant, audited: bool) -> Path:
    if audited or len(runs) > MOST_IN_ONE_STATEMENT:
        return Path.TRANSACTION
    if not all(run.idempotency_key is None and is_plain(run) for run in runs):
        return Path.TRANSACTION
    if len(runs) > 1 or db.server.pooled:  # A pooler allows no procedure that commits.
        return Path.STATEMENT
    if _may_be_handed(runs[0], now) and db.handover.is_worth_it():
        return Path.HAND_OVER
    if db.on_accepted is not None:
        return Path.CALL_BACK
    # Submissions in quick succession do not notify one by one: that would cost more than the insert.
    return Path.NOTIFY if db.may_tell() else Path.QUIET


def is_plain(run: NewRun) -> bool:
    """Whether a run waits for nothing but its time."""
    return not (run.after or run.lines or run.gates)


def _may_be_handed(run: NewRun, now: Instant) -> bool:
    """Whether a worker could start it at once."""
    return (
        run.due_at <= now
        and run.expires_at is None
        and run.job_id is None
        and len(run.args) + len(run.options) <= MOST_HANDED_CHARACTERS
    )
