"""Adapters by the scheme of a URL: those of the package, those of other packages, and what is said of others."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from memory_broker import MemoryBroker

from mainspring import adapter as adapters
from mainspring.adapter import ADAPTERS, WITHOUT, AdapterContext, find_adapter, schemes_of
from mainspring.clock import SystemClock
from mainspring.conformance import BrokerConformance
from mainspring.conformance.broker import Elapse
from mainspring.core.instants import Duration
from mainspring.errors import InvalidInput
from mainspring.process.metrics import Metrics
from mainspring.settings import Settings
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock
from mainspring.wiring import open_broker, open_lease, open_sinks

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_adapter"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example, as `pip install` leaves a package: its module, and its entry points beside it."""
    shutil.copy(EXAMPLE / "memory_broker.py", tmp_path / "their_broker.py")
    metadata = tmp_path / "their_broker-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-broker\nVersion: 1.0\n")
    points = ("broker.memory = their_broker:MemoryBroker", "lease.memory = their_broker:MemoryLease")
    (metadata / "entry_points.txt").write_text("\n".join(["[mainspring.adapters]", *points, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_broker", raising=False)


def broker_of(url: str) -> object:
    return open_broker(Settings(broker=url), SystemClock(), Metrics())


@pytest.mark.parametrize("port", sorted(ADAPTERS))
def test_every_adapter_of_the_table_exists_and_names_an_extra_that_the_package_has(port: str) -> None:
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    for adapter in ADAPTERS[port].values():
        spec = find_spec(adapter.module)
        assert spec is not None
        assert f"\nclass {adapter.name}" in Path(str(spec.origin)).read_text()
        assert not adapter.extra or f"\n{adapter.extra} = [" in project
    assert port in WITHOUT


@pytest.mark.usefixtures("installed")
def test_the_adapter_of_another_package_is_found_by_its_scheme() -> None:
    broker = broker_of("memory://")
    assert type(broker).__module__ == "their_broker"
    assert type(broker).__name__ == "MemoryBroker"
    assert "memory" in schemes_of("broker")
    assert "memory" not in schemes_of("cache")
    assert find_adapter("cache", "memory://") is None


def test_an_unknown_scheme_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInput) as refused:
        broker_of("carrier-pigeon://user:secret@loft")
    said = str(refused.value)
    assert "broker: 'carrier-pigeon://user:***@loft' names no kind of broker" in said
    assert "redis, redis+cluster" in said
    assert "leave it out: then workers claim from the store" in said


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"needs redis and hiredis, which are not .*mainspring\[redis\]"):
        broker_of("redis://127.0.0.1")


async def test_without_a_url_the_store_serves(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "a.db"), SystemClock())
    assert open_broker(Settings(), SystemClock(), Metrics()) is None
    lease = open_lease(Settings(), store, SystemClock())
    hold = await lease.acquire("scheduler", "a", 1_000_000)
    assert hold is not None
    assert await store.holders("scheduler") == ["a"]
    assert open_sinks(Settings(), SystemClock(), store.metrics) == {}
    await store.close()


class TestTheExample(BrokerConformance):
    """The broker of examples/own_adapter, under the suite that its author would run."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(str(tmp_path / "test.db"), clock)
        yield store
        await store.close()

    @pytest.fixture
    def broker(self, clock: ManualClock) -> MemoryBroker:
        return MemoryBroker("memory://", AdapterContext(clock=clock))

    @pytest.fixture
    def elapse(self, clock: ManualClock) -> Elapse:
        async def elapse(duration: Duration) -> None:
            clock.advance(duration)

        return elapse
