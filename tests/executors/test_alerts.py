"""Somebody is told of a run that failed for good: once, and not of the telling itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Retry
from mainspring.core.alerts import alert_of
from mainspring.core.states import FINAL
from mainspring.errors import InvalidInput
from mainspring.sinks.alert import AlertSink
from mainspring.store import RunFilter
from mainspring.wiring import build_runtime


def make_app(tmp_path: Path, **settings: Any) -> tuple[Mainspring, list[dict[str, Any]]]:
    app = Mainspring(f"sqlite:///{tmp_path / 'test.db'}", **settings)
    told: list[dict[str, Any]] = []

    @app.task(retry=Retry(1, delay="1ms"))
    async def break_down() -> None:
        raise ValueError("broken")

    @app.task
    async def tell(failure: dict[str, Any]) -> None:
        told.append(failure)

    return app, told


async def all_ended(app: Mainspring, count: int) -> list[Any]:
    """All runs, once there are so many and all have ended."""
    store = await app.open()
    async with asyncio.timeout(10):
        while True:
            runs = await store.list_runs(RunFilter())
            if len(runs) >= count and all(run.state in FINAL for run in runs):
                return runs
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("setting", "option"), [("tell", None), (None, "tell"), ("named", "tell")])
async def test_it_tells_what_failed_and_why(tmp_path: Path, setting: str | None, option: str | None) -> None:
    app, told = make_app(tmp_path, alert=setting)
    app.task(name="other", alert=option)(lambda: None)
    async with app:
        runtime = build_runtime(app, app.settings, schedule=True, work=True)
        await runtime.start()
        run = await app.submit("break_down", alert=option)
        assert len(await all_ended(app, 2)) == 2
        await runtime.stop()
    (failure,) = told
    assert (failure["run_id"], failure["task"], failure["attempts"]) == (run.id, "break_down", 2)
    assert failure["reason"].startswith("ValueError: broken")
    assert failure["error"]["type"] == "ValueError"


@pytest.mark.parametrize(
    ("whom", "task", "where"),
    [("https://example.org/x", "http", "json"), ("$ notify --loud 'all of us'", "command", "stdin")],
)
async def test_it_may_be_a_call_or_a_command(tmp_path: Path, whom: str, task: str, where: str) -> None:
    app, _ = make_app(tmp_path)
    async with app:
        store = await app.open()
        runtime = build_runtime(app, app.settings, schedule=True, work=True)
        await runtime.start()
        run = await app.submit("break_down", alert=whom)
        await all_ended(app, 1)
        await runtime.stop()
        sink = AlertSink(store, None)
        events = await store.events_since(0, 1000)
        for _ in range(2):
            await sink.deliver(events)
        (alert,) = [each for each in await store.list_runs(RunFilter()) if each.id != run.id]
    args = json.loads(alert.args)
    assert alert.task == task
    assert args[where]["run_id"] == run.id
    assert args.get("argv") in (None, ["notify", "--loud", "all of us"])


async def test_nobody_is_told_that_the_telling_failed(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path)
    async with app:
        store = await app.open()
        handle = await app.submit("break_down", alert="tell")
        alert = alert_of(await store.get_run("default", handle.id), None, store.now())
        assert alert is not None
        await store.submit([alert])
        telling = await store.get_run("default", alert.id)
    assert alert_of(telling, "tell", 0) is None


async def test_nobody_is_told_where_nobody_is_named(tmp_path: Path) -> None:
    app, told = make_app(tmp_path, alert="named")
    async with app:
        runtime = build_runtime(app, app.settings, schedule=True, work=True)
        await runtime.start()
        await app.submit("break_down")
        await all_ended(app, 1)
        await runtime.stop()
    assert told == []


def test_a_word_that_names_nobody_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nobody to tell"):
        Mainspring().task(alert="$ ")(print)
