"""Where a run that is submitted alone is accepted: one row in one table, which costs little more than the sync.

Every transaction that writes first takes the inbox in, and every reader first makes sure that it is empty: so
no caller ever meets a run that was accepted but is not in its place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Claim, Event, NewRun, Worker, named_queue
from mainspring.stores.rows.run_rows import common_values
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "inbox")
_encode = msgspec.json.Encoder().encode
ACCEPT = _Q["accept"]
TAGS_KEY = '"tags":['
"""The key as encoded options contain it: most runs have no tags."""
LIMIT = 256
"""After this many, a process takes them in itself: there may be no other to do it."""


def fits(run: NewRun) -> bool:
    """Whether a run can be accepted without reading anything else from the store."""
    return not (run.after or run.lines or run.gates or run.idempotency_key)


def accepted(run: NewRun) -> tuple[object, ...]:
    """The row of a run that fits."""
    return (run.id, run.args, *common_values(run), run.noted_for, run.request_id)


def is_waiting(connection: sqlite3.Connection) -> bool:
    """Whether something is to be taken in."""
    return connection.execute(_Q["waiting"]).fetchone() is not None


def count_accepted(tx: Transaction, worker: Worker) -> tuple[int, int, bool]:
    """How many runs are to be taken in, how many of them this worker could start at once, and whether others wait."""
    lists = [_encode(names).decode() for names in (worker.queues, worker.regions, worker.tasks)]
    there, fitting, queued = tx.execute(_Q["fitting"], (tx.now, worker.namespace, *lists)).fetchone()
    return there, fitting, bool(queued)


def start_accepted(tx: Transaction, worker: Worker, until: Instant) -> list[Claim]:
    """Claim all that was accepted. Where a worker could start all of it, and nothing else is in its way, it need not
    stand in the queue first."""
    tx.execute(_Q["note"])
    rows = tx.execute(_Q["start"], (worker.id, until, tx.now)).fetchall()
    tx.execute(_Q["clear"])
    keep_tags(tx, [row[3] for row in rows if TAGS_KEY in row[7]])
    claims = []
    for queue, created_at, job_id, *values in rows:
        claim = Claim(*values)
        late = max(tx.now - claim.due_at, 0)
        about = (claim.namespace, claim.run_id, job_id, claim.job, claim.task)
        named, more = named_queue(queue), (worker.id, claim.fire_at, 1)
        tx.events += (
            Event("run.submitted", created_at, *about, queue=named),
            Event("run.running", tx.now, *about, *more, priority=claim.priority, late=late, queue=named),
        )
        claims.append(claim)
    return claims


def take_in(tx: Transaction) -> None:
    """Put what was accepted in its place, and record its events. Workers were woken when it was accepted."""
    if is_waiting(tx.connection):
        tx.execute(_Q["note"])
        rows = tx.execute(_Q["take_in"]).fetchall()
        tx.execute(_Q["clear"])
        keep_tags(tx, [row[3] for row in rows if TAGS_KEY in row[7]])
        tx.events += [
            Event("run.submitted", at, namespace, run_id, job_id, job, task, queue=named_queue(queue))
            for queue, at, namespace, run_id, job_id, job, task, _ in rows
        ]


def keep_tags(tx: Transaction, tagged: Sequence[str]) -> None:
    """Let lists by tag find runs that have been accepted: those among them whose options contain `TAGS_KEY`."""
    if tagged:
        tx.execute(_Q["keep_tags"], (_encode(tagged).decode(),))
