"""What tasks log and print, wherever they run, is in the logs of their runs, and nowhere else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

APP = """
import asyncio, logging, os, subprocess, sys
from mainspring import Mainspring, Retry, at, current_run, every
app = Mainspring()
print("printed at import")
log = logging.getLogger("payroll.mail")

def say(where):
    log.info("info from %s", where)
    log.debug("debug from %s", where)
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("trouble in %s", where)
    print("printed", "in", where)
    print("to the errors of", where, file=sys.stderr)
    sys.stdout.write("half a ")
    sys.stdout.write("line")

@app.task
async def on_loop() -> None:
    say("loop")
    await asyncio.sleep(0.05)
    print("; after a while")

@app.task
def in_thread() -> None:
    say("thread")
    subprocess.run(["echo", "from a child of a thread"])

@app.task(isolation="process")
def in_process() -> None:
    say("process")

@app.task
async def much() -> None:
    for _ in range(300):
        print("x" * 9_999)

@app.task(batch=10)
async def batched(items: list[int]) -> None:
    print("from a batch")
"""


class Result:
    """What a process wrote, and the lines of its runs."""

    def __init__(self, out: str, err: str, lines: dict[str, list[tuple[str, str]]]) -> None:
        self.out, self.err, self.lines = out, err, lines


class Shell:
    """Commands in a folder with an app and a database."""

    def __init__(self, folder: Path, app: str = APP, **env: str) -> None:
        (folder / "work.py").write_text(app)
        environ = {**os.environ, "MAINSPRING_STORE": f"sqlite:///{folder}/test.db", "MAINSPRING_PORT": "0", **env}
        self._words: Any = {"cwd": folder, "env": environ, "text": True}

    def __call__(self, *words: str) -> Any:
        """The JSON that a command answers."""
        argv = [sys.executable, "-m", "mainspring", *words, "--json"]
        done = subprocess.run(argv, capture_output=True, timeout=60, check=True, **self._words)
        return json.loads(done.stdout)

    def run(self, *args: str, tasks: tuple[str, ...]) -> Result:
        """Submit a run of each task, let a process execute them, stop it, and read what was written."""
        ids = {}
        for task in tasks:
            more = ["--arg", "items=[1]"] if task == "batched" else []
            ids[task] = self("run", "submit", task, *more)["run_id"]
        argv = [sys.executable, "-m", "mainspring", *args]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **self._words) as process:
            for run_id in ids.values():
                self("run", "wait", run_id)
            process.terminate()
            out, err = process.communicate(timeout=60)
        logs = {task: self("run", "logs", run_id) for task, run_id in ids.items()}
        lines = {task: [(line["stream"], line["text"]) for line in log] for task, log in logs.items()}
        return Result(out, err, lines)


WHERE = ("on_loop", "in_thread", "in_process")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Shell(tmp_path_factory.mktemp("plain")).run("worker", "work.py", tasks=WHERE)


@pytest.mark.parametrize(("task", "where"), [("on_loop", "loop"), ("in_thread", "thread"), ("in_process", "process")])
def test_it_is_in_the_log_of_the_run(plain: Result, task: str, where: str) -> None:
    lines = plain.lines[task]
    assert ("log", f"INFO payroll.mail: info from {where}") in lines
    assert ("log", f"ERROR payroll.mail: trouble in {where}") in lines
    assert ("log", "ValueError: bad") in lines, "with its traceback"
    assert ("stdout", f"printed in {where}") in lines
    assert ("stderr", f"to the errors of {where}") in lines
    assert any(text.startswith("half a line") for stream, text in lines if stream == "stdout")
    assert not [text for _, text in lines if "debug from" in text]


def test_what_is_printed_in_pieces_is_one_line(plain: Result) -> None:
    assert ("stdout", "half a line; after a while") in plain.lines["on_loop"]


def test_it_is_not_in_the_output_of_the_worker(plain: Result) -> None:
    assert "printed in" not in plain.out + plain.err
    assert "info from" not in plain.err
    assert re.search(r"ERROR payroll\.mail trouble in loop \[run=\S+ task=on_loop\]", plain.err), plain.err


def test_more_than_the_limit_is_cut(tmp_path: Path) -> None:
    shell = Shell(tmp_path, MAINSPRING_OUTPUT_LIMIT="100000")
    lines = shell.run("worker", "work.py", tasks=("much",)).lines["much"]
    assert len(lines) == 11
    assert lines[-1] == ("log", f"... {290 * 10_000} characters of output cut ...")


def test_the_output_of_up_stays_json_whatever_tasks_write(tmp_path: Path) -> None:
    words = ("up", "work.py", "--json", "--log-format", "json", "--log-level", "debug")
    result = Shell(tmp_path).run(*words, tasks=(*WHERE, "batched"))
    events: list[Any] = [json.loads(line) for line in result.out.splitlines()]
    assert "run.succeeded" in {event["kind"] for event in events}
    for text in ("printed at import", "from a child of a thread", "from a batch"):
        assert text in result.err
    logged = [json.loads(line) for line in result.err.splitlines() if line.startswith("{")]
    (line,) = [each for each in logged if each["message"] == "info from thread"]
    assert (line["level"], line["logger"], line["task"], line["attempt"]) == ("info", "payroll.mail", "in_thread", 1)
    assert line["run"]
    assert ("log", "DEBUG payroll.mail: debug from process") in result.lines["in_process"]
    assert ("log", "DEBUG payroll.mail: debug from loop") in result.lines["on_loop"]


def test_the_log_of_a_process_does_not_show_its_own_secrets(tmp_path: Path) -> None:
    leak = "\n@app.task\nasync def leak() -> None:\n    log.error('at %s', app.settings.listen)\n"
    shell = Shell(tmp_path, APP + leak, MAINSPRING_LISTEN="postgresql://user:pass-of-the-base@host/none")
    result = shell.run("worker", "work.py", tasks=("leak",))
    assert "ERROR payroll.mail at postgresql://user***host/none" in result.err
    assert ("log", "ERROR payroll.mail: at postgresql://user***host/none") in result.lines["leak"]
