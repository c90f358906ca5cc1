"""Runs the measured programs: one process at a time, each on a folder of its own, bounded, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.harness.script import Answer, Params

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"


class Failed(Exception):
    """A program that ended badly, or not at all: what it said last."""


class Contestant(NamedTuple):
    """A program to measure, and what distinguishes its variants."""

    label: str
    python: Path
    module: str
    params: Params

    def command(self, measure: str, params: Params) -> list[str]:
        """How to start it."""
        return [str(self.python), "-m", self.module, measure, json.dumps(self.params | params)]


PEERS = ROOT / "bench" / ".venv-peers"
_PEER_PYTHON = PEERS / "bin" / "python"
MAINSPRING = Contestant("Mainspring", Path(sys.executable), "bench.ours", {})
HUEY = Contestant("Huey SQLite", _PEER_PYTHON, "bench.peers.with_huey", {})
APS_SQLITE = Contestant("APScheduler SQLite", _PEER_PYTHON, "bench.peers.with_apscheduler", {"store": "sqlite"})
APS_MEMORY = Contestant("APScheduler memory", _PEER_PYTHON, "bench.peers.with_apscheduler", {"store": "memory"})
RIVALS = (HUEY, APS_SQLITE, APS_MEMORY)


def keep_results(name: str, results: Mapping[str, object]) -> None:
    """Every figure of every round, for readers that want to see the noise."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder that goes away. On the disk that is asked for: /tmp is often memory, where a sync costs nothing."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(
    command: list[str], stdin: int | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A program in a group of its own, so that whatever it starts ends with it."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=stdin,
    )


def end(process: subprocess.Popen[str]) -> None:
    """End a program of ours, and its group, for good."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def answer_of(command: list[str], limit_s: int, environment: Mapping[str, str] | None = None) -> Answer:
    """What a program answers as its last line; Failed if it does not within the limit."""
    process = start(command, environment=environment)
    try:
        output, trouble = process.communicate(timeout=limit_s + 2)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {limit_s} s") from None
    finally:
        end(process)
    if process.returncode == -signal.SIGALRM:
        raise Failed(f"not done within {limit_s} s")
    if process.returncode:
        ended = f"ended with code {process.returncode}"
        raise Failed((trouble.strip().splitlines() or [ended])[-1])
    try:
        answer: Answer = json.loads(output.splitlines()[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise Failed(f"its answer of {len(output):,} characters cannot be read: {error}") from None
    return answer


def run(contestant: Contestant, measure: str, folder: Path, limit_s: int, params: Params) -> Answer:
    """What a contestant answers, on this folder."""
    return answer_of(contestant.command(measure, params | {"folder": str(folder), "limit_s": limit_s}), limit_s)


def run_afresh(contestant: Contestant, measure: str, parent: Path, limit_s: int, params: Params) -> Answer:
    """The same on a new folder."""
    with scratch_folder(parent) as folder:
        return run(contestant, measure, folder, limit_s, params)
