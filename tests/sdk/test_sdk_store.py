"""How an app holds its store: from several loops, threads and processes, and without await."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, manual
from mainspring.errors import (
    Conflict,
    InvalidInput,
    MainspringError,
    WaitTimeout,
)
from mainspring.sdk.task import Task
from sdk_work import work


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mainspring]:
    monkeypatch.chdir(tmp_path)
    async with Mainspring(f"sqlite:///{tmp_path}/store.db", durable=False) as app:
        yield app


class TestTheStore:
    async def test_it_is_opened_on_first_use_and_once(self, tmp_path: Path) -> None:
        app = Mainspring(f"sqlite:///{tmp_path}/late.db")
        assert not (tmp_path / "late.db").exists()
        stores = await asyncio.gather(*(app.open() for _ in range(20)))
        assert len(set(map(id, stores))) == 1
        await app.close()

    async def test_a_closed_app_opens_it_anew(self, app: Mainspring) -> None:
        first = await app.open()
        await app.close()
        await app.close()
        assert await app.open() is not first

    def test_each_event_loop_may_use_the_same_app(self, tmp_path: Path) -> None:
        app = Mainspring(f"sqlite:///{tmp_path}/loops.db", durable=False)
        task = app.task(name="t")(lambda: None)
        ids = {asyncio.run(task.submit()).id for _ in range(3)}
        assert len(ids) == 3
        asyncio.run(app.close())

    @pytest.mark.parametrize(
        ("url", "remedy"),
        [
            (":memory:", "name a file"),
            ("sqlite:///:memory:", "name a file"),
            ("jobs.db", "sqlite:///"),
            ("sqlite://jobs.db", "sqlite:///file.db"),
            ("sqlite:///", "sqlite:///file.db"),
            ("mysql://localhost/jobs", "postgresql://user@host/database"),
            ("postgresql+psycopg://localhost/jobs", "postgresql://user@host/database"),
        ],
    )
    async def test_a_url_that_names_no_store_is_refused_with_what_does(self, url: str, remedy: str) -> None:
        with pytest.raises(InvalidInput, match=remedy):
            await Mainspring(url).open()

    async def test_a_relative_url_is_a_file_in_the_working_folder(self, app: Mainspring, tmp_path: Path) -> None:
        async with Mainspring("sqlite:///here.db"):
            assert (tmp_path / "here.db").exists()

    def test_a_wrong_setting_is_refused_where_the_app_is_made(self) -> None:
        with pytest.raises(InvalidInput, match="did you mean concurrency"):
            Mainspring(concurency=3)  # type: ignore[call-arg]  # What is refused.

    async def test_the_environment_overrules_the_code_and_a_flag_overrules_both(
        self, app: Mainspring, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAINSPRING_NAMESPACE", "environment")
        other = Mainspring(app.settings.store, namespace="code")
        assert other.settings.namespace == "environment"
        other.configure(namespace="flag", store=None)
        run = await other.runs.get((await other.submit("anything")).id)
        assert run.namespace == "flag"
        with pytest.raises(Conflict, match="open already"):
            other.configure(namespace="late")
        await other.close()

    async def test_ids_made_by_many_threads_are_all_different(self, app: Mainspring) -> None:
        made: list[list[str]] = []
        threads = [threading.Thread(target=lambda: made.append(self.many_ids(app))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert len({each for ids in made for each in ids}) == 8 * 2_000

    def many_ids(self, app: Mainspring) -> list[str]:
        return [app.new_ids(1)[0] for _ in range(1_000)] + app.new_ids(1_000)


class TestBlocking:
    @pytest.fixture
    def halve(self, tmp_path: Path) -> Any:
        app = Mainspring(f"sqlite:///{tmp_path}/blocking.db", durable=False)

        @app.task
        def halve(number: int) -> int:
            return number // 2

        yield halve
        app.sync.close()

    def test_a_run_is_submitted_and_awaited_without_await(self, halve: Task[..., int]) -> None:
        app = halve.app
        first, second = app.sync(halve.submit, 8), app.sync(halve.options(priority=1).submit, number=6)
        third, *_ = app.sync(halve.submit_many, [{"number": 4}, {"number": 2}])
        assert app.sync(first.status).state == "pending"
        app.sync(work, app)
        assert [app.sync(run.result, timeout=10) for run in (first, second, third)] == [4, 3, 2]

    def test_runs_and_jobs_are_looked_after(self, halve: Task[..., int]) -> None:
        app = halve.app
        run = app.sync(app.submit, "halve", {"number": 8})
        assert app.sync(app.runs.cancel, run.id, "a mistake") == "cancelled"
        assert app.sync(app.runs.get, run.id).reason == "a mistake"
        assert app.sync(app.runs.retry, run.id).retry_of == run.id
        app.sync(app.jobs.add, "half", manual(), task=halve, args={"number": 2})
        assert app.sync(app.jobs.trigger, "half").run_id
        assert [job.name for job in app.sync(app.jobs.pause, "half", reason="audit")] == ["half"]
        assert app.sync(app.jobs.resume, "half")[0].paused_at is None

    def test_what_is_gone_over_or_entered_elsewhere_is_so_here(self, halve: Task[..., int]) -> None:
        app = halve.app
        app.sync(halve.submit_many, [{"number": number} for number in range(5)])
        first, *others = [run.args["number"] for run in app.sync(app.runs.list)]
        assert (first, sorted(others)) == (4, [0, 1, 2, 3])
        for run in app.sync(app.runs.list):
            assert run.state == "pending"
            break  # The rest is not asked for.
        with app.sync(app.running):
            assert app.sync(app.sync(halve.submit, 8).result, 30) == 4
        with pytest.raises(KeyError, match="mine"), app.sync(app.lock, "payroll"):
            raise KeyError("mine")
        with app.sync(app.lock, "payroll", wait=0):
            pass

    def test_errors_are_those_of_the_call(self, halve: Task[..., int]) -> None:
        with pytest.raises(InvalidInput, match="number"):
            halve.app.sync(halve.submit, "eight")
        with pytest.raises(WaitTimeout):
            halve.app.sync(halve.app.sync(halve.submit, 8).wait, 0)

    async def test_it_refuses_to_block_an_event_loop(self, app: Mainspring) -> None:
        with pytest.raises(MainspringError, match="would block: await"):
            app.sync(app.runs.get, "x")

    def test_many_threads_share_one_loop(self, halve: Task[..., int]) -> None:
        handles: list[str] = []
        before = set(threading.enumerate())
        threads = [
            threading.Thread(target=lambda: handles.append(halve.app.sync(halve.submit, 8).id)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(handles)) == 20
        assert [each.name for each in set(threading.enumerate()) - before].count("mainspring-sync") == 1

    def test_it_goes_on_after_it_was_closed(self, halve: Task[..., int]) -> None:
        first = halve.app.sync(halve.submit, 8)
        halve.app.sync.close()
        assert halve.app.sync(halve.app.runs.get, first.id).state == "pending"

    def test_a_forked_process_opens_a_store_of_its_own(self, tmp_path: Path) -> None:
        code = f"""
            import os, signal
            from mainspring import Mainspring
            app = Mainspring("sqlite:///{tmp_path}/fork.db")
            first = app.sync(app.submit, "t")
            child = os.fork()
            if not child:
                signal.alarm(20)  # So that it never outlives the test, whatever it hangs on.
                os._exit(0 if app.sync(app.sync(app.submit, "t").status).state == "pending" else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert app.sync(first.status).state == "pending"
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=30)
