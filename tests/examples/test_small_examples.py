"""The small examples: the quickstart, a script, a worker in JavaScript, and a crontab, each executed as it is.

`tests/integrations` executes those of web frameworks, `tests/adapters` those of a queue and of a consumer of events.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from examples.measure import play, tables
from examples.measuring import Load, Measured
from examples.running import ROOT, until
from mainspring import Client, Retry
from mainspring.errors import RunFailed
from mainspring.testing.servers.process import free_port

EXAMPLES = ROOT / "examples"
PATIENCE_S = 180


def run(folder: Path, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_script_runs_by_itself(tmp_path: Path) -> None:
    lines = run(tmp_path, str(EXAMPLES / "script" / "clean_up.py")).splitlines()
    assert lines == [
        "cache is clean after 2 attempts",
        "logs is clean after 1 attempts",
        "uploads is clean after 1 attempts",
    ]


@contextmanager
def started(folder: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, cwd=folder, env=os.environ | environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def test_a_worker_in_javascript_executes_and_reports(tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{free_port()}"
    words = ("-m", "mainspring", "server", "--port", server.rpartition(":")[2], "--quiet", "--store", "sqlite:///x.db")
    with started(tmp_path, sys.executable, *words):
        await until(lambda: _listens(server), "server")
        with started(tmp_path, "node", str(EXAMPLES / "http_worker" / "worker.mjs"), SERVER=server):
            async with Client(server) as client:
                run_id = (await client.runs.submit("reverse", {"text": "stressed"})).run_id
                assert await client.runs.result(run_id, timeout=PATIENCE_S) == "desserts"
                refused = (await client.runs.submit("refuse", retry=Retry(0))).run_id
                with pytest.raises(RunFailed, match="this worker refuses"):
                    await client.runs.result(refused, timeout=PATIENCE_S)


async def test_every_job_of_the_quickstart_runs(tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{free_port()}"
    words = ("up", str(EXAMPLES / "quickstart.py"), "--port", server.rpartition(":")[2], "--store", "sqlite:///x.db")
    with started(tmp_path, sys.executable, "-m", "mainspring", *words):
        await until(lambda: _listens(server), "server")
        async with Client(server) as client:
            run_id = (await client.runs.submit("encode", {"video": "v1", "size": "4K"})).run_id
            assert await client.runs.result(run_id, timeout=PATIENCE_S) == "v1 in 4K"
            await client.jobs.trigger("nightly_report")

            async def succeeded() -> bool:
                runs = [run async for run in client.runs.list(states=("succeeded",))]
                return {run.job for run in runs} >= {"heartbeat", "flaky_import", "summary", "nightly_report"}

            await until(succeeded, "success of every job")


async def _listens(server: str) -> bool:
    async with httpx.AsyncClient() as client:
        try:
            return (await client.get(f"{server}/health/live")).status_code == 200
        except httpx.TransportError:
            return False


def test_a_crontab_becomes_jobs(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'x.db'}")
    run(tmp_path, "-m", "mainspring", "import", "crontab", str(EXAMPLES / "crontab" / "crontab"), *store)
    jobs = json.loads(run(tmp_path, "-m", "mainspring", "job", "list", "--json", *store))
    assert {job["trigger"]["cron"] for job in jobs} == {"15 3 * * *", "*/10 8-18 * * MON-FRI", "0 0 1 * *", "@daily"}
    assert {job["trigger"]["tz"] for job in jobs} == {"Europe/Berlin"}


def test_one_command_measures_a_reference_system_and_prints_the_rows_of_its_tables(tmp_path: Path) -> None:
    words = ("--only", "Stripe", "--seconds", "4", "--markdown", str(tmp_path / "tables.md"))
    lines = run(ROOT, "-m", "examples.measure", *words).splitlines()
    assert "Stripe: 80 of 80 jobs" in lines[0]
    assert any("memory of the processes" in line for line in lines)
    held, cpu = (line.count("|") for line in lines if line.startswith("| Stripe"))
    assert (held, cpu) == (7, 8)  # As many columns as the tables of docs/reference-systems.md have.
    assert (tmp_path / "tables.md").read_text().splitlines() == lines[-len(TABLES) :]


TABLES = ("head", "rule", "Stripe", "", "head of the costs", "rule", "Stripe", "", "machine")


async def test_a_system_that_fails_has_a_row_and_leaves_the_others_their_turn() -> None:
    async def fail(load: Load) -> Measured:
        raise ConnectionError("the server broke off\nand more")

    async def hold(load: Load) -> Measured:
        return Measured("figures", "| B | held |", "| B | 1 µs |")

    found = await play({"A": (fail, Load(5, 10)), "B": (hold, Load(1, 1))})
    assert [each.failed for each in found] == [True, False]
    rows = tables(found).splitlines()
    assert rows[2:4] == ["| A | failed at 5/s for 10 s: the server broke off | | | | |", "| B | held |"]
    assert rows[-1] == "| B | 1 µs |"
