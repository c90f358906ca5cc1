"""Leadership for users: callbacks at each change, and singletons of their own with a fencing token."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.model import Term
from mainspring.errors import Conflict, LockLost


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


PROGRAM = """
import asyncio, sys
from mainspring import Mainspring

async def main():
    app = Mainspring(f"sqlite:///{sys.argv[1]}", name="leading")
    async with app.leadership("importer", ttl="1s") as led:
        print(led.token, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def make_app(folder: Path) -> Mainspring:
    return Mainspring(f"sqlite:///{folder / 'x.db'}", name="leading")


async def test_callbacks_hear_of_each_change_in_order_with_the_term(tmp_path: Path) -> None:
    app, heard = make_app(tmp_path), list[tuple[str, Term]]()

    @app.on_leader
    def lead(term: Term) -> None:
        heard.append(("leads", term))

    @app.on_follower
    async def follow(term: Term) -> None:
        await asyncio.sleep(0)
        heard.append(("follows", term))

    @app.on_leader
    def fail(term: Term) -> None:
        raise RuntimeError("a callback that fails changes nothing")

    assert not app.is_leader
    async with app.running(work=False):
        await until(lambda: len(heard) == 1 and app.is_leader)
    assert not app.is_leader
    assert [kind for kind, _ in heard] == ["leads", "follows"]
    assert heard[0][1] == heard[1][1]
    assert (heard[0][1].name, heard[0][1].number) == ("scheduler", 1)


async def test_one_at_a_time_leads_and_the_next_has_a_greater_token(tmp_path: Path) -> None:
    first, second = make_app(tmp_path), make_app(tmp_path)
    leading, tokens = asyncio.Event(), list[int]()

    async def wait_for_it() -> None:
        async with second.leadership("importer") as led:
            tokens.append(led.token)
            led.check()

    async with first.leadership("importer") as led:
        tokens.append(led.token)
        waiting = asyncio.create_task(wait_for_it())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        leading.set()
    await asyncio.wait_for(waiting, 20)
    assert tokens == [1, 2]
    with pytest.raises(Conflict, match="does not lead"):
        _ = led.token
    store = await first.open()
    assert [(term.number, term.reason) for term in await store.terms("default/importer", 9)] == [
        (2, "finished"),
        (1, "finished"),
    ]
    await first.close()
    await second.close()


async def test_a_leader_that_loses_its_lease_is_cancelled_and_the_history_says_so(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    store = await app.open()

    async def lead() -> None:
        async with app.leadership("importer", ttl="500ms"):
            ask(
                tmp_path,
                "UPDATE leases SET token = token + 1, owner = 'another' WHERE name LIKE 'user:default:leader:%'",
            )
            await asyncio.sleep(20)

    with pytest.raises(LockLost):
        await lead()
    (term,) = await store.terms("default/importer", 9)
    assert term.reason == "lost the lease"
    await app.close()


def ask(folder: Path, query: str) -> None:
    with closing(sqlite3.connect(folder / "x.db", timeout=20)) as connection, connection:
        connection.execute(query)


def lead_and_die(folder: Path) -> int:
    """The token of a leader in another process that was killed."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder / "x.db")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        token = int(process.stdout.readline())
        process.kill()
    return token


async def test_a_leader_that_died_is_succeeded(tmp_path: Path) -> None:
    token = lead_and_die(tmp_path)
    app = make_app(tmp_path)
    async with asyncio.timeout(20), app.leadership("importer", ttl="1s") as led:
        assert led.token > token
    await app.close()
