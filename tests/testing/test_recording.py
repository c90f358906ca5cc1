"""What a real process writes down of its dealings with the store; also when it is killed in the middle of them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mainspring.core.instants import SECOND
from mainspring.core.model import Amendment, Claim, Report, Worker
from mainspring.errors import Conflict
from mainspring.store import Store
from mainspring.testing.chaos.inside.recording import RecordedApp, gather
from mainspring.testing.history import Record

WORKER = Worker(
    id="host:1:abc", app="x", host="host", pid=1, queues=("default",), regions=("default",), tasks=("work",)
)

DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from mainspring.testing.chaos.inside.recording import RecordedApp

when = sys.argv[1]
app = RecordedApp(Path.cwd(), "client", store="sqlite:///x.db")


async def main():
    recorded = await app.open()
    right = recorded.bare.submit

    async def submit(runs, **words):
        if when == "after":
            await right(runs, **words)
        os.kill(os.getpid(), signal.SIGKILL)

    recorded.bare.submit = submit
    await app.submit("work")


asyncio.run(main())
"""


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RecordedApp]:
    app = RecordedApp(tmp_path, "client", store=f"sqlite:///{tmp_path / 'x.db'}")
    yield app
    await app.close()


def history(folder: Path, what: str) -> list[Record]:
    return [record for record in gather(folder) if record.what == what]


async def claim(store: Store, ttl: int = SECOND) -> Claim:
    (claim,) = await store.claim(WORKER, 1, ttl, "strict")
    return claim


def report(claim: Claim) -> Report:
    return Report(claim.run_id, claim.token, "succeeded", "succeeded", "", 0, "1", None, None, None)


class TestWhatWasAnswered:
    async def test_is_reported_once_and_within_the_time_between_asking_and_hearing(
        self, app: RecordedApp, tmp_path: Path
    ) -> None:
        before = app.clock.now()
        handle = await app.submit("work")
        after = app.clock.now()
        (record,) = history(tmp_path, "submit")
        assert (record.run, record.outcome, record.actor) == (handle.id, "ok", "client")
        assert record.sent is not None
        assert record.store is not None
        assert before <= record.sent <= record.store <= after

    async def test_a_cancel_that_comes_too_late_is_reported_as_refused(self, app: RecordedApp, tmp_path: Path) -> None:
        handle = await app.submit("work")
        await app.runs.cancel(handle.id)
        with pytest.raises(Conflict):
            await app.runs.cancel(handle.id)
        assert [record.outcome for record in history(tmp_path, "cancel")] == ["ok", "refused"]

    async def test_a_report_that_is_stale_is_reported_as_refused(self, app: RecordedApp, tmp_path: Path) -> None:
        await app.submit("work")
        store = await app.open()
        first = await claim(store)
        await store.hand_back([(first.run_id, first.token)])
        second = await claim(store)
        await store.report([report(first), report(second)])
        assert [(each.token, each.outcome) for each in history(tmp_path, "report")] == [(1, "refused"), (2, "ok")]
        assert [(each.token, each.outcome) for each in history(tmp_path, "handback")] == [(1, "ok")]

    async def test_a_run_that_is_left_to_others_is_reported_as_given_back(
        self, app: RecordedApp, tmp_path: Path
    ) -> None:
        await app.submit("work")
        store = await app.open()
        given = await claim(store)
        assert await store.amend([Amendment(given.run_id, given.token, "left to others", given.options)]) == 1
        again = await claim(store)
        await store.amend([Amendment(again.run_id, again.token + 1, "stale", again.options)])
        told_back = [(each.token, each.outcome) for each in history(tmp_path, "handback")]
        assert told_back == [(given.token, "ok"), (again.token + 1, "unknown")]

    async def test_a_renewal_is_counted_from_when_it_was_asked_for(self, app: RecordedApp, tmp_path: Path) -> None:
        await app.submit("work")
        store = await app.open()
        given = await claim(store)
        await store.renew(WORKER, [(given.run_id, given.token)], 7 * SECOND)
        (renewed,) = history(tmp_path, "renew")
        assert renewed.sent is not None
        assert renewed.until == renewed.sent + 7 * SECOND
        assert renewed.worker == history(tmp_path, "claim")[0].worker == "client"

    async def test_a_return_of_which_some_were_lost_is_reported_as_unknown(
        self, app: RecordedApp, tmp_path: Path
    ) -> None:
        await app.submit("work")
        store = await app.open()
        given = await claim(store)
        await store.hand_back([(given.run_id, given.token), (given.run_id, given.token + 5)])
        assert {record.outcome for record in history(tmp_path, "handback")} == {"unknown"}


class TestWhoeverIsKilledBeforeItHears:
    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_has_reported_what_it_asked_for(self, when: str, app: RecordedApp, tmp_path: Path) -> None:
        dying = [sys.executable, "-c", DYING, when]
        ended = await asyncio.to_thread(subprocess.run, dying, cwd=tmp_path, timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
        (record,) = history(tmp_path, "submit")
        assert record.outcome == "unknown"
        assert record.run is not None
        store = await app.open()
        assert (record.run in await store.find_runs("default", record.run)) == (when == "after")

    def test_loses_no_more_than_the_end_of_its_last_line(self, tmp_path: Path) -> None:
        line = msgspec.json.encode(Record(seq=1, what="fault", name="kill", store=1)) + b"\n"
        (tmp_path / f"up-1.{os.getpid()}.jsonl").write_bytes(line + line[:20])
        assert [record.name for record in gather(tmp_path)] == ["kill"]
