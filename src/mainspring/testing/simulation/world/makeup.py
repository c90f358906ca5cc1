"""What differs from world to world: the coordination, the order of runs, and which worker serves what."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import msgspec

from mainspring.core.instants import SECOND
from mainspring.settings import Settings
from mainspring.testing.simulation.faults import FIRING_RATES

_QUEUES: Final = ("default", "mail")
_REGIONS: Final = ("default", "north")
_SETTINGS: Final = Settings(
    lease_ttl=3 * SECOND,
    lease_renew=1 * SECOND,
    horizon=30 * SECOND,
    concurrency=6,
    claim_ttl=6 * SECOND,
    claim_renew=2 * SECOND,
    worker_dead_after=6 * SECOND,
    drain_grace=5 * SECOND,
    firing_rates=tuple(FIRING_RATES.items()),
)
"""Longer leases than the defaults and shorter claims: fewer heartbeats, and losses that are noticed within the time."""
_GENERALISTS = 2
"""The number of workers that serve all queues, so that no queue depends on one process."""


def draw_settings(random: Random, seen: Counter[str]) -> Settings:
    """What a world runs with; its queues and regions are all that it has."""
    cluster, ageing = random.random() < 0.3, random.random() < 0.4
    queues = _QUEUES if random.random() < 0.4 else _QUEUES[:1]
    regions = _REGIONS if random.random() < 0.25 else _REGIONS[:1]
    shards = 2 if not cluster and len(queues) > 1 else 1  # Not drawn: worlds that were found keep their seeds.
    seen["leaders that share the jobs"] += shards > 1
    seen["coordination by cluster"] += cluster
    seen["coordination by a leader"] += not cluster
    seen["order by age"] += ageing
    seen["order by priority alone"] += not ageing
    seen["several queues"] += len(queues) > 1
    seen["several regions"] += len(regions) > 1
    return msgspec.structs.replace(
        _SETTINGS, coordination="cluster" if cluster else "leader", ordering="ageing" if ageing else "strict",
        queues=queues, regions=regions, shards=shards,
    )  # fmt: skip


def divide(random: Random, settings: Settings, workers: int) -> list[Settings]:
    """The settings of each worker: the first ones serve every queue and region, the others choose."""
    choosy = [
        msgspec.structs.replace(
            settings, queues=_choose(random, settings.queues), regions=_choose(random, settings.regions)
        )
        for _ in range(workers - _GENERALISTS)
    ]
    return [settings] * min(workers, _GENERALISTS) + choosy


def _choose(random: Random, names: tuple[str, ...]) -> tuple[str, ...]:
    return random.choice((names, *((name,) for name in names)))
