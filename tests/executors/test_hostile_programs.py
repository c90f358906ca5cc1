"""Programs and functions that mean harm, at every level where there is something to hold: they fail with their reason,
others go on, and nothing of them survives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import deeds
import pytest
from scene import LEVELS, Attempt, Scene, is_alive, pids_in, scene_of, until
from test_confinement import PYTHONS_OWNER, groups

from mainspring.core.tasks.isolation import Isolation


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of(deeds.app.tasks) as scene:
        yield scene


def alive(mark: str) -> list[int]:
    """The processes that have this in their command line, wherever they hide."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes() and is_alive(int(folder.name)):
                found.append(int(folder.name))
    return found


DAEMONS = "(setsid sh -c 'trap \"\" TERM HUP; sleep {mark}; :' >/dev/null 2>&1 &); (sleep {mark} &); echo ready; {then}"
"""One that is deaf, in a session of its own, without parent; and one that is only an orphan."""


@pytest.mark.parametrize("level", LEVELS)
class TestDaemons:
    async def test_none_outlives_its_command(self, scene: Scene, level: str) -> None:
        mark = f"600.{os.getpid()}1"
        script = DAEMONS.format(mark=mark, then="sleep 0.2")
        outcome, attempt = await scene.command(["sh", "-c", script], {"isolation": level})
        assert (outcome.kind, attempt.said()) == ("succeeded", ["ready"])
        assert alive(mark) == []

    async def test_none_outlives_the_stop_of_its_command(self, scene: Scene, level: str) -> None:
        mark = f"600.{os.getpid()}2"
        script = DAEMONS.format(mark=mark, then="exec sleep 60")
        attempt = Attempt("command", {"argv": ["sh", "-c", script]}, isolation=level)
        attempt.grace_s = 0.1
        task = scene.begin(attempt)
        await until(lambda: attempt.said() == ["ready"] and len(alive(mark)) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert alive(mark) == []


@pytest.mark.parametrize("level", ["limits", "sandbox"])
async def test_a_flood_of_output_is_cut_at_every_level(scene: Scene, level: str) -> None:
    other = asyncio.create_task(scene.command(["echo", "unharmed"], {"isolation": level}))
    outcome, attempt = await scene.command(["head", "-c", "200M", "/dev/zero"], {"isolation": level})
    assert outcome.kind == "succeeded"
    assert sum(len(text) for _, _, text in attempt.lines) < 1_100_000
    assert (await other)[1].said() == ["unharmed"]


class TestFunctions:
    @pytest.mark.parametrize(
        ("how", "limits", "reason"),
        [
            ("memory", {"memory": "200MB"}, "it used more memory than its limit of 200 MB"),
            ("processes", {"processes": 20}, "it met its limit of 20 processes"),
            ("spin", {"cpu": "1s"}, "it used more CPU time than its limit of 1s"),
            ("flood", {"output": "1MB"}, "it wrote more than its limit of 1 MB"),
        ],
    )
    async def test_one_that_wants_too_much_fails_alone_and_says_why(
        self, scene: Scene, how: str, limits: dict[str, Any], reason: str
    ) -> None:
        isolation = Isolation("limits", user=PYTHONS_OWNER, **limits)
        other = asyncio.create_task(scene.run(deeds.where))
        outcome = await scene.execute(Attempt("explode", {"how": how}, isolation=isolation))
        assert outcome.failure is not None
        assert reason.removeprefix("it ") in outcome.failure.message
        assert await other
        await until(lambda: not groups())

    @pytest.mark.parametrize(
        ("words", "times", "trouble"),
        [
            ("x" * 1_000_000, 10_000, "its process sent a message that is longer than any can be, and is killed"),
            ("{}garbage\n", 1, "its process sent the worker an invalid message, and is killed"),
            ('{"outcome":{"kind":"succeeded","result":"{"}}\n', 1, "the process returned an invalid result"),
        ],
        ids=["endless", "garbage", "no result"],
    )
    async def test_one_that_lies_to_the_worker_fails_alone(
        self, scene: Scene, words: str, times: int, trouble: str
    ) -> None:
        attempt = Attempt("lie", {"words": words, "times": times}, isolation=Isolation("limits", user=PYTHONS_OWNER))
        async with asyncio.timeout(30):
            outcome = await scene.execute(attempt)
        assert outcome.failure is not None
        assert trouble in "\n".join([outcome.failure.message, *attempt.said("log")])

    async def test_what_it_logs_is_bounded_like_what_it_prints_and_the_last_word_of_its_progress_counts(
        self, scene: Scene
    ) -> None:
        attempt = Attempt("chatter", {"lines": 4_000}, isolation=Isolation("limits", user=PYTHONS_OWNER))
        assert (await scene.execute(attempt)).kind == "succeeded"
        assert sum(len(text) for text in attempt.said("log")) < 1_100_000
        assert any("of output cut" in text for text in attempt.said("log"))
        assert len(attempt.marks) < 3_000
        assert attempt.marks[-1] == (1.0, "done")

    async def test_a_flood_from_the_pool_is_cut_and_the_process_is_used_again(self) -> None:
        async with scene_of(deeds.app.tasks, concurrency=1) as scene:
            before = await scene.run(deeds.where)
            attempt = Attempt("explode", {"how": "flood"}, isolation="process")
            assert (await scene.execute(attempt)).kind == "succeeded"
            assert sum(len(text) for _, _, text in attempt.lines) < 1_100_000
            assert any("of output cut" in text for text in attempt.said("log"))
            assert await scene.run(deeds.where) == before


class TestCancels:
    @pytest.mark.parametrize("pause_s", [0.0, 0.002, 0.01, 0.03])
    async def test_a_function_is_gone_at_whatever_moment(self, tmp_path: Path, pause_s: float) -> None:
        """While it starts, runs or finishes; and the next one has a process."""
        async with scene_of(deeds.app.tasks, concurrency=2) as scene:
            await scene.run(deeds.where)
            for _ in range(3):
                task = scene.begin(Attempt("note", {"file": str(tmp_path / "pids")}, isolation="process"))
                await asyncio.sleep(pause_s)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            assert await scene.run(deeds.where)
        await until(lambda: not [pid for pid in pids_in(tmp_path / "pids", 0) if is_alive(pid)])
