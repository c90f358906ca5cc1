"""How many functions and files one request passes: `python -m bench.engine.hops [--before REVISION]`.

Follows a submission, a firing, a POST and a sandboxed command through the package. Counts, for each, the functions of
Mainspring that are entered, the files that they are in, and the calls from one room to another. A function counts once,
however often it is entered. `--before` does the same with the package of another revision, from a copy in a temporary
folder; what it imports beside today's dependencies has to be on `PYTHONPATH`.

A firing is a tick of the manual scheduler: heartbeat, recovery, then plan, claim, execution and report. A sandboxed
command is what a tick enters that a tick of a plain function does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

REPOSITORY = Path(__file__).parents[2]
PATHS = ("submission", "firing", "POST", "sandboxed command")
_COMMAND = {"argv": ["true"]}


class Hops(NamedTuple):
    """What was entered: functions, and calls between functions of two rooms."""

    functions: set[CodeType]
    crossings: set[tuple[CodeType, CodeType]]

    def figures(self) -> tuple[int, int, int]:
        """Functions, files and room changes."""
        return len(self.functions), len({code.co_filename for code in self.functions}), len(self.crossings)

    def without(self, other: Hops) -> Hops:
        """What the other did not enter."""
        return Hops(self.functions - other.functions, self.crossings - other.crossings)


class Tracer:
    """Notes the functions of the package that any thread enters. To be installed before the threads begin."""

    def __init__(self, package: Path) -> None:
        self._package = f"{package}{os.sep}"
        self._testing = f"{package}{os.sep}testing{os.sep}"
        self._hops: Hops | None = None

    def install(self) -> None:
        """Look at each call of this thread, and of all threads that begin from now on."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    @contextmanager
    def counting(self) -> Iterator[Hops]:
        """What is entered within the block."""
        self._hops = Hops(set(), set())
        try:
            yield self._hops
        finally:
            self._hops = None

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        hops = self._hops
        if hops is None or event != "call" or not self._is_ours(frame.f_code):
            return
        hops.functions.add(frame.f_code)
        caller = frame.f_back
        while caller is not None and not self._is_ours(caller.f_code):
            caller = caller.f_back
        if caller is not None and self._room(caller.f_code) != self._room(frame.f_code):
            hops.crossings.add((caller.f_code, frame.f_code))

    def _is_ours(self, code: CodeType) -> bool:
        name = code.co_filename
        return name.startswith(self._package) and not name.startswith(self._testing) and code.co_name[0] != "<"

    def _room(self, code: CodeType) -> str:
        return code.co_filename[len(self._package) :].partition(os.sep)[0]


def _measure() -> dict[str, tuple[int, int, int]]:
    import mainspring

    tracer = Tracer(Path(mainspring.__file__).parent)
    tracer.install()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        submission, post = asyncio.run(_from_outside(tracer))
        firing, command = asyncio.run(_in_the_worker(tracer))
    found = (submission, firing, post, command.without(firing))
    return {name: hops.figures() for name, hops in zip(PATHS, found, strict=True)}


async def _from_outside(tracer: Tracer) -> tuple[Hops, Hops]:
    from mainspring import Mainspring
    from mainspring.api.server import Server

    app = Mainspring("sqlite:///hops.db")
    app.configure(port=0)

    @app.task
    def encode(video: str) -> None: ...

    async with app:
        await encode.submit(video="first")  # What happens only once does not count.
        with tracer.counting() as submission:
            await encode.submit(video="second")
        server = Server(app)
        await server.start()
        try:
            await asyncio.to_thread(_post, server.url)
            with tracer.counting() as post:
                await asyncio.to_thread(_post, server.url)
        finally:
            await server.stop()
    return submission, post


def _post(url: str) -> None:
    body = json.dumps({"task": "encode", "args": {"video": "third"}}).encode()
    with urlopen(Request(f"{url}/v1/runs", body, {"Content-Type": "application/json"}), timeout=30) as response:
        response.read()


async def _in_the_worker(tracer: Tracer) -> tuple[Hops, Hops]:
    from mainspring import Mainspring, every
    from mainspring.testing import ManualScheduler

    app = Mainspring("sqlite:///other.db")

    @app.job(every("1m"))
    def report() -> None: ...

    async with ManualScheduler(app) as scheduler:
        await scheduler.advance("1m")
        scheduler.clock.advance("1m")
        with tracer.counting() as firing:
            await scheduler.tick()
        for _ in range(2):  # The first finds out what the machine can do.
            await app.submit("command", _COMMAND, isolation="sandbox")
            with tracer.counting() as command:
                await scheduler.tick()
    return firing, command


def _measure_revision(revision: str) -> dict[str, tuple[int, int, int]]:
    with TemporaryDirectory() as folder:
        packed = f"{folder}/source.tar"
        subprocess.run(["git", "archive", "-o", packed, revision, "src"], cwd=REPOSITORY, check=True)
        subprocess.run(["tar", "-xf", packed, "-C", folder], check=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{folder}/src", str(REPOSITORY), *sys.path])}
        done = subprocess.run(
            [sys.executable, "-m", "bench.engine.hops", "--json"],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
        )
    found: dict[str, tuple[int, int, int]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print a table, or JSON for another process of this bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.hops", description=__doc__)
    parser.add_argument("--before", metavar="REVISION", help="compare with the package of this revision")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    now = _measure()
    if arguments.json:
        print(json.dumps(now))
        return
    columns = {"now": now}
    if arguments.before:
        columns = {arguments.before: _measure_revision(arguments.before), **columns}
    print("functions / files / room changes")
    print("".join([f"{'':20}", *(f"{name:>16}" for name in columns)]))
    for path in PATHS:
        figures = [" / ".join(map(str, measured[path])) for measured in columns.values()]
        print("".join([f"{path:20}", *(f"{text:>16}" for text in figures)]))


if __name__ == "__main__":
    main()
