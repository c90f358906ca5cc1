"""Deadlines: first a warning, for work that can receive one, then the end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import deeds
import pytest
from scene import LEVELS, Attempt, Crowd, Scene, crowd_of, scene_of, until

from mainspring import Mainspring
from mainspring.core.instants import SECOND, format_instant, parse_instant
from mainspring.errors import InvalidInput

TASKS = deeds.app.tasks


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    async with crowd_of(TASKS, concurrency=4) as crowd:
        yield crowd


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of() as scene:
        yield scene


async def warm_up(crowd: Crowd) -> None:
    """The fork server runs: the first program has to wait for that."""
    assert (await crowd.run(Attempt("command", {"argv": ["true"]}))).state == "succeeded"


class TestWarnings:
    @pytest.mark.parametrize("task", [deeds.heed, deeds.heed_in_thread, deeds.heed_async], ids=lambda task: task.name)
    async def test_a_function_sees_that_it_is_overdue_and_may_return_in_time(self, crowd: Crowd, task: Any) -> None:
        isolation = task.defaults.options.isolation
        report = await crowd.run(Attempt(task.name, {}, timeout="60s", soft_timeout="50ms", isolation=isolation))
        assert (report.state, json.loads(report.result or "")) == ("succeeded", False)
        assert crowd.said("log") == ["past its soft deadline of 50ms; it will be stopped at 1m"]

    async def test_a_function_that_is_late_and_ends_before_the_warning_is_late_all_the_same(self, crowd: Crowd) -> None:
        report = await crowd.run(Attempt("hog_until_overdue", {}, soft_timeout="50ms"))
        assert (report.state, crowd.said("log")) == ("succeeded", ["past its soft deadline of 50ms"])

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_command_gets_the_signal_that_it_asks_for_and_what_it_started_does_not(
        self, scene: Scene, level: str
    ) -> None:
        script = "(sleep 0.3; echo child lives) & trap 'echo warned' USR1; echo ready; wait; wait"
        attempt = Attempt("command", {"argv": ["sh", "-c", script], "warn": "USR1"}, isolation=level)
        task = scene.begin(attempt)
        await until(lambda: attempt.said() == ["ready"])
        attempt.on_overdue()
        assert (await task).kind == "succeeded"
        assert attempt.said() == ["ready", "warned", "child lives"]

    async def test_it_gets_the_signal_at_its_soft_deadline(self, crowd: Crowd) -> None:
        script = "trap 'echo warned; exit 0' HUP; while :; do sleep 0.02; done"
        spec = {"argv": ["sh", "-c", script], "warn": "HUP"}
        await warm_up(crowd)
        report = await crowd.run(Attempt("command", spec, timeout="60s", soft_timeout="2s"))
        assert (report.state, crowd.said("stdout")) == ("succeeded", ["warned"])

    async def test_a_command_that_asks_for_none_gets_none_and_is_killed_at_its_deadline(self, crowd: Crowd) -> None:
        script = 'echo "$MAINSPRING_SOFT_DEADLINE $MAINSPRING_DEADLINE"; exec sleep 60'
        await warm_up(crowd)
        attempt = Attempt("command", {"argv": ["sh", "-c", script]}, timeout="2s", soft_timeout="500ms")
        report = await crowd.run(attempt)
        assert report.outcome == "timed_out"
        soft, hard = crowd.said("stdout")[0].split()
        assert parse_instant(hard, "") - parse_instant(soft, "") == 3 * SECOND // 2
        assert hard == format_instant(attempt.started_at + 2 * SECOND)
        assert crowd.said("log") == ["past its soft deadline of 500ms; it will be stopped at 2s"]

    async def test_without_a_deadline_there_may_be_a_warning_all_the_same(self, crowd: Crowd) -> None:
        report = await crowd.run(Attempt("heed_async", {}, soft_timeout="500ms"))
        assert report.state == "succeeded"
        assert crowd.said("log") == ["past its soft deadline of 500ms"]

    async def test_one_that_is_done_by_then_hears_nothing(self, crowd: Crowd) -> None:
        await crowd.run(Attempt("echo", {"value": 1}, timeout="60s", soft_timeout="1500ms", isolation="none"))
        await asyncio.sleep(1.6)
        assert crowd.said("log") == []

    def test_a_warning_after_the_end_is_refused(self) -> None:
        app = Mainspring()
        with pytest.raises(InvalidInput, match="not shorter than the timeout of 1m"):
            app.task(timeout="1m", soft_timeout="1m")(print)
        task = app.task(name="other", timeout="1m", soft_timeout="50s")(lambda: None)
        with pytest.raises(InvalidInput, match="soft_timeout"):
            task.options(timeout="10s")


class TestEnds:
    async def test_past_its_deadline_a_command_is_asked_and_then_killed(self, crowd: Crowd) -> None:
        script = "trap 'echo asked' TERM; while :; do sleep 0.02; done"
        await warm_up(crowd)
        attempt = Attempt("command", {"argv": ["sh", "-c", script]}, timeout="2s")
        attempt.grace_s = 1.0
        report = await crowd.run(attempt)
        assert report.outcome == "timed_out"
        assert crowd.said("stdout")[0] == "asked"

    async def test_an_async_function_is_cancelled(self, crowd: Crowd) -> None:
        report = await crowd.run(Attempt("sleep_async", {}, timeout="50ms"))
        assert report.outcome == "timed_out"

    async def test_one_that_catches_its_end_does_not_outlive_its_grace(self, crowd: Crowd) -> None:
        code = "import time\nwhile True:\n  try: time.sleep(60)\n  except BaseException: pass"
        attempt = Attempt("command", {"argv": [sys.executable, "-S", "-c", code]}, timeout="100ms")
        attempt.grace_s = 0.1
        assert (await crowd.run(attempt)).outcome == "timed_out"
