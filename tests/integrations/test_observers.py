"""Sentry, pytest and systemd: what real runs and real processes report to them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from mainspring import Mainspring, Retry, RetryIn
from mainspring.integrations.sentry import install
from mainspring.process import systemd
from mainspring.testing import ManualScheduler


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        """One envelope holds an event or a transaction."""
        self.items += [each for item in envelope.items if (each := item.payload.json) is not None]


@pytest.fixture
def sentry() -> Iterator[Kept]:
    """A client of Sentry that sends nothing."""
    kept = Kept()
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=kept, traces_sample_rate=1.0, default_integrations=False)
    yield kept
    sentry_sdk.get_global_scope().set_client(None)


def test_sentry_learns_of_failures_with_the_facts_of_the_run_and_the_trace_of_the_submission(sentry: Kept) -> None:
    app = Mainspring()
    install(app)

    @app.task(retry=Retry(1, delay="1s"))
    def fail(kind: str) -> None:
        raise RetryIn("1s") if kind == "asked" else ValueError(kind)

    with ManualScheduler(app) as scheduler, sentry_sdk.start_transaction(name="request") as request:
        run = app.sync(fail.submit, "broken")
        app.sync(fail.submit, "asked")
        scheduler.advance("10s")
    errors = [each for each in sentry.items if each.get("level") == "error"]
    assert [each["exception"]["values"][-1]["value"] for each in errors] == ["broken", "broken"]
    assert errors[0]["tags"]["mainspring.task"] == "fail"
    assert [each["contexts"]["mainspring"] for each in errors] == [
        {"run_id": run.id, "attempt": 1},
        {"run_id": run.id, "attempt": 2},
    ]
    runs = [each for each in sentry.items if each.get("transaction") == "fail" and each.get("type") == "transaction"]
    assert len(runs) == 4
    assert {each["contexts"]["trace"]["trace_id"] for each in runs} == {request.trace_id}


PLUGIN_TEST = """
def test_a_day_passes(mainspring_scheduler, mainspring_clock, mainspring_app):
    mainspring_scheduler.advance("1d")
    assert [run.state for run in mainspring_scheduler.runs(job="report")] == ["succeeded"]
    assert mainspring_scheduler.now.isoformat() == "2026-03-02T00:00:00+00:00"
    assert mainspring_app.name == "shop"
"""
PLUGIN_APP = """
from mainspring import Mainspring, cron
app = Mainspring(name="shop")

@app.job(cron("0 9 * * *"))
def report() -> None: ...
"""


def test_the_plugin_gives_an_app_in_virtual_time(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(PLUGIN_APP)
    (tmp_path / "test_work.py").write_text(PLUGIN_TEST)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmainspring_app = work:app\nmainspring_start = 2026-03-01T00:00:00Z\n"
    )
    plugin = next(each for each in entry_points(group="pytest11") if each.name == "mainspring")
    # Other plugins of this environment take longer to load than the test takes.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin.value]
    done = subprocess.run(
        command, check=False, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """What systemd is to a process: a socket. Gives the next state that is reported."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield lambda: listener.recv(1024).decode()


def test_systemd_learns_that_a_process_is_ready_lives_and_stops(tmp_path: Path, manager: Callable[[], str]) -> None:
    environment = {**os.environ, "WATCHDOG_USEC": "300000"}
    command = [sys.executable, "-m", "mainspring", "up", "--no-api", "--quiet", "--store", f"sqlite:///{tmp_path}/a.db"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        seen = [manager()]
        while len(seen) < 4:
            seen.append(manager())
        assert set(seen) == {systemd.READY, systemd.ALIVE}
        process.terminate()
        while seen[-1] != systemd.STOPPING:
            seen.append(manager())
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_well_gives_no_sign_of_life(
    manager: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    well = iter([False, False, True])
    end = systemd.keep_alive(lambda: next(well, False) or (systemd.notify("asked") and False))
    try:
        assert [manager(), manager(), manager()] == ["asked", "asked", systemd.ALIVE]
    finally:
        end()


def test_nothing_is_reported_where_no_systemd_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not systemd.notify(systemd.READY)
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    assert not systemd.notify(systemd.READY)
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert systemd.watchdog_period_s() is None
