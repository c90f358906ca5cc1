"""What a process counts, as Prometheus reads it."""

from __future__ import annotations

from mainspring.core.answers import Connections, Strain
from mainspring.process.metrics import Metrics
from mainspring.services.metric_families import process_families


def figures(strain: Strain) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("mainspring_"), *sample.labels.values()): sample.value
        for family in process_families(Metrics(), strain)
        for sample in family.samples
    }


def test_the_use_of_the_connection_pool_is_a_share_of_its_size() -> None:
    reported = figures(Strain(pool=Connections(size=10, in_use=8, idle=2, waiters=3)))
    assert reported["store_pool_use",] == 0.8
    assert reported["store_connections_max",] == 10
    shown = {state: reported["store_connections", state] for state in ("in_use", "idle", "waited_for")}
    assert shown == {"in_use": 8, "idle": 2, "waited_for": 3}


def test_a_store_without_a_pool_uses_none_of_it() -> None:
    assert figures(Strain())["store_pool_use",] == 0.0
