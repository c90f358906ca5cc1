"""`up` is killed (-9) at random moments, twenty times, while jobs fire every second and submissions go on."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from judging import judge

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.model import Job
from mainspring.core.planning.plans import next_fire_at
from mainspring.errors import StoreUnavailable
from mainspring.testing.chaos.inside.recording import RecordedApp, gather

KILLS = 20
APP = Path(__file__).with_name("crash_app.py")
FAST = {"MAINSPRING_CLAIM_TTL": "2s", "MAINSPRING_CLAIM_RENEW": "500ms", "MAINSPRING_WORKER_DEAD_AFTER": "3s"}


class Up:
    """One `mainspring up` process."""

    def __init__(self, folder: Path) -> None:
        self._environment = os.environ | FAST | {"CRASH_FOLDER": str(folder)}
        self._command = [
            sys.executable,
            "-m",
            "mainspring",
            "up",
            str(APP),
            "--store",
            f"sqlite:///{folder / 'crash.db'}",
        ]
        self._output = (folder / "up.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, env=self._environment, stdout=self._output, stderr=self._output)

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, "up ended by itself"
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self._output.close()
        return code


async def submit_all_along(app: Mainspring, accepted: list[str], stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        after = accepted[-1:] if number % 7 == 0 else None
        try:
            handle = await app.submit("submitted", {"number": number}, after=after)
        except StoreUnavailable:
            continue
        accepted.append(handle.id)
        await asyncio.sleep(0.02)


async def crash_and_restart(folder: Path) -> list[str]:
    """Twenty lives of `up`; the runs that were accepted meanwhile."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    up, stop = Up(folder), asyncio.Event()
    accepted: list[str] = []
    app = RecordedApp(folder, "client", store=f"sqlite:///{folder / 'crash.db'}", name="client")

    @app.task(name="submitted")
    def submitted(number: int) -> int:
        return number

    submitting = asyncio.create_task(submit_all_along(app, accepted, stop))
    for _ in range(KILLS):
        up.start()
        await asyncio.sleep(chance.uniform(0.3, 2.5))
        await asyncio.to_thread(up.kill)
    up.start()
    stop.set()
    await submitting
    await wait_until_quiet(app, accepted)
    assert await asyncio.to_thread(up.stop) == 0
    await app.close()
    return accepted


async def wait_until_quiet(app: Mainspring, accepted: list[str]) -> None:
    async with asyncio.timeout(90):
        for run_id in accepted:
            await app.waiting.until_ended(run_id)


def read_ledger(folder: Path) -> dict[str, list[tuple[str, int]]]:
    executions: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for record in gather(folder):
        if record.what in ("start", "end") and record.run is not None:
            executions[record.run].append((record.what, record.store))
    return executions


async def load_jobs(folder: Path) -> list[Job]:
    app = Mainspring(f"sqlite:///{folder / 'crash.db'}")
    jobs = await (await app.open()).list_jobs("default")
    await app.close()
    return jobs


def due_instants(job: Job) -> list[int]:
    """Every instant from the creation of the job to its next fire time, by brute force."""
    instants: list[int] = []
    instant: int | None = job.created_at
    while instant is not None and (instant := next_fire_at(job, instant, {})) is not None:
        if instant >= (job.next_fire_at or 0):
            break
        instants.append(instant)
    return instants


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("crash")
    return folder, asyncio.run(crash_and_restart(folder))


@pytest.fixture
def database(aftermath: tuple[Path, list[str]]) -> Iterator[sqlite3.Connection]:
    """What is left in the file."""
    with closing(sqlite3.connect(aftermath[0] / "crash.db")) as connection:
        yield connection


class TestAfterTwentyKills:
    def test_the_history_breaks_no_invariant(self, aftermath: tuple[Path, list[str]]) -> None:
        folder, _ = aftermath
        verdict = judge(folder, f"sqlite:///{folder / 'crash.db'}")
        assert verdict.ok, str(verdict)
        assert {1, 3, 4, 5, 6, 7, 8, 9, 10, 17} <= set(verdict.judged)

    def test_every_due_instant_has_exactly_one_run_or_one_recorded_misfire(
        self, aftermath: tuple[Path, list[str]], database: sqlite3.Connection
    ) -> None:
        folder, _ = aftermath
        for job in asyncio.run(load_jobs(folder)):
            if job.name == "downstream":
                continue
            rows = database.execute(
                "SELECT fire_at, coalesce(last_at, fire_at) FROM firings WHERE job_id = ? AND kind = 'scheduled'",
                (job.id,),
            ).fetchall()
            instants = due_instants(job)
            assert len(instants) > KILLS / 2, job.name
            covered = Counter(i for i in instants for first, last in rows if first <= i <= last)
            assert {i for i in instants if covered[i] != 1} == set(), job.name
            assert {first for first, _ in rows} <= set(instants), f"{job.name}: a firing that was never due"

    def test_every_accepted_submission_has_ended_well(
        self, aftermath: tuple[Path, list[str]], database: sqlite3.Connection
    ) -> None:
        """Of a few that were killed again and again the losses may be used up; nothing else is an excuse."""
        _, accepted = aftermath
        rows = database.execute("SELECT id, state, losses > 3, reason FROM history")
        ends = {run_id: (state, bool(worn_out), reason) for run_id, state, worn_out, reason in rows}
        assert len(accepted) > 200
        others = {run_id: ends.get(run_id) for run_id in accepted if ends.get(run_id, ("lost",))[0] != "succeeded"}
        assert {run_id: end for run_id, end in others.items() if end is None or not end[1]} == {}
        assert len(others) < len(accepted) / 100

    def test_no_succeeded_run_ran_again(self, aftermath: tuple[Path, list[str]], database: sqlite3.Connection) -> None:
        folder, _ = aftermath
        finished = dict(database.execute("SELECT id, finished_at FROM history WHERE state = 'succeeded'"))
        assert len(finished) > 200
        again = [
            run_id
            for run_id, executions in read_ledger(folder).items()
            for what, at in executions
            if what == "start" and run_id in finished and at > finished[run_id]
        ]
        assert again == []

    def test_attempts_never_exceed_the_limit(
        self, aftermath: tuple[Path, list[str]], database: sqlite3.Connection
    ) -> None:
        folder, _ = aftermath
        limits = {"flaky": 3, "submitted": 4}
        rows = database.execute("SELECT id, task, attempt, losses FROM history").fetchall()
        over = [row for row in rows if row[2] - row[3] > limits.get(row[1], 4) or row[3] > 4]
        assert over == []
        starts = {run_id: sum(what == "start" for what, _ in seen) for run_id, seen in read_ledger(folder).items()}
        assert [row for row in rows if starts.get(row[0], 0) > row[2]] == []

    def test_kills_really_cost_something(self, database: sqlite3.Connection) -> None:
        """The other tests would also pass if nothing had ever been in danger."""
        (lost,) = database.execute("SELECT count(*) FROM attempts WHERE outcome = 'lost'").fetchone()
        (late,) = database.execute(
            "SELECT count(*) FROM firings WHERE outcome = 'missed' OR created_at - fire_at > ?", (SECOND,)
        ).fetchone()
        assert lost > 0
        assert late > 0

    def test_dependants_ran_after_what_they_waited_for(self, database: sqlite3.Connection) -> None:
        (count,) = database.execute(
            "SELECT count(*) FROM history WHERE job = 'downstream' AND state = 'succeeded'"
        ).fetchone()
        assert count > 3
