"""What can run, and what is remembered of how it ended."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import chores
import msgspec
import pytest
from stage import STEADY, at_home, ended, until, working

from mainspring import Mainspring, Retry
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND
from mainspring.core.model import Run
from mainspring.executors.programs import program
from mainspring.stores.sqlite.store import SqliteStore
from sdk_work import row_of

KINDS = ["async", "thread", "process"]
GARBAGE = "\N{REPLACEMENT CHARACTER}"


WORKER = """
import asyncio, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
import chores, stage
from mainspring.clock import SystemClock
from mainspring.stores.sqlite.store import SqliteStore

async def work():
    clock = SystemClock()
    store = SqliteStore(":memory:", clock, inline=True)
    with stage.at_home(chores.app, store, clock):
        async with stage.working(chores.app, store, clock, stage.STEADY):
            await chores.sleep_in_process.submit(sys.argv[2])
            await asyncio.sleep(30)

asyncio.run(work())
"""
"""A worker that can be killed."""


@pytest.fixture
async def live() -> AsyncIterator[SqliteStore]:
    """A store in real time, with the chores at work."""
    store = SqliteStore(":memory:", SystemClock(), inline=True)
    with at_home(chores.app, store, SystemClock()):
        async with working(chores.app, store, SystemClock(), STEADY):
            yield store
    await store.close()


def error_of(run: Run) -> dict[str, str]:
    assert run.error is not None
    error: dict[str, str] = json.loads(run.error)
    return error


async def lines_of(store: SqliteStore, run: Run, stream: str) -> list[str]:
    return [line.text for _, line in await store.list_logs(run.id, limit=100_000) if line.stream == stream]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # The latter if it ends while it is looked at.
        return False


class TestFunctions:
    async def test_an_async_function_runs_on_the_users_loop(self, live: SqliteStore) -> None:
        result = await (await chores.wheres["async"].submit()).result(30)
        assert result == [os.getpid(), threading.current_thread().name]

    async def test_a_sync_function_runs_in_a_thread(self, live: SqliteStore) -> None:
        pid, thread = await (await chores.wheres["thread"].submit()).result(30)
        assert pid == os.getpid()
        assert str(thread).startswith("mainspring-task")

    async def test_a_sync_function_with_a_timeout_runs_in_a_process_of_its_own(self, live: SqliteStore) -> None:
        pid, _ = await (await chores.wheres["process"].submit()).result(10)
        assert pid != os.getpid()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_failure_is_remembered_as_text_with_the_users_frames_only(
        self, live: SqliteStore, kind: str
    ) -> None:
        run = await ended(await chores.misbehaving[kind].options(retry=chores.ONCE).submit("value error"))
        error = error_of(run)
        assert (run.state, run.reason) == ("failed", "ValueError: not; it has no retries")
        assert (error["type"], error["message"]) == ("ValueError", "not\nthis one")
        assert "in misbehave\n" in error["traceback"]
        assert "executors" not in error["traceback"]

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ("system exit", "SystemExit: 3"),
            ("keyboard interrupt", "KeyboardInterrupt"),
            ("mute", "chores.Mute: (its message could not be read)"),
            ("half a character", "ValueError: ?"),
            ("nul", f"ValueError: a{GARBAGE}b"),
            ("long", "ValueError: " + "x" * 488),
        ],
    )
    async def test_whatever_is_raised_ends_the_run_and_not_the_worker(
        self, live: SqliteStore, kind: str, how: str, reason: str
    ) -> None:
        if kind == "process" and how != "half a character":
            kind = "thread"  # A process per case would take long, and shows no more.
        run = await ended(await chores.misbehaving[kind].options(retry=chores.ONCE).submit(how))
        assert (run.state, run.reason) == ("failed", f"{reason}; it has no retries")
        assert len(error_of(run)["traceback"]) < 20_000
        assert await (await chores.wheres["async"].submit()).result(30)

    @pytest.mark.parametrize("kind", ["async", "thread"])
    async def test_an_interrupted_function_leaves_the_loop_alone(self, live: SqliteStore, kind: str) -> None:
        await ended(await chores.misbehaving[kind].options(retry=chores.ONCE).submit("system exit"))
        await asyncio.sleep(0)


class TestRetries:
    async def test_every_attempt_is_recorded(self, live: SqliteStore) -> None:
        run = await ended(await chores.misbehaving["thread"].submit("value error"))
        attempts = await live.list_attempts(run.id)
        assert run.reason == "ValueError: not; all retries are used up (2)"
        assert [(each.attempt, each.outcome) for each in attempts] == [(1, "failed"), (2, "failed"), (3, "failed")]
        assert attempts[0].reason.startswith("ValueError: not; retry 1 of 2 in ")
        assert all(each.worker == "worker-1" and each.error for each in attempts)
        assert all(each.started_at and each.started_at <= each.finished_at for each in attempts)

    async def test_a_run_that_succeeds_at_last_has_succeeded(self, live: SqliteStore) -> None:
        app = Mainspring()
        seen: list[None] = []

        @app.task(retry=Retry(5, delay="1ms"))
        async def flaky() -> int:
            seen.append(None)
            if len(seen) < 3:
                raise ConnectionError("not yet")
            return len(seen)

        with at_home(app, live, SystemClock()):
            async with working(app, live, SystemClock(), name="other"):
                run = await ended(await flaky.submit())
        assert (run.state, run.result, run.attempt, run.error) == ("succeeded", "3", 3, None)

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_result_that_cannot_be_stored_is_final(self, live: SqliteStore, kind: str) -> None:
        run = await ended(await chores.misbehaving[kind].submit("object"))
        assert (run.state, run.attempt) == ("failed", 1)
        assert "cannot be written as JSON" in run.reason
        assert run.reason.endswith("not retried, for the same would happen again")

    @pytest.mark.parametrize("kind", KINDS)
    async def test_arguments_that_no_code_fits_in_time_are_final(self, live: SqliteStore, kind: str) -> None:
        run = await ended(await Elsewhere(chores.misbehaving[kind].name).submit(live))
        assert (run.state, run.attempt) == ("failed", 1)
        assert "InvalidInput: args" in run.reason
        assert run.reason.endswith("not retried, for the same would happen again")

    @pytest.mark.parametrize("kind", ["async", "thread"])
    async def test_the_functions_own_errors_are_retried_whatever_they_are(self, live: SqliteStore, kind: str) -> None:
        run = await ended(await chores.misbehaving[kind].submit("own invalid input"))
        assert run.attempt == 3


class Elsewhere:
    """Another program, that knows an older signature of a task."""

    def __init__(self, task: str) -> None:
        self._app, self._task = Mainspring(), task

    async def submit(self, store: SqliteStore) -> Any:
        with at_home(self._app, store, SystemClock()):
            options: dict[str, Any] = {
                "retry": Retry(2, delay="1ms"),
                "timeout": "30s" if "process" in self._task else None,
            }
            handle = await self._app.submit(self._task, {"formerly": 1}, **options)
        return type(handle)(chores.app, handle.id, json.loads)


class TestTimeouts:
    async def test_an_async_function_is_cancelled(self, live: SqliteStore) -> None:
        app = Mainspring()
        seen: list[str] = []

        @app.task(timeout="50ms", retry=Retry(1, delay="1ms"))
        async def hang() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        with at_home(app, live, SystemClock()):
            async with working(app, live, SystemClock(), name="other"):
                run = await ended(await hang.submit())
        assert (run.state, run.attempt) == ("failed", 2)
        assert run.reason == "TimeoutError: not done within its timeout of 50ms; all retries are used up (1)"
        assert [each.outcome for each in await live.list_attempts(run.id)] == ["timed_out", "timed_out"]
        assert seen == ["cancelled"] * 2

    async def test_what_runs_in_a_process_is_killed(self, live: SqliteStore, tmp_path: Path) -> None:
        words: dict[str, Any] = {"timeout": "200ms", "retry": chores.ONCE}
        runs = [
            await chores.sleep_in_process.options(**words).submit(str(tmp_path / "pids")),
            await chores.app.submit("command", {"argv": ["sleep", "60"]}, **words),
        ]
        reasons = [(await ended(run)).reason.partition(";")[0] for run in runs]
        assert reasons == ["TimeoutError: not done within its timeout of 200ms"] * 2

    async def test_it_is_killed_with_all_that_it_started_even_if_it_does_not_listen(
        self, live: SqliteStore, tmp_path: Path
    ) -> None:
        """However it came to be stopped: by a timeout, or, where a slow start would not matter, by a cancel."""
        script = f"trap '' TERM; sleep 60 & echo $$ $! >{tmp_path / 'one'}; wait; wait"
        runs = [
            await chores.app.submit("command", {"argv": ["sh", "-c", script]}),
            await chores.hang_with_family.submit(str(tmp_path / "other")),
        ]
        families = [tmp_path / "one", tmp_path / "other"]
        await until(lambda: all(file.exists() and len(file.read_text().split()) == 2 for file in families), 10)
        pids = [int(pid) for file in families for pid in file.read_text().split()]
        assert all(is_alive(pid) for pid in pids)
        for run in runs:
            await run.cancel()
        assert [(await ended(run)).state for run in runs] == ["cancelled"] * 2
        await until(lambda: not any(is_alive(pid) for pid in pids))


class TestProcesses:
    @pytest.mark.parametrize(("how", "end"), [("exit", "exited with code 3"), ("kill", "was killed by SIGKILL")])
    async def test_one_that_dies_is_a_failure(self, live: SqliteStore, how: str, end: str) -> None:
        run = await ended(await chores.die.submit(how))
        assert run.reason == f"ProcessDied: the process {end} before the function returned; it has no retries"

    async def test_what_it_leaves_running_does_not_keep_the_run_from_ending(
        self, live: SqliteStore, tmp_path: Path
    ) -> None:
        """Nor does a process that tries to get away, and holds the output open."""
        away = tmp_path / "away"
        code = (
            'import os, sys, time; os.setsid(); print(os.getpid(), flush=True); open(sys.argv[1], "w"); time.sleep(60)'
        )
        script = f"{sys.executable} -c '{code}' {away} & until [ -e {away} ]; do sleep 0.05; done"
        runs = [await chores.leave_something.submit(what) for what in ("process", "thread")]
        runs.append(await chores.app.submit("command", {"argv": ["sh", "-c", script]}))
        async with asyncio.timeout(30):
            assert [(await ended(run)).state for run in runs] == ["succeeded"] * 3
        (pid,) = await lines_of(live, await row_of(runs[2]), "stdout")
        assert not is_alive(int(pid))

    async def test_what_it_writes_arrives_whole(self, live: SqliteStore) -> None:
        run = await ended(await chores.talk.submit())
        logged = await lines_of(live, run, "log")
        assert run.state == "succeeded"
        assert run.progress == 0.5
        assert run.progress_note == "half way"
        assert await lines_of(live, run, "stdout") == [GARBAGE * 2 + " binary \N{REPLACEMENT CHARACTER}"]
        assert await lines_of(live, run, "stderr") == ["to stderr"]
        assert logged[0] == "half ?"
        assert sorted(logged[1:]) == sorted(str(number) * 20_000 for number in range(4) for _ in range(50))

    async def test_it_dies_with_its_worker(self, tmp_path: Path) -> None:
        """Its result would be refused, and another worker is about to do the work again."""
        file = tmp_path / "pids"
        argv = [sys.executable, "-c", WORKER, str(Path(__file__).parent), str(file)]
        worker = await asyncio.create_subprocess_exec(*argv)
        try:
            await until(lambda: file.exists() and len(file.read_text().split()) == 2, 30)
        finally:
            worker.kill()
            await worker.wait()
        family = [int(pid) for pid in file.read_text().split()]
        await until(lambda: not any(is_alive(pid) for pid in family))

    async def test_a_large_result_arrives(self, live: SqliteStore) -> None:
        """Escaped it is several times as large as the limit of a result, and that is no reason to lose it."""
        assert len(await (await chores.return_much.submit(500_000)).result(10)) == 500_000


async def command(argv: list[str], **words: Any) -> Run:
    extra: dict[str, Any] = {name: words.pop(name) for name in ("cwd", "env") if name in words}
    return await ended(await chores.app.submit("command", {"argv": argv, **extra}, **words))


class TestCommands:
    async def test_the_exit_code_decides(self, live: SqliteStore) -> None:
        assert (await command(["true"])).state == "succeeded"
        run = await command(["sh", "-c", "exit 7"], retry=chores.ONCE)
        assert run.reason == "CommandFailed: the command exited with code 7; it has no retries"
        run = await command(["sh", "-c", "kill -9 $$"], retry=chores.ONCE)
        assert run.reason == "CommandFailed: the command was killed by SIGKILL; it has no retries"

    async def test_output_becomes_log_lines(self, live: SqliteStore) -> None:
        run = await command(["sh", "-c", r"echo one; echo two >&2; printf '\377\000\r\nno newline'"])
        assert await lines_of(live, run, "stdout") == ["one", GARBAGE * 2, "no newline"]
        assert await lines_of(live, run, "stderr") == ["two"]

    async def test_a_line_without_end_is_cut_into_pieces(self, live: SqliteStore) -> None:
        run = await command(["head", "-c", "300000", "/dev/zero"])
        lines = await lines_of(live, run, "stdout")
        assert sum(map(len, lines)) == 300_000
        assert max(map(len, lines)) <= 64 * 1024

    async def test_it_sees_no_secrets_of_the_worker(self, live: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_STORE", "postgresql://user:secret@host")
        run = await command(["env"], env={"GIVEN": "1"})
        lines = await lines_of(live, run, "stdout")
        assert "GIVEN=1" in lines
        assert not [line for line in lines if "secret" in line]

    async def test_what_it_leaves_running_ends_with_it(
        self, live: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(program, "LAST_OUTPUT_S", 30.0)
        async with asyncio.timeout(60):
            run = await command(["sh", "-c", "sleep 60 & echo $!"])
        (pid,) = await lines_of(live, run, "stdout")
        assert run.state == "succeeded"
        assert run.started_at is not None
        assert run.finished_at is not None
        assert run.finished_at - run.started_at < program.LAST_OUTPUT_S * SECOND, "and does not hold it up"
        await until(lambda: not is_alive(int(pid)))

    @pytest.mark.parametrize(
        ("spec", "reason"),
        [
            ({"argv": ["/no/such/program"]}, "/no/such/program: No such file or directory"),
            ({"argv": ["true"], "cwd": "/no/such/folder"}, "/no/such/folder: No such file or directory"),
            (
                {"argv": "true", "shell": True},
                "it is not a valid command: this worker runs no shell: set allow_shell to permit it",
            ),
        ],
    )
    async def test_one_that_cannot_be_started_says_why_and_is_never_retried(
        self, live: SqliteStore, spec: dict[str, Any], reason: str
    ) -> None:
        run = await ended(await chores.app.submit("command", spec, retry=Retry(1, delay="1ms")))
        assert run.reason == f"CommandNotStarted: {reason}" or run.reason.startswith(f"CommandNotStarted: {reason};")
        assert (run.state, run.attempt) == ("failed", 1)


class TestOthers:
    async def test_a_task_that_this_worker_does_not_know_stays_pending(self, live: SqliteStore) -> None:
        unknown = await chores.app.submit("of another program")
        await (await chores.wheres["async"].submit()).result(30)
        run = await row_of(unknown)
        assert (run.state, run.token, run.attempt) == ("pending", 0, 0)

    async def test_a_function_that_cancels_itself_has_failed(self, live: SqliteStore) -> None:
        app = Mainspring()

        @app.task(retry=chores.ONCE)
        async def give_up() -> None:
            lost = asyncio.get_running_loop().create_future()
            lost.cancel()
            await lost

        with at_home(app, live, SystemClock()):
            async with working(app, live, SystemClock(), name="other"):
                run = await ended(await give_up.submit())
        assert (run.state, run.reason) == ("failed", "RuntimeError: the task cancelled itself; it has no retries")

    async def test_results_are_stored_as_json(self, live: SqliteStore) -> None:
        app = Mainspring()

        class Point(msgspec.Struct):
            x: int

        @app.task
        async def locate() -> Point:
            return Point(1)

        with at_home(app, live, SystemClock()):
            async with working(app, live, SystemClock(), STEADY, name="other"):
                assert (await ended(await locate.submit())).result == '{"x":1}'
