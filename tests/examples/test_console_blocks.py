"""Every console block of the pages is executed beside a running `mainspring up`, or its page says why not.

A comment before a block, `<!-- not run: why -->` or `<!-- run by tests/… -->`, is the reason.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from pages import PAGES, ROOT, name_of

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<kind>console|sh|bash|shell)\n(?P<text>.*?)^```", re.M | re.S
)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)", re.MULTILINE)
BOUND_S = 300
SIDE_BY_SIDE = 4
"""Blocks that run at the same time: their commands wait more than they compute."""
PRELUDE = """
set -e
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"""
RESIZE = """

@app.task
def resize(image: str) -> str:
    return image
"""
"""The task of the tutorial."""
FOREVER = re.compile(r"^(\w+=\S+ )*mainspring (up|worker|server) ")
"""Such a command runs until it is stopped: here, beside what follows it."""


class Block(NamedTuple):
    """A console block: its page and number, what the page says of it, and what it shows."""

    page: Path
    number: int
    mark: str
    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        return [line.replace("\\\n", " ") for line in COMMAND.findall(self.text)]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        if page.parent.name == "reference":
            continue  # Usage, made from the help of commands, which tests/cli runs.
        for number, found in enumerate(BLOCK.finditer(page.read_text())):
            yield Block(page, number, found["mark"] or "", found["kind"], found["text"])


BLOCKS = list(blocks())
RUN = [block for block in BLOCKS if not block.mark]


def title(block: Block) -> str:
    return f"{name_of(block.page)}-{block.number}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark], ids=title)
def test_a_block_that_is_not_executed_says_why(block: Block) -> None:
    reason = re.fullmatch(r"not run: \S.{10,}|run by (tests/\S+)", block.mark)
    assert reason is not None, block.mark
    assert reason[1] is None or (ROOT / reason[1]).exists(), block.mark


@pytest.mark.parametrize("block", BLOCKS, ids=title)
def test_a_block_shows_commands(block: Block) -> None:
    assert block.kind == "console"
    assert block.commands, "begin each command with $"


def prepare(folder: Path, port: int) -> dict[str, str]:
    """The files that pages speak of, and what stands here for the names in their commands."""
    readme = (ROOT / "README.md").read_text()
    work = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    for name in ("work.py", "app.py", "billing.py"):
        (folder / name).write_text(work + RESIZE)
    (folder / "report.sh").write_text("echo done\n")
    (folder / "generate_report.py").write_text("print('done')\n")
    prices = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "cost.md").read_text(), re.MULTILINE | re.DOTALL)
    (folder / "prices.toml").write_text(prices[0] if prices else "")
    return {
        "127.0.0.1:8321": f"127.0.0.1:{port}",
        "https://jobs.example.org": f"http://127.0.0.1:{port}",
        "MAINSPRING_TOKEN=eyJ…": "MAINSPRING_TOKEN=",
        "/var/backups/mainspring": str(folder / "backups"),
        "sqlite:////srv/mainspring.db": f"sqlite:///{folder / 'restored.db'}",
        "crontab -l > crontab.txt": "printf '30 2 * * * backup\\n@reboot daemon\\n' > crontab.txt",
    }


def script(block: Block, names: dict[str, str], seen: set[str]) -> str:
    """What a shell runs for a block, without commands that an earlier block has shown.

    A command that runs until it is stopped runs for a second, on a port of its own.
    """
    lines = []
    for command in block.commands:
        bare = command.split("  #")[0].strip()
        if bare in seen and not bare.startswith("export "):
            continue
        seen.add(bare)
        line = re.sub(r"job add (\S+)", rf"job add \1-of-{block.page.stem}", command)
        for name, value in names.items():
            line = line.replace(name, value)
        if FOREVER.match(line + " "):
            bare = line.split("  #")[0].strip()
            line = f"{bare} --for 1s --port 0" if " up " in f" {bare}" else f"{bare} &"
        lines.append(line)
    return PRELUDE + "\n".join(lines) + "\n"


def test_the_console_blocks_of_all_pages_run(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = prepare(tmp_path, port)
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    env = {**own, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    up = subprocess.Popen(
        ["mainspring", "up", "work.py", "--port", str(port)], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL
    )
    try:
        wait_until_ready(port)
        submit = ["mainspring", "run", "submit", "encode", "--arg", "video=v1", "--arg", "size=4K", "--json"]
        run = subprocess.run(submit, cwd=tmp_path, env=env, check=True, capture_output=True, text=True, timeout=BOUND_S)
        run_id = json.loads(run.stdout)["run_id"]
        names |= {
            "run show 3f8k": f"run show {run_id}",
            "run show ID": f"run show {run_id}",
            "runs/RUN/": f"runs/{run_id}/",
        }
        seen: set[str] = set()
        scripts = [(block, script(block, names, seen)) for block in RUN]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            outcomes = [threads.submit(fault_of, block, text, tmp_path, env) for block, text in scripts]
            failed = [fault for outcome in outcomes if (fault := outcome.result())]
        assert not failed, "\n".join(failed)
    finally:
        up.terminate()
        up.wait(BOUND_S)


def fault_of(block: Block, text: str, folder: Path, env: dict[str, str]) -> str:
    """Run a block. What went wrong, or nothing."""
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=BOUND_S
    )
    refused = "urn:mainspring:problem" in done.stdout
    if not (done.returncode or refused):
        return ""
    return f"{title(block)}: exit code {done.returncode}\n{text}{done.stdout}{done.stderr}"


def wait_until_ready(port: int) -> None:
    """Until the server answers that it is ready."""
    until = time.monotonic() + BOUND_S
    while time.monotonic() < until:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=5).status_code == HTTPStatus.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    pytest.fail("`mainspring up` is not ready")
