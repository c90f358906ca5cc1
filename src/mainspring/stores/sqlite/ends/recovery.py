"""Recovery and cleaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from mainspring.core.instants import DAY, Duration, Instant
from mainspring.core.runs.outcome import after_expiry, out_of_time, too_late
from mainspring.core.states import FAILED, FINAL, SUCCEEDED, State
from mainspring.store import MOST_ENDED_WORKERS, Reaped
from mainspring.stores.rows.recovery import bury, find_moves, note_moved
from mainspring.stores.rows.writes import forget, forget_tallies
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import end_unstarted, follow_postponed
from mainspring.stores.sqlite.ends.reports import Endings, load_claimed
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once

_Q = load_queries("sqlite", "maintenance")
_END = load_queries("sqlite", "endings")
_WORKERS_KEPT: Duration = DAY
SUMMED_UP_AT_ONCE = 5_000
"""The most rows that one pass counts, in portions: each is its own transaction."""
FORGOTTEN_AT_ONCE = 1_000
"""Runs that one transaction may forget."""
AIM_S: Final = 0.010
"""How long one portion may hold the write lock, without its commit: firings and claims wait for it."""
LEAST: Final = 50
"""The fewest rows of a portion, however slow the last one was: each transaction has a fixed cost."""


class Portion:
    """Rows that one transaction may take on, by how long the last ones took."""

    __slots__ = ("most", "rows")

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = min(most, 4 * LEAST)

    def measure(self, rows: int, took_s: float) -> None:
        """Note how long a number of rows took. At most twice as many are taken on next, since the first of a kind may
        be cheap; a portion that was slow is cut at once to what would have been in time."""
        if took_s > AIM_S:
            self.rows = max(int(min(rows, self.rows) * AIM_S / took_s), min(LEAST, self.most))
        elif rows >= self.rows:
            fitting = self.rows * 2 if took_s <= AIM_S / 2 else int(self.rows * AIM_S / took_s)
            self.rows = min(fitting, self.most)


class Maintenance:
    """See `store.MaintenanceStore`."""

    _db: Database

    def __init__(self) -> None:
        self._forgetting, self._summing_up = Portion(FORGOTTEN_AT_ONCE), Portion(SUMMED_UP_AT_ONCE)

    async def recover(self, dead_after: Duration, limit: int) -> Reaped:
        # A read first: most passes find nothing, and must not cost a commit.
        if not await self._db.read(lambda tx: _anything_to_recover(tx, dead_after), quick=True):
            return Reaped(0, 0, ())  # A read of a file costs next to nothing, so it need not be delayed.
        return await self._db.write(lambda tx: _recover(tx, dead_after, limit))

    async def clean(self, keep_runs: Duration, keep_firings: Duration, keep_events: Duration, limit: int) -> int:
        gone = await self._db.write(lambda tx: _clean(tx, keep_runs, keep_firings, keep_events, limit))
        gone += await self._in_portions(
            self._forgetting, limit, lambda tx, rows: _forget_old(tx, tx.now - keep_runs, rows)
        )
        summed_up = await self._in_portions(self._summing_up, SUMMED_UP_AT_ONCE, _sum_up)
        # Recent ends are a reason to run again soon; immediately, if there is more to sum up.
        return max(gone, limit if summed_up >= SUMMED_UP_AT_ONCE else min(summed_up, 1))

    async def _in_portions(self, portion: Portion, most: int, work: Callable[[Transaction, int], int]) -> int:
        """Process rows until there are none left, or enough for one pass; returns how many. Other transactions run
        between two portions."""
        done = 0
        while done < most:
            rows = min(portion.rows, most - done)
            count = await self._db.write(partial(self._measured, portion, rows, work))
            done += count
            if count < rows:
                break
        return done

    def _measured(self, portion: Portion, rows: int, work: Callable[[Transaction, int], int], tx: Transaction) -> int:
        began_at = self._db.clock.monotonic()
        count = work(tx, rows)
        portion.measure(count, self._db.clock.monotonic() - began_at)
        return count


def _anything_to_recover(tx: Transaction, dead_after: Duration) -> bool:
    silent = "SELECT 1 FROM workers WHERE state IN ('active', 'draining') AND heartbeat_at < ?"
    return bool(
        tx.execute(_Q["expired"], (tx.now, 1)).fetchone()
        or tx.execute(_Q["too_late"], (tx.now, 1)).fetchone()
        or tx.execute(_Q["out_of_time"], (tx.now, 1)).fetchone()
        or tx.execute(silent, (tx.now - dead_after,)).fetchone()
        or tx.execute(_Q["waiting_gates"]).fetchone()
        or tx.execute(_Q["stranded"], (tx.now, 0, "", 1)).fetchone()
        or tx.execute("SELECT 1 FROM ended_upstreams LIMIT 1").fetchone()
        or tx.execute("SELECT 1 FROM stopped_lines LIMIT 1").fetchone()
    )


def _recover(tx: Transaction, dead_after: Duration, limit: int) -> Reaped:
    lost = _recover_lost(tx, limit)
    ended = tuple(state for state in lost if state in FINAL)
    expired = _end_late(tx, limit)
    dead = at_once(bury(tx, dead_after))
    for namespace, name in tx.execute(_Q["waiting_gates"]).fetchall():
        tx.changed = bool(tx.execute(_END["promote_at_gate"], (namespace, name)).rowcount) or tx.changed
    moves = at_once(find_moves(tx, dead_after, limit))
    moved = note_moved(tx, [row for move in moves for row in tx.execute(_Q["move"], move)])
    postponed = follow_postponed(tx)
    return Reaped(len(lost), expired, dead, moved=moved, ended=ended, postponed=postponed)


def _end_late(tx: Transaction, limit: int) -> int:
    """End runs that wait although their time is over; how many."""
    over = tx.execute(_Q["out_of_time"], (tx.now, limit)).fetchall()
    ended = end_unstarted(tx, [(run_id, out_of_time(*row)) for run_id, *row in over])
    overdue = tx.execute(_Q["too_late"], (tx.now, limit)).fetchall()
    return ended + end_unstarted(tx, [(run_id, too_late(expires_at)) for run_id, expires_at in overdue])


def _recover_lost(tx: Transaction, limit: int) -> list[State]:
    """End or requeue runs whose claims expired; returns the states they go to."""
    claimed = load_claimed(tx, [row[0] for row in tx.execute(_Q["expired"], (tx.now, limit))], whole=True)
    endings, states = Endings(tx), []
    for run in claimed.values():
        verdict, report = after_expiry(run, tx.now)
        endings.add(run, verdict, report, losses=1)
        states.append(verdict.state)
    endings.apply()
    return states


def _clean(tx: Transaction, keep_runs: Duration, keep_firings: Duration, keep_events: Duration, limit: int) -> int:
    gone = 0
    for namespace, job, keep_succeeded, keep_failed in tx.execute(_Q["limited_jobs"]).fetchall():
        for state, keep in ((SUCCEEDED, keep_succeeded), (FAILED, keep_failed)):
            if keep is not None:
                gone += _forget(tx, tx.execute(_Q["beyond_limit"], (namespace, job, state, limit, keep)).fetchall())
    gone += tx.execute(_Q["forget_firings"], (tx.now - keep_firings, limit)).rowcount
    gone += tx.execute(_Q["forget_submissions"], (tx.now, limit)).rowcount
    gone += tx.execute(_Q["forget_workers"], (tx.now - _WORKERS_KEPT, MOST_ENDED_WORKERS)).rowcount
    gone += at_once(forget(tx, keep_firings, keep_runs, keep_events, limit))
    gone += at_once(forget_tallies(tx, keep_firings, keep_runs, limit))
    gone += tx.execute(_Q["forget_shares"], (limit,)).rowcount
    return gone + tx.execute(_Q["forget_gates"]).rowcount


def _forget_old(tx: Transaction, finished_before: Instant, rows: int) -> int:
    return _forget(tx, tx.execute(_Q["old_history"], (finished_before, rows)).fetchall())


def _sum_up(tx: Transaction, rows: int) -> int:
    """Count what has ended since the last pass, and make it findable by its tags and by what is shown of its ids; how
    many runs that were."""
    count, last, before = tx.execute(_Q["sum_up_to"], (rows,)).fetchone()
    if count:
        for query in (_Q["tally"], _Q["keep_tails"], _Q["keep_tags"]):
            tx.execute(query, (before, last))
        tx.execute(_Q["summed_up"], (last,))
    return int(count)


def _forget(tx: Transaction, runs: Iterable[tuple[int, str]]) -> int:
    runs = list(runs)
    tx.executemany(_Q["forget_history"], [(seq,) for seq, _ in runs])
    tx.executemany(_Q["forget_attempts"], [(run_id,) for _, run_id in runs])
    tx.executemany(_Q["forget_logs"], [(run_id,) for _, run_id in runs])
    return len(runs)
