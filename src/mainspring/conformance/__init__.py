"""What an adapter must do, as tests that authors of adapters can run over their own.

For a store, with pytest and pytest-asyncio (`asyncio_mode = "auto"`):

    # conftest.py, so that a failed assertion shows its values
    pytest.register_assert_rewrite("mainspring.conformance")

    # test_my_store.py
    from mainspring.conformance import StoreConformance
    from mainspring.testing.clock import ManualClock

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def clock(self):
            return ManualClock()

        @pytest.fixture
        async def store(self, clock):
            store = await MyStore.open(clock)
            yield store
            await store.close()

Each test gets an empty store of its own, which takes its time from `clock`: a claim that should expire does so when the
test moves the clock. The suite speaks to the store through its port alone. Every test states a guarantee on which the
rest of the program relies; none may be left out.

For a lease it is `LeaseConformance`, or `WatchedLeaseConformance` if it calls back by itself; for a broker it is
`BrokerConformance`. Their docstrings name the fixtures.
"""

from __future__ import annotations

from mainspring.conformance.broker import BrokerConformance
from mainspring.conformance.lease import LeaseConformance, WatchedLeaseConformance
from mainspring.conformance.store.claims.dispatch import DispatchSuite
from mainspring.conformance.store.claims.leases import LeaseSuite
from mainspring.conformance.store.claims.work import WorkSuite
from mainspring.conformance.store.definitions.backfill import BackfillSuite
from mainspring.conformance.store.definitions.jobs import JobSuite
from mainspring.conformance.store.definitions.plans import PlanSuite
from mainspring.conformance.store.definitions.zones import ZoneSuite
from mainspring.conformance.store.ends.maintenance import MaintenanceSuite
from mainspring.conformance.store.ends.regions import RegionSuite
from mainspring.conformance.store.history.api import ApiSuite
from mainspring.conformance.store.history.audit import AuditSuite
from mainspring.conformance.store.history.events import EventSuite
from mainspring.conformance.store.history.insight import InsightSuite
from mainspring.conformance.store.history.overview import OverviewSuite
from mainspring.conformance.store.submissions.fitting import FittingSuite
from mainspring.conformance.store.submissions.pressure import PressureSuite
from mainspring.conformance.store.submissions.runs import RunSuite
from mainspring.conformance.store.submissions.unique import UniqueSuite

__all__ = ["BrokerConformance", "LeaseConformance", "StoreConformance", "WatchedLeaseConformance"]


class StoreConformance(
    JobSuite,
    PlanSuite,
    ZoneSuite,
    BackfillSuite,
    RunSuite,
    UniqueSuite,
    OverviewSuite,
    WorkSuite,
    DispatchSuite,
    FittingSuite,
    MaintenanceSuite,
    RegionSuite,
    PressureSuite,
    LeaseSuite,
    EventSuite,
    InsightSuite,
    ApiSuite,
    AuditSuite,
):
    """All guarantees of the store port. Subclass it and provide the fixtures `store` and `clock`."""
