"""The cluster of examples/airbnb: every due instant has its outcome, also those of an outage of all nodes."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from examples.airbnb.app import app
from examples.airbnb.scenario import OUTAGE_S, play
from mainspring.core.instants import SECOND
from mainspring.core.schedules.triggers import AfterTrigger, CronTrigger


async def test_a_cluster_makes_up_for_an_outage_of_all_its_nodes(tmp_path: Path) -> None:
    outcome = await play(tmp_path)
    assert outcome.verdict.ok, str(outcome.verdict)
    assert {1, 3, 4, 5, 6, 14, 15, 19, 21} <= set(outcome.verdict.judged)

    assert len(outcome.workers) > 1, "another goes on where one has died"
    gaps = {later - earlier for earlier, later in pairwise(outcome.instants)}
    assert gaps == {timedelta(seconds=1)}, "each instant of the reminders is in the ledger"
    assert outcome.reminders == dict.fromkeys(outcome.instants, 1), "each was sent by one run"
    assert set(outcome.outcomes["remind_guests"]) == {"succeeded"}

    assert outcome.outcomes["sync_calendars"]["missed"] >= 1
    assert outcome.outcomes["refresh_trending"]["missed"] >= OUTAGE_S - 2
    assert outcome.outcomes["refresh_trending"]["succeeded"] >= 1

    assert outcome.chain[0] == "sync_calendars"
    assert "publish_search_index" in outcome.chain
    for position, job in enumerate(outcome.chain):
        upstream = {"smart_pricing": "sync_calendars", "publish_search_index": "smart_pricing"}.get(job)
        if upstream is not None:
            assert outcome.chain[:position].count(upstream) >= outcome.chain[: position + 1].count(job)

    assert sum(outcome.report.values()) > 0, "hosts see the stays to come"
    local = [due.astimezone(ZoneInfo("America/Los_Angeles")) for due in outcome.reports]
    assert {due.hour for due in local} == {2}
    assert all(due.weekday() < 5 for due in local), "reports are due on business days"


def test_check_in_chain_and_cron_are_those_of_the_source() -> None:
    jobs = {job.name: job.trigger for job in app.declared_jobs(0)}
    assert (app.settings.coordination, app.settings.check_in, app.settings.concurrency) == ("cluster", 5 * SECOND, 10)
    assert jobs["host_report"] == CronTrigger("0 0 2 * * ?", "America/Los_Angeles", "quartz")
    assert jobs["smart_pricing"] == AfterTrigger(("sync_calendars",))
    assert jobs["publish_search_index"] == AfterTrigger(("smart_pricing",))
