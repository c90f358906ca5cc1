"""A loop of a real process dies, hangs or is blocked: that is noticed, and mended or ends the process loudly."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

APP = Path(__file__).with_name("failing_app.py")
PATIENCE_S = 60.0


class Process:
    """`mainspring up` on a file, with a planted fault that begins with a signal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "up.log"
        self._signal = folder / "signal"
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, fault: str) -> None:
        environ = {
            "MAINSPRING_STORE": f"sqlite:///{self._folder / 'live.db'}",
            "MAINSPRING_STALL_AFTER": "2s",
            "MAINSPRING_DRAIN_GRACE": "1s",
            "FAULT": fault,
            "SIGNAL": str(self._signal),
        }
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "mainspring", "up", str(APP), "--port", "0"],
                env=os.environ | environ, cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip
        self.until(lambda: "api    http" in self.log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        return self.log.partition("api    ")[2].split()[0]

    def get(self, path: str) -> tuple[int, str]:
        answer = httpx.get(self.url + path, timeout=10)
        return answer.status_code, answer.text

    def begin_fault(self) -> None:
        self._signal.touch()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def exit_code(self) -> int:
        assert self._running is not None
        return self._running.wait(PATIENCE_S)

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.kill()


def test_a_loop_that_hangs_is_reported_and_started_again(process: Process) -> None:
    process.start("stalled")
    assert process.get("/health/live")[0] == 200
    process.begin_fault()
    process.until(lambda: "loop reaper has made no progress" in process.log)
    assert "_turn (failing_app.py" in process.log, "the log says where it waits"
    process.until(lambda: 'mainspring_loop_restarts_total{loop="reaper"} 1.0' in process.get("/metrics")[1])
    assert 'mainspring_loop_stalls_total{loop="reaper"} 1.0' in process.get("/metrics")[1]
    process.until(lambda: process.get("/health/live")[0] == 200)


def test_a_loop_that_cannot_be_cancelled_fails_liveness_and_ends_the_process(process: Process) -> None:
    process.start("deaf")
    process.begin_fault()
    process.until(lambda: "reaper" in process.get("/health/live")[1])
    assert process.get("/health/live")[0] == 503
    status, text = process.get("/health/ready")
    assert status == 503
    assert "reaper" in text
    assert process.exit_code() == 70
    assert "cannot be cancelled" in process.log


@pytest.mark.parametrize("fault", ["blocked", "exits"])
def test_an_event_loop_that_stops_ends_the_process_at_once(process: Process, fault: str) -> None:
    process.start(fault)
    process.begin_fault()
    assert process.exit_code() == 70
    assert ("has stood still" if fault == "blocked" else "has ended although it was not stopped") in process.log
