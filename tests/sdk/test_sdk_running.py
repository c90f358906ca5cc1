"""An app that runs inside a program: in a block, in a script, in a web service; the program stays its own master."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from mainspring import Mainspring, every
from mainspring.errors import InvalidInput, MainspringError

BOUND_S = 30


@pytest.fixture
def app(tmp_path: Path) -> Mainspring:
    return Mainspring(f"sqlite:///{tmp_path}/store.db", name="embedded", durable=False)


def surroundings() -> tuple[object, ...]:
    root = logging.getLogger()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    return handlers, sys.stdout, sys.stderr, root.handlers[:], root.level, sys.excepthook, threading.excepthook


async def test_a_block_schedules_and_works_and_leaves_nothing_behind(app: Mainspring) -> None:
    fired = asyncio.Event()
    home = asyncio.get_running_loop()
    threads: list[str] = []

    @app.job(every("100ms"))
    async def beat() -> None:
        assert asyncio.get_running_loop() is home
        fired.set()

    @app.task
    def double(number: int) -> int:
        threads.append(threading.current_thread().name)
        return 2 * number

    before, others = surroundings(), set(threading.enumerate())
    async with app.running():
        assert surroundings() == before
        assert await (await double.submit(4)).result(BOUND_S) == 8
        await asyncio.wait_for(fired.wait(), BOUND_S)
    assert surroundings() == before
    assert app.opened is None
    assert threads != [threading.main_thread().name]
    started = {each for each in set(threading.enumerate()) - others if each.name.startswith("mainspring-")}
    for thread in started:
        if thread.name != "mainspring-task-1":  # A thread of the pool for functions: a daemon, which waits for work.
            thread.join(BOUND_S)
            assert not thread.is_alive(), thread.name
    async with app.running(schedule=False):
        assert await (await double.submit(5)).result(BOUND_S) == 10


async def test_a_block_that_does_not_work_leaves_runs_to_others(app: Mainspring) -> None:
    @app.task
    async def note() -> None: ...

    async with app:
        async with app.running(work=False):
            handle = await note.submit()
            assert (await handle.status()).state == "pending"
        assert app.opened is not None  # The store was open before the block.
        async with app.running(schedule=False):
            await handle.result(BOUND_S)
    with pytest.raises(InvalidInput, match="leaves nothing to run"):
        app.running(schedule=False, work=False)


async def test_a_block_that_cannot_go_on_ends_and_says_why(app: Mainspring) -> None:
    async def block() -> None:
        async with app.running() as running:
            threading.Thread(target=running._fail, args=("the loop stands still",)).start()
            await asyncio.sleep(BOUND_S)

    with pytest.raises(MainspringError, match="stopped running: the loop stands still"):
        await block()
    this = asyncio.current_task()
    assert this is not None
    assert this.cancelling() == 0


async def test_output_is_captured_only_where_that_is_asked_for(app: Mainspring) -> None:
    @app.task
    async def speak() -> None:
        print("to whom it may concern")
        logging.getLogger("speaker").warning("and to the log")

    async def lines(handle_id: str) -> list[str]:
        return [line.text for _, line in await (await app.open()).list_logs(handle_id)]

    before = surroundings()
    async with app:
        async with app.running():
            await (quiet := await speak.submit()).result(BOUND_S)
        assert await lines(quiet.id) == []
        async with app.running(capture=True):
            await (loud := await speak.submit()).result(BOUND_S)
        assert await lines(loud.id) == ["to whom it may concern", "WARNING speaker: and to the log"]
    assert surroundings() == before


def test_app_run_is_for_programs_without_a_loop(app: Mainspring) -> None:
    async def main() -> None:
        with pytest.raises(MainspringError, match="async with app"):
            app.run()

    asyncio.run(main())
    app.run("50ms")


SCRIPT = """
    import asyncio, sys
    from mainspring import Mainspring, every

    app = Mainspring("sqlite:///store.db", name="script", durable=False)

    @app.job(every("100ms"), overlap="forbid")
    async def slow() -> None:
        print("began", flush=True)
        await asyncio.sleep(0.5)
        print("ended", flush=True)

    @app.task(timeout="20s")
    def in_a_process(number: int) -> int:
        return number + 1
"""
RUN = """
    if __name__ == "__main__":
        app.run()
        print("over", flush=True)
"""
SERVED = """
    async def web(scope, receive, send):
        assert scope["type"] == "lifespan"
        await receive()
        async with app.running():
            handle = await in_a_process.submit(1)
            assert await handle.result(30) == 2
            await send({"type": "lifespan.startup.complete"})
            await receive()
        print("over", flush=True)
        await send({"type": "lifespan.shutdown.complete"})
"""


def start(tmp_path: Path, code: str, *argv: str) -> subprocess.Popen[str]:
    (tmp_path / "work.py").write_text(textwrap.dedent(SCRIPT) + textwrap.dedent(code))
    # A shell that starts the tests in the background has its children ignore Ctrl-C; the script must not.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [sys.executable, *argv],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": "."},
        )
    finally:
        signal.signal(signal.SIGINT, before)


def ended(process: subprocess.Popen[str]) -> str:
    """What it wrote until its end, which comes soon."""
    try:
        return process.communicate(timeout=BOUND_S)[0]
    finally:
        process.kill()


def test_a_script_runs_until_ctrl_c_and_lets_work_finish(tmp_path: Path) -> None:
    with start(tmp_path, RUN, "work.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGINT)
        rest = ended(process)
    assert (rest, process.returncode) == ("ended\nover\n", 0)


def test_a_web_service_keeps_its_own_signals(tmp_path: Path) -> None:
    argv = ("-m", "uvicorn", "work:web", "--port", "0", "--log-level", "error")
    with start(tmp_path, SERVED, *argv) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        rest = ended(process)
    assert rest.endswith("ended\nover\n")
    assert process.returncode in (0, -signal.SIGTERM)
