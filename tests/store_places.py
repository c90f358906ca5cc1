"""Where tests of backups restore to: a new file, or a new database on the server that `make services` started."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

URLS = Path(__file__).parent.parent / ".services" / "urls"
VARIABLE = "MAINSPRING_TEST_POSTGRES"


def find_server() -> str:
    """The URL of the running server; the test fails without one."""
    known = dict(os.environ)
    if VARIABLE not in known and URLS.exists():
        known |= dict(line.split("=", 1) for line in URLS.read_text().splitlines())
    if VARIABLE not in known:
        pytest.fail("no PostgreSQL: `make services` starts one")
    return known[VARIABLE]


async def on_server(statement: str) -> None:
    """Execute a statement in the server's own database."""
    connection = await asyncpg.connect(in_database("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def in_database(name: str) -> str:
    """The URL of a database of the server."""
    return urlunsplit(urlsplit(find_server())._replace(path=f"/{name}"))


@contextmanager
def places(dialect: str, folder: Path) -> Iterator[Callable[[], str]]:
    """What makes URLs of new and empty stores of a dialect; they are removed in the end."""
    made: list[str] = []

    def make() -> str:
        if dialect == "sqlite":
            return f"sqlite:///{folder / f'{secrets.token_hex(4)}.db'}"
        name = f"mainspring_{secrets.token_hex(6)}"
        asyncio.run(on_server(f"CREATE DATABASE {name}"))
        made.append(name)
        return in_database(name)

    try:
        yield make
    finally:
        for name in made:
            asyncio.run(on_server(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
