"""The runs of a firing, and what unfinished ones mean for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.core.instants import HOUR, MINUTE, parse_instant
from mainspring.core.model import Gate, Job, JobPolicy, Overlap
from mainspring.core.planning.plans import AGED, Admit, Refuse, Replace, admit, jitter_of, make_runs
from mainspring.core.schedules.triggers import EveryTrigger

START = parse_instant("2026-03-26T12:00:00Z")


def a_job(policy: JobPolicy) -> Job:
    return Job("j" * 26, "report", "report", EveryTrigger(HOUR), policy=policy, created_at=START)


class TestRuns:
    def test_there_is_one_for_each_region_and_index_with_ids_of_their_own(self) -> None:
        job = a_job(JobPolicy(regions=("eu", "us"), completions=3, parallelism=2))
        runs = make_runs(job, START, START + 1)
        assert [(run.region, run.idx) for run in runs] == [(region, idx) for region in ("eu", "us") for idx in range(3)]
        assert len({run.id for run in runs}) == 6
        assert {run.gates for run in runs} == {(Gate(f"firing:{job.id}:{START}", 2),)}

    def test_jitter_is_bounded_stable_and_differs_between_jobs(self) -> None:
        jobs = [replace(a_job(JobPolicy(jitter=MINUTE)), id=f"job{n}") for n in range(100)]
        delays = [jitter_of(job) for job in jobs]
        assert all(0 <= delay < MINUTE for delay in delays)
        assert len(set(delays)) > 90
        assert [make_runs(job, START, START)[0].due_at - START for job in jobs] == delays

    def test_one_that_is_made_late_is_not_older_than_it_is(self) -> None:
        job = a_job(JobPolicy())
        assert make_runs(job, START, START + AGED)[0].due_at == START
        assert make_runs(job, START, START + AGED + 1)[0].due_at == START + AGED + 1
        assert make_runs(job, START, START - 1)[0].due_at == START

    def test_a_starting_deadline_goes_with_the_run(self) -> None:
        job = a_job(JobPolicy(start_deadline=5 * MINUTE))
        assert make_runs(job, START, START)[0].expires_at == START + 5 * MINUTE

    def test_a_limit_is_a_gate_and_a_key_or_a_queue_is_a_line(self) -> None:
        job = replace(a_job(JobPolicy(overlap="queue")), limit=4, key="v1")
        (run,) = make_runs(job, START, START)
        assert run.gates == (Gate("task:report", 4),)
        assert run.lines == (Gate("key:v1", 1), Gate(f"job:{job.id}:default", 1))


class TestOverlap:
    @pytest.mark.parametrize("overlap", ["allow", "queue", "forbid", "replace"])
    def test_without_unfinished_runs_every_policy_admits(self, overlap: Overlap) -> None:
        assert isinstance(admit(a_job(JobPolicy(overlap=overlap)), []), Admit)

    def test_with_unfinished_runs_the_policy_decides(self) -> None:
        unfinished = ["old", "older"]
        assert isinstance(admit(a_job(JobPolicy(overlap="allow")), unfinished), Admit)
        assert isinstance(admit(a_job(JobPolicy(overlap="queue")), unfinished), Admit)
        assert admit(a_job(JobPolicy(overlap="forbid")), unfinished) == Refuse("overlap=forbid: run old had not ended")
        assert admit(a_job(JobPolicy(overlap="replace")), unfinished) == Replace(("old", "older"))
