"""The runner of a worker: a bounded number of attempts at once, in order, each ended once whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest
from stage import JumpingClock, let_others_run, let_pass, until

from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Failure, RunOptions
from mainspring.executor import AttemptContext, Outcome, StopKind
from mainspring.services.worker import runner as runner_module
from mainspring.services.worker.runner import Runner

DONE = Outcome("succeeded", "null")
Act = Callable[[AttemptContext], Awaitable[Outcome]]


PLAIN = RunOptions()


def attempt_of(run_id: str, options: RunOptions = PLAIN, token: int = 1) -> AttemptContext:
    return AttemptContext(Claim(run_id, token, "task", "{}", "{}", 0, 0, 5, 0, "default", None, None, 0, 0), options)


class Stage:
    """A runner whose attempts do what the test says."""

    def __init__(self, clock: JumpingClock, act: Act, concurrency: int = 2) -> None:
        self.started: list[str] = []
        self.running = self.most = 0
        self._act = act
        self.ended = 0
        self.runner = Runner(lambda _: self, concurrency, clock, clock.now, clock.now, self._tell)

    def _tell(self) -> None:
        self.ended += 1

    async def run(self, attempt: AttemptContext) -> Outcome:
        """The executor."""
        self.started.append(attempt.claim.run_id)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._act(attempt)
        finally:
            self.running -= 1

    @property
    def reports(self) -> dict[str, str]:
        """What was reported, by run."""
        return {report.run_id: report.outcome for report in self.runner.done}


async def test_never_more_than_the_concurrency_run_at_once(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        await clock.sleep(1 + int(attempt.claim.run_id) % 3)
        return DONE

    stage = Stage(clock, act, concurrency=7)
    for start in range(0, 100, 10):
        stage.runner.begin([attempt_of(str(number)) for number in range(start, start + 10)])
    await let_pass(clock, "60s")
    assert stage.most == 7
    assert len(stage.runner.done) == stage.ended == 100
    assert stage.runner.busy == 0


async def test_attempts_start_in_the_order_in_which_they_came(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        await clock.sleep(1)
        return DONE

    stage = Stage(clock, act)
    stage.runner.begin([attempt_of(name) for name in "abc"])
    stage.runner.begin([attempt_of(name) for name in "de"])
    await let_pass(clock, "10s")
    assert "".join(stage.started) == "abcde"


async def test_settling_waits_for_all_of_them(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        await asyncio.sleep(0)
        return DONE

    stage = Stage(clock, act)
    stage.runner.begin([attempt_of(str(number)) for number in range(20)])
    await stage.runner.settle()
    assert len(stage.runner.done) == 20


async def test_an_executor_that_fails_ends_the_run_and_frees_its_place(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        raise OSError("\ud800")

    stage = Stage(clock, act, concurrency=1)
    stage.runner.begin([attempt_of("a"), attempt_of("b")])
    await stage.runner.settle()
    assert stage.reports == {"a": "failed", "b": "failed"}


async def test_a_run_past_its_deadline_is_stopped_even_if_it_ends_well(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return DONE
        return DONE

    stage = Stage(clock, act)
    stage.runner.begin([attempt_of("a", RunOptions(timeout=SECOND // 50))])
    await until(lambda: stage.runner.done)
    assert stage.reports == {"a": "timed_out"}


async def test_the_deadline_of_a_run_that_has_ended_stops_no_other(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        await asyncio.sleep(0.06 if attempt.claim.token == 2 else 0)
        return DONE

    stage = Stage(clock, act)
    stage.runner.begin([attempt_of("a", RunOptions(timeout=SECOND // 50))])
    await until(lambda: stage.runner.done)
    stage.runner.begin([attempt_of("a", token=2)])
    await until(lambda: len(stage.runner.done) == 2)
    assert [report.outcome for report in stage.runner.done] == ["succeeded", "succeeded"]


class TestManyAtOnce:
    """Attempts that end at once share a task; the result must be the same."""

    NAMES = tuple(f"{number:03}" for number in range(250))

    async def test_each_runs_once_in_order_and_few_tasks_are_made(self, clock: JumpingClock) -> None:
        tasks = set()

        async def act(attempt: AttemptContext) -> Outcome:
            tasks.add(asyncio.current_task())
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of(name) for name in self.NAMES])
        await stage.runner.settle()
        assert stage.started == [*self.NAMES] == [*stage.reports]
        assert len(tasks) == 3

    async def test_one_that_waits_delays_no_other(self, clock: JumpingClock) -> None:
        async def act(attempt: AttemptContext) -> Outcome:
            if attempt.claim.run_id == "007":
                await clock.sleep(60)
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of(name) for name in self.NAMES])
        await until(lambda: len(stage.runner.done) == len(self.NAMES) - 1)
        assert stage.runner.under_way("007") is not None
        stage.runner.stop("007", "cancelled", "why")
        await let_others_run()
        assert stage.reports["007"] == "cancelled"

    async def test_they_may_use_what_needs_a_task_of_their_own(self, clock: JumpingClock) -> None:
        async def act(attempt: AttemptContext) -> Outcome:
            try:
                async with asyncio.timeout(0.01 if attempt.claim.run_id == "005" else 60), asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(60 if attempt.claim.run_id == "005" else 0))
            except TimeoutError:
                return Outcome("skipped")
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of(name) for name in self.NAMES])
        await stage.runner.settle()
        assert {name for name in self.NAMES if stage.reports[name] == "skipped"} == {"005"}

    async def test_none_sees_the_context_variables_of_another(self, clock: JumpingClock) -> None:
        variable, seen = ContextVar("variable", default=""), set()

        async def act(attempt: AttemptContext) -> Outcome:
            seen.add(variable.get())
            variable.set(attempt.claim.run_id)
            if attempt.claim.run_id > "200":
                await asyncio.sleep(0)
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of(name) for name in self.NAMES])
        await stage.runner.settle()
        assert (len(stage.runner.done), seen) == (len(self.NAMES), {""})

    async def test_none_is_hit_by_the_cancellation_of_another(self, clock: JumpingClock) -> None:
        async def act(attempt: AttemptContext) -> Outcome:
            this = asyncio.current_task()
            assert this is not None
            if attempt.claim.run_id == "003":
                this.cancel()
            elif attempt.claim.run_id == "004":
                await asyncio.sleep(0)
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of(name) for name in self.NAMES])
        await stage.runner.settle()
        assert set(stage.reports.values()) == {"succeeded"}


class TestSwallowedCancellation:
    @pytest.fixture(autouse=True)
    def _impatience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner_module, "INSIST_S", 0.01)

    @staticmethod
    def deaf_for(times: int) -> Act:
        async def act(attempt: AttemptContext) -> Outcome:
            attempt.grace_s = 0.0
            for _ in range(times):
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue
            await asyncio.sleep(0.05)
            return DONE

        return act

    async def test_it_is_cancelled_again(self, clock: JumpingClock) -> None:
        stage = Stage(clock, self.deaf_for(3))
        stage.runner.begin([attempt_of("a")])
        await let_others_run()
        stage.runner.stop("a", "cancelled", "why")
        await until(lambda: stage.runner.done)
        assert stage.reports == {"a": "cancelled"}
        assert stage.running == 0

    async def test_in_the_end_it_is_left_to_itself_and_its_place_is_free(
        self, clock: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage = Stage(clock, self.deaf_for(10), concurrency=1)
        stage.runner.begin([attempt_of("a"), attempt_of("b")])
        await let_others_run()
        stage.runner.stop("a", "cancelled", "why")
        await until(lambda: stage.runner.done)
        assert stage.reports == {"a": "cancelled"}
        assert "run a ignores its cancellation" in caplog.text
        await until(lambda: stage.started == ["a", "b"])

    async def test_its_later_outcome_is_not_reported(self, clock: JumpingClock) -> None:
        given_up = asyncio.Event()

        async def act(attempt: AttemptContext) -> Outcome:
            attempt.grace_s = 0.0
            while not given_up.is_set():
                try:
                    await given_up.wait()
                except asyncio.CancelledError:
                    continue
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of("a")])
        await let_others_run()
        stage.runner.stop("a", "cancelled", "why")
        await until(lambda: stage.runner.done)
        given_up.set()
        await until(lambda: stage.running == 0)
        assert [report.outcome for report in stage.runner.done] == ["cancelled"]


class TestStopping:
    @staticmethod
    async def forever(attempt: AttemptContext) -> Outcome:
        await asyncio.sleep(60)
        return DONE

    async def test_the_first_reason_counts(self, clock: JumpingClock) -> None:
        stage = Stage(clock, self.forever)
        stage.runner.begin([attempt_of("a")])
        await let_others_run()
        stage.runner.stop("a", "cancelled", "first")
        stage.runner.stop("a", "handed_back")
        await let_others_run()
        assert [report.reason for report in stage.runner.done] == ["first"]

    async def test_but_the_loss_of_a_claim_counts_more(self, clock: JumpingClock) -> None:
        stage = Stage(clock, self.forever)
        stage.runner.begin([attempt_of("a")])
        await let_others_run()
        stage.runner.stop("a", "cancelled", "first")
        stage.runner.stop("a", "fenced")
        await let_others_run()
        assert not stage.runner.done
        assert not stage.runner.returned

    @pytest.mark.parametrize(("kind", "returned"), [("handed_back", ["a"]), ("cancelled", ["a"]), ("fenced", [])])
    async def test_one_that_waits_for_room_never_starts(
        self, clock: JumpingClock, kind: StopKind, returned: list[str]
    ) -> None:
        stage = Stage(clock, self.forever, concurrency=1)
        stage.runner.begin([attempt_of("z"), attempt_of("a")])
        await let_others_run()
        stage.runner.stop("a", kind)
        stage.runner.stop("z", "fenced")
        await let_others_run()
        assert stage.started == ["z"]
        assert [run_id for run_id, _ in stage.runner.returned] == returned
        assert not stage.runner.done

    @pytest.mark.parametrize(("kind", "returned"), [("handed_back", ["a"]), ("cancelled", ["a"]), ("fenced", [])])
    async def test_one_that_has_not_taken_its_first_step_never_does(
        self, clock: JumpingClock, kind: StopKind, returned: list[str]
    ) -> None:
        stage = Stage(clock, self.forever, concurrency=1)
        stage.runner.begin([attempt_of("a"), attempt_of("b")])
        stage.runner.stop("a", kind)
        await let_others_run()
        assert stage.started == ["b"]
        assert [run_id for run_id, _ in stage.runner.returned] == returned
        assert stage.runner.busy == 1

    async def test_what_was_stopped_to_be_handed_back_but_succeeded_has_succeeded(self, clock: JumpingClock) -> None:
        async def act(attempt: AttemptContext) -> Outcome:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return DONE
            return DONE

        stage = Stage(clock, act)
        stage.runner.begin([attempt_of("a")])
        await let_others_run()
        stage.runner.stop("a", "handed_back")
        await let_others_run()
        assert stage.reports == {"a": "succeeded"}
        assert not stage.runner.returned

    async def test_a_run_that_is_unknown_here_is_no_error(self, clock: JumpingClock) -> None:
        Stage(clock, self.forever).runner.stop("a", "cancelled")

    def test_where_the_users_loop_ends_the_runs_are_handed_back_and_none_begins(self, clock: JumpingClock) -> None:
        """They were not cancelled, and they have not failed."""

        async def main() -> Stage:
            stage = Stage(clock, self.forever)
            stage.runner.begin([attempt_of(name) for name in "abc"])
            await let_others_run()
            return stage

        stage = asyncio.run(main())
        assert sorted(run_id for run_id, _ in stage.runner.returned) == ["a", "b"]
        assert not stage.runner.done
        assert stage.started == ["a", "b"]


async def test_a_failure_of_an_executor_carries_its_message(clock: JumpingClock) -> None:
    async def act(attempt: AttemptContext) -> Outcome:
        return Outcome("failed", failure=Failure("Odd", ""), final=True)

    stage = Stage(clock, act)
    stage.runner.begin([attempt_of("a")])
    await stage.runner.settle()
    (report,) = stage.runner.done
    assert (report.state, report.reason) == ("failed", "Odd; not retried, for the same would happen again")
