"""A run that failed for good raises one alert; an alert that fails raises none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from mainspring import Mainspring, Retry
from mainspring.core.runs.alerts import alert_of
from mainspring.core.states import FINAL, State
from mainspring.errors import InvalidInput
from mainspring.services.chores.alerter import IDLE_S
from mainspring.store import RunFilter
from mainspring.wiring import build_runtime


def make_app(tmp_path: Path, **settings: Any) -> tuple[Mainspring, list[dict[str, Any]]]:
    app = Mainspring(f"sqlite:///{tmp_path / 'test.db'}", **settings)
    reported: list[dict[str, Any]] = []

    @app.task(retry=Retry(1, delay="1ms"))
    async def break_down() -> None:
        raise ValueError("broken")

    @app.task
    async def tell(failure: dict[str, Any]) -> None:
        reported.append(failure)

    return app, reported


async def runs_of(app: Mainspring, count: int, states: Collection[str] = get_args(State)) -> list[Any]:
    """All runs, once there are this many and all are in one of these states."""
    store = await app.open()
    async with asyncio.timeout(30):
        while True:
            runs = await store.list_runs(RunFilter())
            if len(runs) >= count and all(run.state in states for run in runs):
                return runs
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(app: Mainspring, *, schedule: bool = True, work: bool = True) -> AsyncIterator[None]:
    runtime = build_runtime(app, app.settings, schedule=schedule, work=work)
    await runtime.start()
    try:
        yield
    finally:
        await runtime.stop()


@pytest.mark.parametrize(("setting", "option"), [("tell", None), (None, "tell"), ("named", "tell")])
async def test_it_says_what_failed_and_why(tmp_path: Path, setting: str | None, option: str | None) -> None:
    app, reported = make_app(tmp_path, alert=setting)
    app.task(name="other", alert=option)(lambda: None)
    async with app, running(app):
        run = await app.submit("break_down", alert=option)
        assert len(await runs_of(app, 2, FINAL)) == 2
    (failure,) = reported
    assert (failure["run_id"], failure["task"], failure["attempts"]) == (run.id, "break_down", 2)
    assert failure["reason"].startswith("ValueError: broken")
    assert failure["error"]["type"] == "ValueError"


@pytest.mark.parametrize(
    ("receiver", "task", "where"),
    [("https://example.org/x", "http", "json"), ("$ notify --loud 'all of us'", "command", "stdin")],
)
async def test_it_may_be_a_call_or_a_command(tmp_path: Path, receiver: str, task: str, where: str) -> None:
    app, _ = make_app(tmp_path)
    async with app, running(app):
        run = await app.submit("break_down", alert=receiver)
        (alert,) = [each for each in await runs_of(app, 2) if each.id != run.id]
    args = json.loads(alert.args)
    assert alert.task == task
    assert args[where]["run_id"] == run.id
    assert args.get("argv") in (None, ["notify", "--loud", "all of us"])


async def test_a_failed_alert_causes_no_alert(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path)
    async with app:
        store = await app.open()
        handle = await app.submit("break_down", alert="tell")
        alert = alert_of(await store.get_run("default", handle.id), None, store.now())
        assert alert is not None
        await store.submit([alert])
        telling = await store.get_run("default", alert.id)
    assert alert_of(telling, "tell", 0) is None


async def test_without_a_receiver_no_alert_is_sent(tmp_path: Path) -> None:
    app, reported = make_app(tmp_path, alert="named")
    async with app, running(app):
        await app.submit("break_down")
        await runs_of(app, 1, FINAL)
        await asyncio.sleep(2 * IDLE_S)
    assert reported == []


class TestDeaths:
    async def test_an_alert_that_was_not_sent_in_time_is_sent_by_the_next_leader(self, tmp_path: Path) -> None:
        app, reported = make_app(tmp_path)
        async with app:
            store = await app.open()
            run = await app.submit("break_down", alert="tell")
            async with running(app, schedule=False):
                await runs_of(app, 1, FINAL)
            # All events have their public positions: a listener that began now would receive none of them.
            while await store.number_events(100):
                pass
            async with running(app):
                await runs_of(app, 2, FINAL)
        assert [failure["run_id"] for failure in reported] == [run.id]

    async def test_it_is_sent_once_however_often_nodes_change(self, tmp_path: Path) -> None:
        app, reported = make_app(tmp_path)
        async with app:
            await app.submit("break_down", alert="tell")
            for _ in range(3):
                async with running(app):
                    await runs_of(app, 2, FINAL)
            assert len(await runs_of(app, 2)) == 2
        assert len(reported) == 1

    async def test_an_alert_that_cannot_be_sent_does_not_hold_up_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, reported = make_app(tmp_path)
        async with app, running(app):
            with monkeypatch.context() as older:  # A program that did not check it yet.
                older.setattr("mainspring.operations.jobs.options.check_alert", lambda text, field: text)
                await app.submit("break_down", alert="$ unclosed '")
            run = await app.submit("break_down", alert="tell")
            await runs_of(app, 3, FINAL)
        assert [failure["run_id"] for failure in reported] == [run.id]

    async def test_failures_before_the_first_receiver_cause_no_alert(self, tmp_path: Path) -> None:
        app, reported = make_app(tmp_path)
        async with app, running(app):
            await app.submit("break_down")
            await runs_of(app, 1, FINAL)
            run = await app.submit("break_down", alert="tell")
            await runs_of(app, 3, FINAL)
        assert [failure["run_id"] for failure in reported] == [run.id]


def test_a_receiver_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="names no receiver"):
        Mainspring().task(alert="$ ")(print)
