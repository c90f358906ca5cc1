"""Regions: when a run leaves the region that it waits in, where it goes, and how regions stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from mainspring.core.answers import Backlog
from mainspring.core.instants import Duration, Instant, format_duration
from mainspring.core.model import KeptOptions, Worker

HOME_KEY = '"home_region":'
"""The key as stored options contain it: SQL searches for this text before it parses JSON."""
MOST_PAGES = 20
"""How many pages of runs that may leave their region one pass looks at: those that can go nowhere are passed over."""
_options = msgspec.json.Decoder(KeptOptions)


class WaitingRun(NamedTuple):
    """A due run that may leave its region."""

    id: str
    namespace: str
    queue: str
    region: str
    task: str
    options: str
    due_at: Instant


class Move(NamedTuple):
    """A run's move to another region: its options from then on, and the reason."""

    run_id: str
    origin: str
    region: str
    options: str
    reason: str


def fail_over(run: WaitingRun, workers: Sequence[Worker], now: Instant) -> Move | None:
    """The move of a run that its region has not taken for `region_failover`; None while it has to wait, or if no other
    region has a live worker that could take it. `workers` are the live ones.

    The regions that the run names are tried in their order. If it names none, the one with the most free places wins.
    """
    options = _options.decode(run.options)
    since = max(run.due_at, options.moved_at or 0)
    if options.region_failover is None or now - since < options.region_failover:
        return None
    fit = [each for each in workers if _could_take(each, run)]
    free: dict[str, int] = {}
    for each in fit:
        for region in each.regions:
            free[region] = free.get(region, 0) + max(each.concurrency - each.running, 0)
    others = options.failover_regions or sorted(free, key=lambda name: (-free[name], name))
    target = next((region for region in others if region in free and region != run.region), None)
    if target is None:
        return None
    state = "took no run of it" if run.region in free else "has no live worker for it"
    waited = format_duration(options.region_failover)
    reason = f"moved from region {run.region}, which {state} within {waited}, to {target}"
    home = options.home_region or run.region
    moved = msgspec.structs.replace(options, home_region=home, moved_at=now, moved_because=reason)
    return Move(run.id, run.region, target, msgspec.json.encode(moved).decode(), reason)


def _could_take(worker: Worker, run: WaitingRun) -> bool:
    return worker.namespace == run.namespace and run.queue in worker.queues and run.task in worker.tasks


def home_of(region: str, options: str) -> str:
    """The region that a run stands for in the ledger, wherever it runs."""
    return _options.decode(options).home_region or region if HOME_KEY in options else region


def without_move(options: str) -> str:
    """The options of a run that goes back to its own region."""
    if HOME_KEY not in options:
        return options
    known = _options.decode(options)
    return msgspec.json.encode(msgspec.structs.replace(known, home_region="", moved_at=None, moved_because="")).decode()


class RegionHealth(NamedTuple):
    """How a region stands."""

    region: str
    workers: int
    slots: int
    running: int
    depth: int
    """Due runs that no worker has taken."""
    lateness: Duration
    """How long the oldest due run has been due."""


def region_health(workers: Iterable[Worker], backlog: Iterable[Backlog], now: Instant) -> list[RegionHealth]:
    """Every region that live `workers` serve or that runs wait in, by name. A worker of several regions counts in
    each."""
    serving: dict[str, list[Worker]] = {}
    for worker in workers:
        for region in worker.regions:
            serving.setdefault(region, []).append(worker)
    waiting: dict[str, list[Backlog]] = {}
    for row in backlog:
        waiting.setdefault(row.region, []).append(row)
    late = {name for name, rows in waiting.items() if any(row.count for row in rows)}
    return [
        RegionHealth(
            region,
            len(serving.get(region, ())),
            sum(each.concurrency for each in serving.get(region, ())),
            sum(each.running for each in serving.get(region, ())),
            sum(row.count for row in waiting.get(region, ())),
            max([now - row.oldest_at for row in waiting.get(region, ()) if row.count], default=0),
        )
        for region in sorted(serving.keys() | late)
    ]
