"""A backup is taken while a scheduler works; the store is lost later; what is restored starts, and repeats nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from judging import judge

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.answers import RunFilter
from mainspring.core.instants import SECOND
from mainspring.core.model import Firing, Job, Run
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.states import FINAL
from mainspring.ops.backup import backups
from mainspring.settings import Settings
from mainspring.testing.chaos.inside.recording import RecordedApp, gather

APP = Path(__file__).parent.parent / "acceptance" / "crash_app.py"
FAST = {"MAINSPRING_CLAIM_TTL": "2s", "MAINSPRING_CLAIM_RENEW": "500ms", "MAINSPRING_WORKER_DEAD_AFTER": "3s"}
T = TypeVar("T")


@contextmanager
def up(store: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`mainspring up` that writes down what it executes."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mainspring", "up", str(APP), "--store", store, "--port", "0"]
    environment = os.environ | FAST | {"CRASH_FOLDER": str(folder)}
    with (folder / "up.log").open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def wait_for(condition: Callable[[], T], folder: Path, within_s: float = 60.0) -> T:
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, (folder / "up.log").read_text()[-2000:]
        time.sleep(0.05)
    return found


def started(folder: Path) -> set[str]:
    """The runs whose work really began."""
    return {record.run or "" for record in gather(folder) if record.what == "start"}


def ended(folder: Path) -> set[str]:
    """The runs whose work really ended."""
    return {record.run or "" for record in gather(folder) if record.what == "end"}


def read(url: str) -> tuple[dict[str, Job], dict[str, list[Firing]], dict[str, Run]]:
    """Jobs, their ledgers and all runs of a store."""

    async def look() -> tuple[dict[str, Job], dict[str, list[Firing]], dict[str, Run]]:
        app = Mainspring(url)
        store = await app.open()
        try:
            jobs = {job.name: job for job in await store.list_jobs("default")}
            ledger = {name: await store.list_firings(job.id, limit=10_000) for name, job in jobs.items()}
            runs = {run.id: run for run in await store.list_runs(RunFilter(limit=100_000))}
            return jobs, ledger, runs
        finally:
            await app.close()

    return asyncio.run(look())


def submit(url: str, count: int, history: Path | None = None) -> list[str]:
    """Submit runs, and write that down for the checker if there is a folder for it."""

    async def do() -> list[str]:
        app = (
            Mainspring(url, name="client")
            if history is None
            else RecordedApp(history, "client", store=url, name="client")
        )

        @app.task(name="submitted")
        def submitted(number: int) -> int:
            return number

        ids = [(await app.submit("submitted", {"number": number})).id for number in range(count)]
        ids += [(await app.submit("submitted", {"number": -1}, delay="1h")).id]
        await app.close()
        return ids

    return asyncio.run(do())


def settings_of(url: str) -> Settings:
    return Settings(store=url)


def test_no_firing_and_no_run_happens_again_after_a_restore(new_store: Callable[[], str], tmp_path: Path) -> None:
    lost, restored = new_store(), new_store()
    before, after = tmp_path / "before", tmp_path / "after"
    with up(lost, before) as first:
        wait_for(lambda: len(ended(before)) > 5, before)
        submitted = submit(lost, 60)
        made = backups.create(settings_of(lost), tmp_path / "backups", SystemClock())
        at_backup = len(ended(before))
        wait_for(lambda: len(ended(before)) > at_backup + 70, before)
        first.kill()  # The lost store is gone: nothing of it is used from here on.
    backup = backups.find(tmp_path / "backups", None)
    assert backups.verify(backup) == made
    manifest, settled = backups.restore(backup, settings_of(restored), SystemClock())
    assert settled.epoch > manifest.taken_at

    _, ledger, runs = read(restored)
    unfinished = [run for run in runs.values() if run.state not in FINAL]
    assert [run.id for run in unfinished] == submitted[-1:], "only what is due later still waits"
    assert any(firing.outcome == "skipped" and "restored" in firing.reason for firing in ledger["tick"])

    with up(restored, after) as second:
        wait_for(lambda: have_succeeded(restored, settled.epoch), after)
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    assert started(after)
    assert started(before) & started(after) == set()
    check_ledger(restored, settled.epoch)


def have_succeeded(url: str, epoch: int) -> bool:
    """Whether each job has had a success of an instant after the epoch."""
    _, ledger, _ = read(url)
    return all(
        any(firing.outcome == "succeeded" and firing.fire_at > epoch for firing in ledger[name])
        for name in ("tick", "interval", "flaky")
    )


def check_ledger(url: str, epoch: int) -> None:
    """Each instant is accounted for once, and none before the epoch has a run that started after it."""
    jobs, ledger, runs = read(url)
    for name in ("tick", "interval", "flaky"):
        job, recorded = jobs[name], {firing.fire_at: firing for firing in ledger[name]}
        instant = min(recorded) - 1
        while (due := next_fire_at(job, instant, {})) is not None and due < (job.next_fire_at or 0):
            assert due in recorded, f"{name} has no row for {due}"
            instant = due
    for run in runs.values():
        if run.fire_at is not None and run.fire_at <= epoch and run.started_at is not None:
            assert run.started_at <= epoch


def test_a_moved_store_goes_on_as_after_a_stop(new_store: Callable[[], str], tmp_path: Path) -> None:
    """The history checker judges both lives of the store as one: nothing is lost, doubled or out of order."""
    old, new = new_store(), new_store()
    folder = tmp_path / "up"
    with up(old, folder) as first:
        wait_for(lambda: len(ended(folder)) > 5, folder)
        stop(first)
    submitted = submit(old, 5, folder)
    backups.create(settings_of(old), tmp_path / "backups", SystemClock())
    _, settled = backups.restore(backups.find(tmp_path / "backups", None), settings_of(new), SystemClock(), moved=True)
    assert (settled.cancelled, settled.jobs) == (0, 0)
    known = len(ended(folder))
    with up(new, folder) as second:
        wait_for(lambda: set(submitted[:-1]) <= ended(folder) and len(ended(folder)) > known + 10, folder)
        stop(second)
    verdict = judge(folder, new)
    assert verdict.ok, str(verdict)
    assert {1, 3, 4, 5} <= set(verdict.judged)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_terms_tokens_and_positions_go_on_beyond_the_lost_ones(new_store: Callable[[], str], tmp_path: Path) -> None:
    old, new = new_store(), new_store()

    async def use(url: str) -> tuple[int, int, int]:
        app = Mainspring(url)
        store = await app.open()
        try:
            term = await store.begin_term("planner", "me")
            hold = await store.acquire("a", f"me-{url}", 60 * SECOND)
            assert hold is not None, "a lease of the lost store is free"
            while await store.number_events(100):
                pass
            return term.number, hold.token, await store.next_position()
        finally:
            await app.close()

    submit(old, 3)
    first = asyncio.run(use(old))
    backups.create(settings_of(old), tmp_path / "backups", SystemClock())
    backups.restore(backups.find(tmp_path / "backups", None), settings_of(new), SystemClock())
    second = asyncio.run(use(new))
    assert all(after > before + 1_000_000 for before, after in zip(first, second, strict=True))


def test_a_restore_refuses_a_place_that_is_not_empty(new_store: Callable[[], str], tmp_path: Path) -> None:
    from mainspring.errors import Conflict

    old = new_store()
    submit(old, 3)
    backups.create(settings_of(old), tmp_path / "backups", SystemClock())
    with pytest.raises(Conflict, match="needs an empty place"):
        backups.restore(backups.find(tmp_path / "backups", None), settings_of(old), SystemClock())
    assert len(read(old)[2]) == 4
