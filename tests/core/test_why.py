"""Why is it not running? Every answer names what is missing and what to do about it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, format_duration, parse_duration, parse_instant
from mainspring.core.model import Edge, Job, JobPolicy, Run, Worker
from mainspring.core.runs.why import Crowd, GateUse, about, why_not_firing, why_not_running
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
)
from mainspring.core.states import FINAL, STATES, State

NOW = parse_instant("2026-03-01T12:00:00Z")
DEAD_AFTER = 10 * SECOND


def a_run(**changes: object) -> Run:
    run = Run(
        id="run-1", namespace="default", queue="default", region="default", task="encode", args="{}", state="pending",
        reason="", priority=5, due_at=NOW - MINUTE, created_at=NOW - MINUTE, options="{}",
    )  # fmt: skip
    return msgspec.structs.replace(run, **changes)


def a_worker(name: str = "w1", **changes: object) -> Worker:
    worker = Worker(id=name, tasks=("encode", "thumbnail"), concurrency=4, heartbeat_at=NOW - SECOND)
    return msgspec.structs.replace(worker, **changes)


def a_job(trigger: Trigger | None = None, **changes: object) -> Job:
    job = Job("job-1", "nightly", "encode", trigger or CronTrigger("0 2 * * *"), created_at=NOW - DAY)
    return msgspec.structs.replace(job, **changes)


def crowd(*workers: Worker) -> Crowd:
    return Crowd(workers, NOW, DEAD_AFTER)


def why(
    run: Run, *workers: Worker, job: Job | None = None, upstream: tuple[Run, ...] = (), gate: GateUse | None = None
) -> list[str]:
    causes = why_not_running(run, job=job, upstream=upstream, gate=gate, crowd=crowd(*workers))
    return [cause.sentence for cause in causes]


def why_job(job: Job, *edges: Edge, workers: tuple[Worker, ...] = (a_worker(),)) -> list[str]:
    return [cause.sentence for cause in why_not_firing(job, edges=edges, crowd=crowd(*workers))]


class TestRunsWithoutAWorker:
    def test_no_worker_at_all(self) -> None:
        (sentence,) = why(a_run())
        assert sentence == "No worker is running. Start one with `mainspring worker APP`, or `mainspring up`."

    @pytest.mark.parametrize(
        "gone", [a_worker(heartbeat_at=NOW - MINUTE), a_worker(state="stopped"), a_worker(state="dead")]
    )
    def test_a_worker_that_is_silent_or_gone_is_none_but_is_named(self, gone: Worker) -> None:
        (sentence,) = why(a_run(), gone)
        assert sentence.startswith("No worker is running; the last was w1, ")

    def test_no_worker_for_its_queue(self) -> None:
        (sentence,) = why(a_run(queue="films"), a_worker(), a_worker("w2", queues=("mail", "default")))
        assert "No worker serves queue films (served: default, mail)" in sentence
        assert "--queue films" in sentence

    def test_no_worker_in_its_region(self) -> None:
        (sentence,) = why(a_run(region="eu"), a_worker(regions=("us",)))
        assert "serves region eu (served: us)" in sentence
        assert "--region eu" in sentence

    def test_no_worker_knows_its_task(self) -> None:
        (sentence,) = why(a_run(task="encoed"), a_worker())
        assert "knows task encoed" in sentence
        assert "did you mean encode?" in sentence

    def test_queue_region_and_task_must_meet_in_one_worker(self) -> None:
        (sentence,) = why(a_run(queue="films"), a_worker(), a_worker("w2", queues=("films",), tasks=("mail",)))
        assert "No worker that could take it knows task encode" in sentence
        assert "known: mail" in sentence


class TestDueRuns:
    def test_a_free_worker_takes_it_soon(self) -> None:
        assert why(a_run(), a_worker(running=3)) == ["A worker is free for it: it starts within moments."]

    def test_all_workers_are_busy(self) -> None:
        (sentence,) = why(a_run(), a_worker(running=4), a_worker("w2", running=4), a_worker("w3", tasks=("mail",)))
        assert sentence.startswith("All 2 workers that could take it are busy (8 of 8 slots)")
        assert "(1m ago), at priority 5" in sentence

    def test_the_only_worker_is_busy(self) -> None:
        assert why(a_run(), a_worker(running=4))[0].startswith("The only worker that could take it is busy (4 of 4")

    def test_a_worker_that_drains_takes_nothing(self) -> None:
        assert why(a_run(), a_worker(state="draining")) == ["Every worker that could take it is stopping (w1)."]

    def test_its_starting_deadline_is_reported(self) -> None:
        assert (
            "skipped if not started by 2026-03-01T13:00:00Z (in 1h)" in why(a_run(expires_at=NOW + HOUR), a_worker())[1]
        )

    def test_the_end_of_its_total_timeout_is_reported(self) -> None:
        options = f'{{"total_timeout":3600000000,"give_up_at":{NOW + HOUR}}}'
        assert why(a_run(options=options), a_worker())[1] == (
            "It will fail if not done by 2026-03-01T13:00:00Z (in 1h), when its total timeout ends."
        )


class TestRunsBeforeTheirTime:
    def test_it_is_not_due_yet(self) -> None:
        assert why(a_run(due_at=NOW + 270 * SECOND), a_worker()) == [
            "It is not due until 2026-03-01T12:04:30Z (in 4m30s)."
        ]

    def test_it_waits_for_its_retry(self) -> None:
        assert why(a_run(due_at=NOW + 12 * SECOND, attempt=1), a_worker()) == [
            "Attempt 2 is not due until 2026-03-01T12:00:12Z (in 12s)."
        ]

    def test_that_no_worker_will_take_it_is_said_in_time(self) -> None:
        early, unserved = why(a_run(due_at=NOW + HOUR))
        assert early.startswith("It is not due")
        assert unserved.startswith("No worker is running")

    def test_busy_workers_are_no_reason_yet(self) -> None:
        assert len(why(a_run(due_at=NOW + HOUR), a_worker(running=4))) == 1


class TestBlockedRuns:
    def test_it_waits_for_another_run(self) -> None:
        other = a_run(id="run-0", state="running", task="extract")
        assert why(a_run(state="blocked", waits_for=1), a_worker(), upstream=(other,)) == [
            "It waits for run run-0 (extract, running)."
        ]

    def test_it_stands_in_line_for_its_key(self) -> None:
        other = a_run(id="run-0", state="pending", key="v1", job="films")
        assert why(a_run(state="blocked", key="v1"), a_worker(), upstream=(other,)) == [
            "It stands in line for key v1, behind run run-0 (films, pending)."
        ]

    def test_it_waits_for_an_earlier_run_of_its_job(self) -> None:
        job = a_job(policy=JobPolicy(overlap="queue"))
        other = a_run(id="run-0", state="running", job_id="job-1", job="nightly")
        (sentence,) = why(a_run(state="blocked", job_id="job-1"), a_worker(), job=job, upstream=(other,))
        assert sentence == "It waits for run run-0 (nightly, running) of the same job to end (overlap=queue)."

    def test_its_gate_is_full(self) -> None:
        run = a_run(state="blocked", blocked_on="task:encode")
        assert why(run, a_worker(), gate=GateUse(3, 3)) == ["Gate task:encode is full: 3 of 3 are in."]
        assert "has room again (2 of 3 are in)" in why(run, a_worker(), gate=GateUse(2, 3))[0]
        assert why(run, a_worker()) == ["Gate task:encode is full."]

    def test_of_very_many_only_some_are_named(self) -> None:
        upstream = tuple(a_run(id=f"run-{number}") for number in range(40))
        sentences = why(a_run(state="blocked", waits_for=40), a_worker(), upstream=upstream)
        assert len(sentences) == 6
        assert "35 more runs" in sentences[-1]

    def test_the_moment_between_two_states_has_an_answer_too(self) -> None:
        assert why(a_run(state="blocked"), a_worker()) == ["What it waited for has ended: it goes on within moments."]


class TestRunningRuns:
    def test_one_that_runs_as_it_should_needs_no_word(self) -> None:
        assert why(a_run(state="running", worker="w1", claimed_until=NOW + SECOND), a_worker()) == []

    def test_one_whose_claim_ran_out_waits_for_recovery(self) -> None:
        (sentence,) = why(a_run(state="running", worker="w1", claimed_until=NOW - MINUTE))
        assert sentence.startswith("Worker w1 has let its claim run out at 2026-03-01T11:59:00Z (1m ago)")

    def test_one_that_was_asked_to_stop(self) -> None:
        (sentence,) = why(a_run(state="running", cancel_requested_at=NOW - SECOND, cancel_reason="not needed"))
        assert "asked to stop" in sentence
        assert "(not needed)" in sentence


@given(st.sampled_from(STATES), st.integers(-10, 10), st.booleans(), st.booleans())
def test_every_unfinished_run_that_is_not_running_has_an_answer(
    state: State, due_in: int, has_worker: bool, has_gate: bool
) -> None:
    run = a_run(state=state, due_at=NOW + due_in * SECOND, blocked_on="task:encode" if has_gate else None)
    sentences = why(run, *([a_worker()] if has_worker else []))
    assert bool(sentences) == (state not in FINAL and state != "running")
    assert all(sentence[0].isupper() and sentence[-1] in ".?" for sentence in sentences)


class TestJobs:
    def test_one_that_waits_for_its_next_instant_needs_no_word(self) -> None:
        assert why_job(a_job(next_fire_at=NOW + HOUR)) == []

    def test_a_paused_job_says_since_when_and_how_to_go_on(self) -> None:
        (sentence,) = why_job(a_job(paused_at=NOW - HOUR, paused_why="audit", next_fire_at=NOW - HOUR))
        assert sentence.startswith("It is paused since 2026-03-01T11:00:00Z (1h ago) (audit).")
        assert "`mainspring job resume nightly`" in sentence

    def test_an_overdue_job_has_no_planner(self) -> None:
        assert why_job(a_job(next_fire_at=NOW - SECOND)) == []
        (sentence,) = why_job(a_job(next_fire_at=NOW - HOUR))
        assert "no node has planned it" in sentence
        assert "`mainspring up`" in sentence

    def test_a_manual_job_says_how_to_trigger_it(self) -> None:
        assert "`mainspring job trigger nightly`" in why_job(a_job(ManualTrigger()))[0]

    @pytest.mark.parametrize(
        ("job", "words"),
        [
            (a_job(policy=JobPolicy(max_firings=3), fired=3), "fired 3 of at most 3 times"),
            (a_job(policy=JobPolicy(end_at=NOW - HOUR)), "It ended at 2026-03-01T11:00:00Z (1h ago)"),
            (a_job(policy=JobPolicy(end_at=NOW + HOUR)), "no instant to come before its end at 2026-03-01T13:00:00Z"),
            (a_job(policy=JobPolicy(calendars=("off",))), "Its calendars (off) leave it no instant"),
            (a_job(AtTrigger(NOW - DAY)), "Its one instant was 2026-02-28T12:00:00Z (1d ago)"),
            (a_job(AtTrigger(NOW - 2 * DAY)), "had passed when it was added: it will not fire"),
            (a_job(EveryTrigger(HOUR)), "Its trigger has no instant to come"),
        ],
    )
    def test_a_job_that_is_done_says_what_ended_it(self, job: Job, words: str) -> None:
        (sentence,) = why_job(job)
        assert words in sentence

    def test_an_after_job_names_the_jobs_that_it_waits_for(self) -> None:
        job = a_job(AfterTrigger(("extract", "load", "clean")))
        new, used, none = (
            Edge("job-1", "a", "extract", 5, 9, "succeeded"),
            Edge("job-1", "b", "load", 9, 9),
            Edge("job-1", "c", "clean"),
        )
        assert why_job(job, new, used, none) == [
            "It waits for job load, which has finished nothing newer than 1970-01-01T00:00:00.000009Z.",
            "It waits for job clean, which has finished no firing since.",
        ]

    def test_an_after_job_that_any_may_fire_says_so(self) -> None:
        job = a_job(AfterTrigger(("extract", "load"), when="any_finished"))
        (sentence,) = why_job(job, Edge("job-1", "a", "extract"), Edge("job-1", "b", "load"))
        assert sentence == "It waits for any of the jobs extract, load to finish a firing."

    def test_that_no_worker_could_run_it_is_said_once(self) -> None:
        job = a_job(next_fire_at=NOW + HOUR, policy=JobPolicy(regions=("eu", "us")))
        assert len(why_job(job, workers=())) == 1
        assert len(why_job(job)) == 2


@given(st.integers(0, 100 * 365 * DAY))
def test_a_duration_for_people_has_two_units_and_is_never_longer(duration: int) -> None:
    shown = parse_duration(about(duration))
    assert shown <= duration
    assert duration - shown < max(duration / 2, 1000)
    assert sum(character.isalpha() for character in about(duration).replace("ms", "m")) <= 2


def test_durations_for_people() -> None:
    assert [about(parse_duration(text)) for text in ("1d3h20m", "3h12m10s", "4m30s", "12.5s", "250ms", "0s")] == [
        "1d3h", "3h12m", "4m30s", "12s", "250ms", "0s",
    ]  # fmt: skip
    assert about(499) == format_duration(0)


def test_workers_alone_fire_nothing() -> None:
    job = a_job(next_fire_at=NOW + HOUR)
    (cause,) = why_not_firing(job, edges=(), crowd=crowd(a_worker()), scheduled=False)
    sentence = cause.sentence
    assert sentence.startswith("No scheduler runs, so it will not fire.")
    assert why_not_firing(job, edges=(), crowd=crowd(a_worker()), scheduled=True) == []
    (cause,) = why_not_firing(job, edges=(), crowd=crowd(), scheduled=False)
    sentence = cause.sentence
    assert sentence.startswith("No worker is running."), "where nothing runs, that is enough"


def test_a_cause_names_what_it_refers_to_and_what_to_do() -> None:
    blocked = a_run(state="blocked", blocked_on="task:encode")
    (gate,) = why_not_running(blocked, job=None, upstream=(), gate=GateUse(3, 3), crowd=crowd(a_worker()))
    assert (gate.kind, gate.gate, gate.used, gate.capacity) == ("gate", "task:encode", 3, 3)
    (unserved,) = why_not_running(a_run(queue="films"), job=None, upstream=(), gate=None, crowd=crowd(a_worker()))
    assert (unserved.kind, unserved.queue) == ("queue-unserved", "films")
    assert unserved.remedy == "Start one with `mainspring worker APP --queue films`."
    assert unserved.sentence == f"{unserved.text} {unserved.remedy}"
