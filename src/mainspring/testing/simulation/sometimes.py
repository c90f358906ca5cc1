"""What must happen sometimes: a simulation in which nothing rare ever happened has shown nothing.

Faults count themselves as they strike; here is what is read off the store: the paths that the program took.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import MappingProxyType
from typing import Final

from mainspring.core.model import Event
from mainspring.core.states import BLOCKED
from mainspring.store import RunFilter, Store
from mainspring.testing.simulation.faults import CALLS, EVENTS, HABITS, PROFILES
from mainspring.testing.simulation.load.workload import NAMESPACE

_LOOK_S = 3.0
_LOOKED_AT = 20
"""The number of waiting runs that are sampled: a few show whether any run ever waits for a given cause."""
_BATCH = 10_000

_BY_KIND: Final = {
    "run.lost": "run lost",
    "run.retrying": "run retried",
    "run.handed_back": "run handed back",
    "worker.dead": "worker taken for dead",
    "job.resumed": "job resumed",
    "job.updated": "job changed",
}
_BROKER_KINDS: Final = {"broker.lost": "broker given up", "broker.back": "broker used again"}
_BY_REASON: Final = (
    ("firing.missed", "misfire=skip", "misfire skipped"),
    ("firing.missed", "misfire=once", "misfires joined"),
    ("firing.missed", "misfire=all", "misfire beyond catching up"),
    ("firing.missed", "not started within", "misfire past its deadline"),
    ("firing.skipped", "overlap=forbid", "overlap refused"),
    ("firing.skipped", "paused", "firing skipped while paused"),
    ("firing.skipped", "upstream job", "after-job skipped"),
    ("run.cancelled", "overlap=replace", "overlap replaced"),
    ("run.cancelled", "a client asked", "run cancelled"),
    ("run.skipped", "upstream run", "dependant skipped"),
    ("run.failed", "upstream run", "dependant failed"),
    ("run.failed", "its worker was lost", "losses used up"),
    ("run.failed", "all retries are used up", "retries used up"),
    ("run.failed", "TimeoutError", "run timed out"),
    ("run.skipped", "not started by", "run expired"),
    ("run.skipped", "in line key:", "key stopped after a failure"),
)
_ELSEWHERE: Final = (
    "takeover",
    "waited at a gate",
    "waited in line",
    "waited for another run",
    "stale term refused",
    "plan overtaken",
    "idempotency key known",
    "rate limit reached",
    "cancel while running",
    "cancel while waiting",
    "cancel too late",
    "claim passed to another",
    "report accepted",
    "report repeated",
    "report stale",
    "work timed_out",
    "work cancelled",
    "work fenced",
    "ignored cancellation",
    "coordination by a leader",
    "coordination by cluster",
    "leaders that share the jobs",
    "order by priority alone",
    "order by age",
    "several queues",
    "several regions",
    "night in which clocks change",
)
_BY_BROKER: Final = (
    "runs delivered by a broker",
    "delivered run claimed",
    "delivery found nothing",
    "broker given up",
    "broker used again",
)
TRANSPORT_PATHS: Final = MappingProxyType(
    {
        "queue": ("lost_message", "doubled_message", "mixed_messages"),
        "log": ("rebalance", "record delivered again", "late commit"),
        "hiding": ("message visible again",),
    }
)
_BY_OLD_CODE: Final = ("run left to newer code",)
_OUT_OF_TIME: Final = ("run.failed", "not started", "total timeout ended a wait")
_BY_PAUSES: Final = ("queue paused", _OUT_OF_TIME[2])
PATHS: Final = (
    *_BY_KIND.values(),
    *(name for _, _, name in _BY_REASON),
    *_ELSEWHERE,
    *_BY_BROKER,
    *(path for paths in TRANSPORT_PATHS.values() for path in paths),
    *_BY_OLD_CODE,
    *_BY_PAUSES,
)
HERD: Final = "thundering herd"
FAULTS: Final = (*CALLS, *EVENTS, *HABITS, HERD)
"""All that is made to go wrong, by kind."""
ENOUGH_SEEDS = 30
"""How many seeds together must have met all that their profile brings."""
_MISFIRES: Final = frozenset(
    {"misfire skipped", "misfires joined", "misfire beyond catching up", "misfire past its deadline"}
)
_TROUBLE: Final = frozenset(
    {"run lost", "worker taken for dead", "claim passed to another", "takeover", "report repeated", "report stale"}
)
_CALM: Final = _MISFIRES | _TROUBLE | {"run handed back", "losses used up", "stale term refused", "work fenced"}
_SPARED: Final = MappingProxyType(
    {
        "calm": _CALM,
        "tenant": _CALM,
        "completions": _CALM,
        "shortage": _MISFIRES | {"run handed back", "losses used up", "stale term refused"},
        "queues": _MISFIRES
        | {"run handed back", "losses used up", "stale term refused", "report stale", "work fenced"}
        | {"broker given up", "broker used again", *TRANSPORT_PATHS["queue"]},
        "versions": _MISFIRES | {"losses used up", "stale term refused", "report stale", "work fenced"},
        "crash": {"misfires joined", "misfire beyond catching up", "stale term refused", "report stale", "work fenced"},
        "network": {"run handed back", "misfire beyond catching up", "losses used up", "stale term refused"},
        "time": {"run handed back", "losses used up", "report repeated", "misfire beyond catching up"},
        "broker": _MISFIRES | {"run handed back", "losses used up", "stale term refused"},
        "partitions": _MISFIRES | {"run handed back", "losses used up", "stale term refused"},
        "visibility": _MISFIRES | {"run handed back", "losses used up", "stale term refused"},
        "herd": _MISFIRES | {"run handed back", "losses used up", "stale term refused", "report stale", "work fenced"},
    }
)
"""Paths that a kind of weather brings seldom or never. `chaos` brings them all."""


def demanded(profile: str, seeds: int) -> list[str]:
    """What this many seeds of a profile must have met: its faults, and every path that it leads to."""
    if seeds < ENOUGH_SEEDS:
        return []
    weather, spared = PROFILES[profile], _SPARED.get(profile, frozenset())
    if not weather.broker:
        spared = {*spared, *_BY_BROKER}
    for transport, paths in TRANSPORT_PATHS.items():
        if not weather.broker or transport != weather.transport:
            spared = {*spared, *paths}
    if not weather.old_code:
        spared = {*spared, *_BY_OLD_CODE}
    if "paused_queues" not in weather.habits:
        spared = {*spared, *_BY_PAUSES}
    herds = {HERD} if weather.herd else set()
    there = {*weather.calls, *weather.events, *weather.habits, *herds}
    return [*(kind for kind in FAULTS if kind in there), *(path for path in PATHS if path not in spared)]


async def watch(store: Store, seen: Counter[str]) -> None:
    """Look now and then what runs wait for; it leaves no trace afterwards."""
    while True:
        await asyncio.sleep(_LOOK_S)
        for run in await store.list_runs(RunFilter(NAMESPACE, states=(BLOCKED,), limit=_LOOKED_AT)):
            if run.blocked_on is not None:
                seen["waited at a gate"] += 1
            elif run.key is not None:
                seen["waited in line"] += 1
            else:
                seen["waited for another run"] += 1


async def read_events(store: Store, seen: Counter[str]) -> None:
    """Count what the events show."""
    while await store.number_events(_BATCH):
        pass
    terms = 0
    for batch in await store.events_since(0, 100 * _BATCH):
        for event in batch.events:
            terms += event.kind == "leader.elected"
            _count(event, seen)
    seen["takeover"] += max(terms - 1, 0)


def _count(event: Event, seen: Counter[str]) -> None:
    if name := _BY_KIND.get(event.kind) or _BROKER_KINDS.get(event.kind):
        seen[name] += 1
    for kind, part, name in (*_BY_REASON, _OUT_OF_TIME):
        if event.kind == kind and part in event.reason:
            seen[name] += 1
