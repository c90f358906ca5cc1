"""`mainspring queues`, `errors`, `load` and `run act`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cli_work import Terminal
from mainspring.conformance.store.samples import a_worker, failure
from mainspring.core.instants import MINUTE
from mainspring.services.chores.tally_keeper import TallyKeeper
from mainspring.store import Store
from mainspring.testing.clock import ManualClock


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    yield terminal
    terminal.close()


async def fail_all(store: Store) -> None:
    claims = await store.claim(a_worker(), 100, MINUTE, "strict")
    await store.report([failure(claim) for claim in claims])
    while await store.number_events(100):
        pass
    await TallyKeeper(store, lambda: True, ManualClock(store.now()), Random(1)).finish()


def test_queues_are_listed_paused_and_resumed(cli: Terminal) -> None:
    cli("db", "migrate")
    assert cli.json("queues") == []
    cli("run", "submit", "encode", "--queue", "gpu")
    (paused,) = cli.json("queues", "--pause", "gpu", "--reason", "repair")
    assert (paused["due"], paused["paused_why"]) == (1, "repair")
    assert {"repair", "IN/MIN", "OUT/MIN"} <= set(cli("queues").out.replace(":", " ").split())
    assert cli.json("queues", "--resume", "gpu")[0]["paused_at"] is None
    assert cli("queues", "--pause", "a", "--resume", "b").code == 2


def test_failures_are_listed_by_kind_and_retried_by_it_once(cli: Terminal) -> None:
    cli("db", "migrate")
    assert cli.json("errors") == []
    for _ in range(3):
        cli("run", "submit", "encode")
    cli.store(fail_all)
    (group,) = cli.json("errors")
    assert (group["type"], group["count"]) == ("ValueError", 3)
    assert "ValueError" in cli("errors").out
    levels = {each["priority"]: each["starts"] for each in cli.json("service-levels", "--since", "1h")}
    assert levels == {1: 0, 2: 0, 3: 0, 5: 3}
    assert "30m" in cli("service-levels").out
    assert cli.json("errors", group["error"])["tasks"] == ["encode"]
    assert len(cli.json("run", "list", "--error", group["error"])) == 3
    assert cli.json("run", "act", "retry", "--error", group["error"], "--dry-run")["done"] == 0
    done = cli.json("run", "act", "retry", "--error", group["error"], "--yes", "--reason", "again")
    assert done["done"] == 3
    assert cli.json("run", "act", "retry", "--error", group["error"], "--yes")["runs"] == done["runs"]
    assert len(cli.json("run", "list", "--state", "pending")) == 3
    assert cli("run", "act", "cancel").code == 2
    assert "3 of 3" in cli("run", "act", "cancel", "--task", "encode", "--state", "pending", "--yes").out


def test_the_load_ahead_and_jobs_by_their_next_firing(cli: Terminal) -> None:
    cli("db", "migrate")
    assert "No job is planned" in cli("load").err
    cli("job", "add", "hourly", "--cron", "0 * * * *", "--command", "true")
    cli("job", "add", "a-yearly", "--cron", "0 0 1 1 *", "--command", "true")
    load = cli.json("load", "--for", "1d", "--bucket", "6h")
    assert load["jobs"] == 2
    assert sum(each["starts"] for each in load["items"]) in (24, 25, 30, 31)
    assert "slots" in cli("load").out
    assert [job["name"] for job in cli.json("job", "list", "--sort", "next")] == ["hourly", "a-yearly"]
