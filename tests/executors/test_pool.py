"""Functions in processes: used again, killed and replaced, and nothing of a run is left for the next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import deeds
import pytest
from scene import Attempt, Scene, is_alive, pids_in, scene_of, until

TASKS = deeds.app.tasks


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of(TASKS, concurrency=4) as scene:
        yield scene


@pytest.fixture
async def alone() -> AsyncIterator[Scene]:
    async with scene_of(TASKS, concurrency=1) as scene:
        yield scene


def begin(scene: Scene, task: Any, **args: object) -> tuple[Attempt, asyncio.Task[Any]]:
    attempt = Attempt(task.name, args, isolation="process")
    return attempt, scene.begin(attempt)


class TestReuse:
    async def test_a_process_serves_one_run_after_the_other(self, alone: Scene) -> None:
        pids = [await alone.run(deeds.where) for _ in range(5)]
        assert len(set(pids)) == 1
        assert pids[0] != os.getpid()

    async def test_runs_go_on_at_the_same_time(self, scene: Scene, tmp_path: Path) -> None:
        calls = [{"folder": str(tmp_path), "name": name, "other": other} for name, other in ("ab", "ba")]
        assert await asyncio.gather(*(scene.run(deeds.meet, **call) for call in calls)) == [True, True]

    async def test_more_are_started_while_all_wait_for_something(self, tmp_path: Path) -> None:
        names = [str(number) for number in range(5)]
        async with scene_of(TASKS, concurrency=5) as scene:
            calls = [
                {"folder": str(tmp_path), "name": name, "other": names[index - 1]} for index, name in enumerate(names)
            ]
            assert await asyncio.gather(*(scene.run(deeds.meet, **call) for call in calls)) == [True] * 5

    async def test_it_is_replaced_after_its_limit_of_runs(self) -> None:
        async with scene_of(TASKS, concurrency=1, process_runs=2) as scene:
            pids = [await scene.run(deeds.where) for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]

    async def test_it_is_replaced_when_it_has_grown(self) -> None:
        async with scene_of(TASKS, concurrency=1, process_memory=150_000_000) as scene:
            before = await scene.run(deeds.where)
            assert before == await scene.run(deeds.where), "it is not too large to begin with"
            await scene.run(deeds.grow, size=150_000_000)
            assert await scene.run(deeds.where) != before

    async def test_an_async_function_can_have_a_process_too(self, alone: Scene) -> None:
        assert await alone.run(deeds.where_async) != os.getpid()

    async def test_a_function_can_refuse_a_process_in_spite_of_its_timeout(self, alone: Scene) -> None:
        assert await alone.run(deeds.where_thread) == os.getpid()

    @pytest.mark.parametrize("task", [deeds.where_bounded, deeds.where_async], ids=["deadline", "isolation"])
    async def test_the_options_of_a_function_hold_for_submitters_that_know_only_its_name(
        self, alone: Scene, task: Any
    ) -> None:
        outcome = await alone.execute(Attempt(task.name, {}))
        assert int(outcome.result or 0) not in (0, os.getpid())

    async def test_all_of_them_end_with_the_executors(self) -> None:
        async with scene_of(TASKS, concurrency=2) as scene:
            pid = await scene.run(deeds.where)
            assert is_alive(pid)
        await until(lambda: not is_alive(pid))


class TestCrashes:
    @pytest.mark.parametrize(
        ("how", "end"),
        [("exit", "exited with code 3"), ("segfault", "was killed by SIGSEGV"), ("kill", "was killed by SIGKILL")],
    )
    async def test_the_run_fails_alone_and_the_signal_is_named(self, alone: Scene, how: str, end: str) -> None:
        outcome, _ = await alone.outcome(deeds.crash, how=how)
        assert outcome.kind == "failed"
        assert outcome.failure is not None
        assert outcome.failure.message == f"the process {end} before the function returned"
        assert await alone.run(deeds.where)

    async def test_others_go_on(self, scene: Scene, tmp_path: Path) -> None:
        other = asyncio.create_task(scene.run(deeds.meet, folder=str(tmp_path), name="a", other="b"))
        await until((tmp_path / "a").exists)
        outcome, _ = await scene.outcome(deeds.crash, how="segfault")
        (tmp_path / "b").touch()
        assert outcome.kind == "failed"
        assert await other


class TestStopping:
    async def test_a_run_that_is_stopped_may_clean_up_and_is_then_gone(self, alone: Scene, tmp_path: Path) -> None:
        file = tmp_path / "pid"
        _, task = begin(alone, deeds.hang, file=str(file))
        await until(lambda: pids_in(file))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_alive(pids_in(file)[0])
        assert (tmp_path / "pid.cleaned").read_text() == "cancelled: True"
        assert await alone.run(deeds.where) != pids_in(file)[0]

    async def test_one_that_does_not_listen_is_killed_with_all_that_it_started(
        self, alone: Scene, tmp_path: Path
    ) -> None:
        attempt, task = begin(alone, deeds.hang_deaf, file=str(tmp_path / "pids"))
        attempt.grace_s = 0.1
        await until(lambda: pids_in(tmp_path / "pids", 2))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [pid for pid in pids_in(tmp_path / "pids") if is_alive(pid)]

    async def test_one_that_waits_for_a_process_never_starts(self, alone: Scene, tmp_path: Path) -> None:
        _, first = begin(alone, deeds.hang, file=str(tmp_path / "first"))
        await until(lambda: pids_in(tmp_path / "first"))
        _, second = begin(alone, deeds.hang, file=str(tmp_path / "second"))
        await asyncio.sleep(0)
        for task in (second, first):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert not (tmp_path / "second").exists()
        assert await alone.run(deeds.where)

    async def test_one_that_is_stopped_while_its_process_starts_leaves_that_to_others(self, alone: Scene) -> None:
        for _ in range(3):
            _, task = begin(alone, deeds.where)
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert await alone.run(deeds.where) == await alone.run(deeds.where)


class TestRemains:
    @pytest.mark.parametrize("what", ["process", "daemon"])
    async def test_processes_that_a_run_leaves_die_with_it(self, alone: Scene, what: str) -> None:
        pid, left = await alone.run(deeds.leave, what=what)
        assert not is_alive(left)
        assert await alone.run(deeds.where) != pid

    async def test_threads_that_a_run_leaves_are_not_there_for_the_next(self, alone: Scene) -> None:
        pid, _ = await alone.run(deeds.leave, what="thread")
        assert await alone.run(deeds.where) != pid

    async def test_the_environment_and_the_folder_are_as_they_were(self, alone: Scene) -> None:
        before = await alone.run(deeds.surroundings)
        await alone.run(deeds.change_surroundings)
        assert await alone.run(deeds.surroundings) == before

    async def test_what_is_written_belongs_to_the_run_that_wrote_it(self, alone: Scene) -> None:
        for text in ("a", "b", "c"):
            _, attempt = await alone.outcome(deeds.write, text=text)
            assert attempt.said("stdout") == [f"raw {text}", f"printed {text}"]
            assert attempt.said("stderr") == [f"error {text}"]

    async def test_what_was_not_read_when_it_ended_is_read_then(self, alone: Scene) -> None:
        """While the store is behind, no loop reads, and the end comes by another way."""
        attempt = Attempt("write_twice", {}, isolation="process")
        attempt.behind = lambda: True
        assert (await alone.execute(attempt)).kind == "succeeded"
        assert attempt.said() == ["first", "second"]
