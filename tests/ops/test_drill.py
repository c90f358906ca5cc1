"""The disaster drill: played for real on this machine, and judged line by line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from mainspring import Mainspring
from mainspring.core.instants import DAY
from mainspring.errors import MainspringError
from mainspring.ops.drill.archive import due, keep, kept
from mainspring.ops.drill.checklist import BETWEEN, Check, CheckFailed, Checklist, Report
from mainspring.ops.drill.site import CommandSite, join_hosts, wait_until
from mainspring.ops.drill.traffic import Sample, compare, pick
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.servers.process import free_port
from mainspring.testing.servers.redis import RedisServer
from prometheus_server import answers, running_prometheus
from store_places import places

PARTS = (
    *("Before the drill", "Baseline", "Failure of the primary", "Fail-over"),
    *("Validation", "Data integrity", "Fail-back"),
)


def drill(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A drill, in an environment that names the operator's usual store: the drill must not touch it."""
    command = [sys.executable, "-m", "mainspring", "drill", *words, "--folder", str(folder / "drills"), "--json"]
    environment = os.environ | {"MAINSPRING_STORE": f"sqlite:///{folder / 'usual.db'}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    assert not (folder / "usual.db").exists()
    return done


def test_a_site_on_this_machine_survives_the_loss_of_its_primary(tmp_path: Path) -> None:
    done = drill(tmp_path, "run", "--local", "--quiet", "2s", "--on-call", "a test")
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert tuple(dict.fromkeys(line.part for line in report.lines)) == PARTS
    assert [line.name for line in report.lines if line.state == "skipped"] == ["alerts are configured"]
    assert report.lost == 0  # The standby follows synchronously.
    assert report.recovery_s is not None
    assert 0 < report.recovery_s < 15 * 60
    (markdown,) = (tmp_path / "drills").glob("*.md")
    assert "PASS" in markdown.read_text().splitlines()[0]
    assert "## To improve until the next drill\n\n- alerts are configured" in markdown.read_text()
    print(markdown.read_text())
    dates = msgspec.json.decode(drill(tmp_path, "list").stdout)
    assert [each["passed"] for each in dates["drills"]] == [True]
    assert dates["next"] is not None


class Automation:
    """What an operator's scripts do to two servers that exist: the commands of a drill call it over HTTP."""

    def __init__(self, first: Postgres, second: Postgres) -> None:
        self.done: list[str] = []

        def fail_back() -> None:
            second.stop()
            first.promote()
            second.follow(first)

        steps: dict[str, Callable[[], None]] = {
            "fail": first.kill,
            "redirect": lambda: None,
            "restore": lambda: first.follow(second),
            "fail_back": fail_back,
        }
        automation = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                step = self.path.strip("/")
                steps[step]()
                automation.done.append(step)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def command(self, step: str) -> str:
        url = f"http://127.0.0.1:{self._server.server_port}/{step}"
        return f"{sys.executable} -c \"import urllib.request as u; u.urlopen('{url}')\""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_site_that_exists_is_drilled_by_the_commands_of_its_operator(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = Postgres()
        stack.callback(first.close)
        first.make()
        second = first.make_standby()
        stack.callback(second.close)
        broker = RedisServer(tmp_path).start()
        stack.callback(broker.kill)
        automation = Automation(first, second)
        stack.callback(automation.close)
        port, store = free_port(), join_hosts(first.url, second.url)
        (tmp_path / "site.py").write_text("from mainspring import Mainspring\n\napp = Mainspring()\n")
        environment = os.environ | {
            "MAINSPRING_STORE": store,
            "MAINSPRING_BROKER": broker.url,
            "MAINSPRING_CACHE": broker.url,
        }
        for words in (("server", "site.py", "--port", str(port)), ("worker", "site.py")):
            with (tmp_path / f"{words[0]}.log").open("wb") as log:
                command = [sys.executable, "-m", "mainspring", *words]
                process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/health/ready"), "the server is ready", 60)
        prometheus = stack.enter_context(running_prometheus(tmp_path, f"127.0.0.1:{port}"))
        steps = ("fail", "redirect", "restore", "fail_back")
        commands = [word for step in steps for word in (f"--{step.replace('_', '-')}-with", automation.command(step))]
        sites = ["--primary", first.url, "--standby", second.url, "--server", f"http://127.0.0.1:{port}"]
        beside = ["--broker", broker.url, "--cache", broker.url, "--prometheus", prometheus, "--on-call", "a test"]
        done = drill(tmp_path, "run", *sites, *beside, *commands, "--runs", "100", "--quiet", "1s")
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert tuple(dict.fromkeys(line.part for line in report.lines)) == PARTS
    assert {line.state for line in report.lines} == {"pass"}  # Every line applies, and holds.
    assert automation.done == list(steps)
    assert (report.lost, report.recovery_s is not None) == (0, True)


def test_a_primary_is_not_failed_if_the_standby_does_not_follow(tmp_path: Path) -> None:
    with places("postgres", tmp_path) as make:
        url, done_to = make(), tmp_path / "failed"
        migrate = [sys.executable, "-m", "mainspring", "db", "migrate", "--store", url]
        subprocess.run(migrate, check=True, capture_output=True, timeout=60)
        done = drill(tmp_path, "run", "--primary", url, "--standby", url, "--fail-with", f"touch {done_to}")
    report = msgspec.json.decode(done.stdout, type=Report)
    assert done.returncode == 1
    assert next(line.detail for line in report.lines if line.state == "fail").startswith("it is not in recovery")
    assert not done_to.exists()
    assert {line.part for line in report.lines} == {"Before the drill"}
    assert drill(tmp_path, "list").returncode == 1  # None has passed: one is due.


def test_a_primary_is_not_failed_if_a_command_cannot_be_executed() -> None:
    site = CommandSite("postgresql://one/db", "postgresql://two/db", {"fail": "true", "redirect": "./dns madrid"}, ())
    with pytest.raises(MainspringError, match=r"--redirect-with .* '\./dns'"):
        site.rehearse()
    good = {"fail": "A=1 sleep 0", "redirect": "cd / && ls"}
    assert CommandSite("postgresql://one/db", "postgresql://two/db", good, ()).rehearse()


def test_a_drill_of_this_machine_is_none_of_another_site(tmp_path: Path) -> None:
    done = drill(tmp_path, "run", "--local", "--fail-with", "reboot")
    assert done.returncode == 2
    assert "--local" in done.stderr


def test_samples_are_taken_from_all_runs_at_random(tmp_path: Path) -> None:
    async def look(url: str) -> None:
        async with Mainspring(url) as app:
            ids = {(await app.submit("work")).id for _ in range(30)}
        one, other = [await pick(url, "default", 2**62, 30, 10) for _ in range(2)]
        assert await pick(url, "default", 2**62, 30, 100) == dict.fromkeys(ids, "pending")
        assert await pick(url, "other", 2**62, 30, 100) == {}
        assert one.keys() | other.keys() <= ids
        assert (len(one), one != other) == (10, True)

    with places("postgres", tmp_path) as make:
        asyncio.run(look(make()))


def test_both_databases_have_to_be_named(tmp_path: Path) -> None:
    done = drill(tmp_path, "run", "--primary", "postgresql://me@one/db")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--local" in done.stdout + done.stderr


def test_clients_find_the_primary_among_both() -> None:
    joined = join_hosts("postgresql://me@one:5432/db?sslmode=require", "postgresql://me@two:5433/db")
    assert joined == "postgresql://me@one:5432,two:5433/db?sslmode=require&target_session_attrs=primary"


def test_a_line_that_fails_does_not_end_the_drill() -> None:
    seen: list[Check] = []
    checklist = Checklist(seen.append)
    with checklist.line("part", "first"):
        raise CheckFailed("not so")
    with checklist.line("part", "second") as line:
        line.detail = "so"
    assert [(each.state, each.detail) for each in seen] == [("fail", "not so"), ("pass", "so")]
    assert not report_of(seen).passed


def test_a_missing_run_and_one_that_changed_after_its_end_are_found() -> None:
    before = {"a": "succeeded", "b": "failed", "c": "pending", "d": "running"}
    assert compare(before, {"a": "succeeded", "b": "succeeded", "c": "running"}) == (1, 1)


@pytest.mark.parametrize(
    ("after", "is_back"),
    [
        ({}, True),
        ({"rate": 401.0, "p99_ms": 999.0, "errors": 1}, True),
        ({"rate": 399.0}, False),
        ({"p99_ms": 1_001.0}, False),
        ({"errors": 2}, False),
    ],
)
def test_traffic_is_back_if_it_is_nearly_as_quick_as_before(after: dict[str, float], is_back: bool) -> None:
    before = Sample(100, [], 0, p50_ms=2.0, p99_ms=18.0, rate=2_000.0)
    assert msgspec.structs.replace(before, **after).is_back(before) is is_back


def test_the_next_drill_is_due_a_quarter_after_the_last_that_passed(tmp_path: Path) -> None:
    keep(report_of([Check(part="p", name="n", state="pass", at_s=0.0)], began_at=10 * DAY), tmp_path)
    keep(report_of([Check(part="p", name="n", state="fail", at_s=0.0)], began_at=20 * DAY), tmp_path)
    assert due(kept(tmp_path)) == 10 * DAY + BETWEEN
    assert due([]) is None


def report_of(lines: list[Check], began_at: int = 0) -> Report:
    return Report(began_at=began_at, primary="p", standby="s", lines=lines)
