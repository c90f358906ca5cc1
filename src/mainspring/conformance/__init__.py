"""What an adapter must do, as tests that anybody can run over their own.

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

For a lease it is `LeaseConformance`, for a broker `BrokerConformance`: their docstrings name the fixtures.
"""

from __future__ import annotations

from mainspring.conformance.broker import BrokerConformance
from mainspring.conformance.lease import LeaseConformance
from mainspring.conformance.store.api import ApiSuite
from mainspring.conformance.store.audit import AuditSuite
from mainspring.conformance.store.backfill import BackfillSuite
from mainspring.conformance.store.dispatch import DispatchSuite
from mainspring.conformance.store.events import EventSuite
from mainspring.conformance.store.fitting import FittingSuite
from mainspring.conformance.store.jobs import JobSuite
from mainspring.conformance.store.leases import LeaseSuite
from mainspring.conformance.store.maintenance import MaintenanceSuite
from mainspring.conformance.store.overview import OverviewSuite
from mainspring.conformance.store.plans import PlanSuite
from mainspring.conformance.store.pressure import PressureSuite
from mainspring.conformance.store.runs import RunSuite
from mainspring.conformance.store.work import WorkSuite

__all__ = ["BrokerConformance", "LeaseConformance", "StoreConformance"]


class StoreConformance(
    JobSuite,
    PlanSuite,
    BackfillSuite,
    RunSuite,
    OverviewSuite,
    WorkSuite,
    DispatchSuite,
    FittingSuite,
    MaintenanceSuite,
    PressureSuite,
    LeaseSuite,
    EventSuite,
    ApiSuite,
    AuditSuite,
):
    """All guarantees of the store port. Subclass it and provide the fixtures `store` and `clock`."""
