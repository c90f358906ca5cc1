"""The time processor of examples/uber: deadlines, priorities without starvation, and one payout per driver."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from examples.uber.app import app
from examples.uber.scenario import DRIVERS, FUTURE, RIDERS, play
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger


@pytest.mark.brokers
async def test_every_driver_is_paid_once_in_time_beside_a_flood_of_analytics(tmp_path: Path) -> None:
    outcome = await play(tmp_path)
    assert outcome.verdict.ok, str(outcome.verdict)
    assert {1, 2, 3, 4, 5, 6, 9, 11, 12, 13, 14, 19} <= set(outcome.verdict.judged)
    assert outcome.payouts == DRIVERS
    assert outcome.promotions == RIDERS
    assert outcome.stuck_attempts >= 2, "the deadline killed the call that hung, and it was retried"
    assert outcome.payouts_overtake, "payouts do not wait for the analytics before them"
    assert outcome.analytics_go_on, "analytics do not starve beside payouts"
    assert outcome.refused == 422
    assert outcome.scheduled_late_s >= 0, "no run begins before its instant"
    assert outcome.waiting == FUTURE
    assert set(outcome.surges.values()) == {1}, "each instant of the surge prices was calculated by one run"
    assert outcome.factors == {"downtown": 1, "airport": 1 + RIDERS / 100, "stadium": 1}
    local = [day.astimezone(ZoneInfo("America/Los_Angeles")) for day in outcome.payout_days]
    assert {(day.weekday(), day.hour) for day in local} == {(0, 9)}, "Mondays at nine, in summer and in winter"
    assert len({day.utcoffset() for day in local}) == 2


def test_schedules_pools_and_deadlines_are_those_of_the_source() -> None:
    assert {job.name: job.trigger for job in app.declared_jobs(0)} == {
        "driver_payouts": CronTrigger("0 9 * * MON", "America/Los_Angeles"),
        "surge_pricing": EveryTrigger(30 * SECOND),
        "weekly_promotions": CronTrigger("0 12 * * FRI", "America/Los_Angeles"),
    }
    assert dict(app.settings.pools) == {1: 100, 2: 50, 3: 20}
    assert dict(app.settings.deadlines) == {1: MINUTE, 2: 5 * MINUTE, 3: 30 * MINUTE}
