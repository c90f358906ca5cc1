"""What was promised survives a power cut: it is in what had been synced when the promise was made."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import MINUTE
from mainspring.core.model import NewRun, Report, Run, Worker
from mainspring.errors import NotFound, StoreFailed
from mainspring.process.ids import IdSource
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
WORKER = Worker(id="w", tasks=("t",))


def a_run(**changes: Any) -> NewRun:
    return NewRun(id=IDS.new(), task="t", due_at=0, created_at=CLOCK.now(), **changes)


class Machine:
    """One whose power can be cut: what is on its disk is what the files held when one of them was last synced."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = str(folder / "live.db")
        self._disk = str(folder / "disk.db")
        self.syncs = 0
        self.broken = False
        monkeypatch.setattr(os, "fdatasync", self._sync)
        self.store = SqliteStore(self.path, CLOCK)

    def _sync(self, _: int) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        self.syncs += 1
        for ending in ("", "-wal"):
            shutil.copyfile(self.path + ending, self._disk + ending)
        Path(self._disk + "-shm").unlink(missing_ok=True)

    async def after_a_power_cut(self, run_id: str) -> Run | None:
        """What the next program finds."""
        found = SqliteStore(self._disk, CLOCK, durable=False)
        try:
            return await found.get_run("default", run_id)
        except NotFound:
            return None
        finally:
            await found.close()


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, monkeypatch)
    yield machine
    await machine.store.close()


@pytest.fixture(params=["alone", "beside a worker"])
def beside(request: pytest.FixtureRequest, machine: Machine) -> None:
    """Where a worker listens, a thread syncs while it starts what was submitted; where none does, the caller."""
    if request.param == "beside a worker":
        machine.store.on_change(lambda: None)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(
    "batch",
    [lambda: [a_run()], lambda: [a_run(idempotency_key="k")], lambda: [a_run(), a_run()]],
    ids=["one", "one with a key", "several"],
)
async def test_an_accepted_submission_survives(machine: Machine, batch: Callable[[], list[NewRun]]) -> None:
    runs = batch()
    await machine.store.submit(runs)
    found = await machine.after_a_power_cut(runs[-1].id)
    assert found is not None
    assert found.state == "pending"


@pytest.mark.usefixtures("beside")
async def test_an_accepted_result_survives(machine: Machine) -> None:
    run = a_run()
    await machine.store.submit([run])
    (claim,) = await machine.store.claim(WORKER, 1, MINUTE, "strict")
    await machine.store.report([Report(run.id, claim.token, "succeeded", "succeeded", started_at=1, finished_at=2)])
    found = await machine.after_a_power_cut(run.id)
    assert found is not None
    assert found.state == "succeeded"


async def test_a_claim_is_promised_to_nobody(machine: Machine) -> None:
    run = a_run()
    await machine.store.submit([run])
    before = machine.syncs
    assert await machine.store.claim(WORKER, 1, MINUTE, "strict")
    assert machine.syncs == before
    found = await machine.after_a_power_cut(run.id)
    assert found is not None
    assert found.state == "pending"


@pytest.mark.usefixtures("beside")
async def test_nothing_is_promised_that_could_not_be_synced(machine: Machine) -> None:
    machine.broken = True
    with pytest.raises(StoreFailed, match="could not be synced"):
        await machine.store.submit([a_run()])
    with pytest.raises(StoreFailed, match="could not be synced"):
        await machine.store.submit([a_run(), a_run()])
