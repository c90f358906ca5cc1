"""The cron of examples/google: one run per job, region and instant, though the zone of the leader is lost."""

import os
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from examples.google.app import app
from examples.google.scenario import REGIONS, Elector, play
from mainspring.core.schedules.triggers import CronTrigger


@pytest.mark.brokers
@pytest.mark.electors
@pytest.mark.parametrize("elector", ["etcd", "zookeeper"])
async def test_jobs_go_on_in_all_regions_though_the_zone_of_the_leader_is_lost(
    elector: Elector, tmp_path: Path
) -> None:
    outcome = await play(elector, tmp_path)
    assert outcome.verdict.ok, str(outcome.verdict)
    assert {1, 2, 4, 5, 6, 7, 17, 19} <= set(outcome.verdict.judged)
    assert outcome.terms >= 2
    overloaded = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    assert overloaded or outcome.failover_s < 2, "a new leader, as quickly as the source asks"
    assert outcome.topics == {f"cron-jobs-{region}" for region in REGIONS}
    assert {"us-west", "eu", "asia"} <= outcome.during
    for job, period_s in {"cache-clear": 2, "metrics-export": 1, "garbage-collection": 4}.items():
        gaps = {later - earlier for earlier, later in pairwise(sorted(outcome.instants[job]))}
        assert gaps <= {timedelta(seconds=period_s)}, f"no instant of {job} is left out"
    expected = {(job, region, at) for job, ats in outcome.instants.items() for at in ats for region in REGIONS}
    assert set(outcome.runs) == expected, "each instant was executed in each region"
    assert set(outcome.runs.values()) == {1}, "by one run"
    assert outcome.cached == 0
    assert outcome.garbage == 0


def test_the_jobs_of_the_source_come_from_the_configuration_file() -> None:
    jobs = {job.name: job for job in app.declared_jobs(0)}
    assert {name: job.trigger for name, job in jobs.items()} == {
        "cache-clear": CronTrigger("0 * * * *"),
        "metrics-export": CronTrigger("*/5 * * * *"),
        "garbage-collection": CronTrigger("0 3 * * *"),
    }
    assert {job.policy.regions for job in jobs.values()} == {REGIONS}
