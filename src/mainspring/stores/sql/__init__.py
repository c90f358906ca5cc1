"""SQL as files: named queries, numbered migrations and functions, per dialect.

- A query file holds queries, each under a line `-- name: what it does`. What several of them share stands once, under a
  line `-- {name}: what it is`; there `{name}` stands for its text.
- A migration file is `NNNN_name.sql`. The first one makes the schema of the oldest version that this program upgrades;
  the others change it, one version each. Its first line, `-- oldest: N`, is the oldest schema version whose program may
  still use the database afterwards. Tables, columns and indexes change here, and only here. The first line
  `-- oldest: N, concurrently` is for `CREATE INDEX CONCURRENTLY` statements alone: they run outside of a transaction,
  while others write.
- A function file is `name.sql`: functions, procedures and their triggers as `CREATE OR REPLACE`, so that the file is
  the whole text that a database has. Each program creates those whose text differs from its own, after the migrations,
  and in the same transaction; the database keeps a hash of each text.

Two versions of the program share a database during a rolling upgrade. So a function keeps its signature and what it
means to its callers; what needs another signature gets another name, and the old one stays until a migration refuses
the programs that call it. A program never replaces a text that a program with a newer schema created: a release that
changes a function also has a migration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, SupportsIndex, cast

_HERE = Path(__file__).parent
_NUMBER = re.compile(r"\?\d")
_PARAMETER = re.compile(r"\?(\d*)")
_HEADING = re.compile(r"^-- (\w+|\{\w+\}): \S.*$", re.MULTILINE)


class Numbered(str):
    """A query whose file numbers its parameters (`?1`). The driver takes numbers for names since Python 3.12, and wants
    no sequence for them: so `plain` has marks without numbers, and `order` says which value each of them stands for."""

    plain: str
    order: tuple[int, ...]

    def __new__(cls, text: str) -> Numbered:
        query = super().__new__(cls, text)
        order: list[int] = []
        for number in _PARAMETER.findall(text):
            order.append(int(number) - 1 if number else max(order, default=-1) + 1)
        query.order = tuple(order)
        query.plain = _PARAMETER.sub("?", text)
        return query

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> Numbered:
        """Another query."""
        return Numbered(super().replace(old, new, count))

    def arrange(self, values: Sequence[object] | Mapping[str, object]) -> list[object]:
        """The values in the order of the marks."""
        given = cast(Sequence[object], values)
        return [given[index] for index in self.order]


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    oldest: int
    script: str
    concurrent: bool = False
    """Whether its statements build indexes while others write, each by itself and not in a transaction."""


class SchemaStatus(NamedTuple):
    """The schema of a database, and the versions that this program knows."""

    version: int
    """0 without a schema."""
    first: int
    """The oldest version that this program upgrades."""
    latest: int
    oldest: int
    """The oldest schema version whose program may use this database."""

    @property
    def refusal(self) -> str:
        """Why this program may not use it, and what to do; empty if it may."""
        if self.latest < self.oldest:
            return (
                f"has schema version {self.version}, which needs a program that knows at least version {self.oldest}; "
                f"this one knows {self.latest}. Install a newer mainspring"
            )
        if 0 < self.version < self.first:
            return (
                f"has schema version {self.version}, and this program upgrades from version {self.first} on. "
                "Upgrade it with an older mainspring first"
            )
        return ""


@cache
def load_queries(dialect: str, topic: str) -> dict[str, str]:
    """The queries of one file by name."""
    text = (_HERE / dialect / "queries" / f"{topic}.sql").read_text("utf-8")
    pieces = _HEADING.split(text)[1:]
    queries = {name: body.strip().removesuffix(";") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
    if len(queries) * 2 != len(pieces):
        raise ValueError(f"a query of {dialect}/{topic}.sql is named twice")
    for part in [name for name in queries if name.startswith("{")]:
        shared = queries.pop(part)
        queries = {name: query.replace(part, shared) for name, query in queries.items()}
    if dialect == "sqlite":
        return {name: Numbered(query) if _NUMBER.search(query) else query for name, query in queries.items()}
    return queries


class Function(NamedTuple):
    """A file of functions that the database keeps."""

    name: str
    hash: str
    script: str


@cache
def load_functions(dialect: str) -> tuple[Function, ...]:
    """All functions in order of name; they do not depend on each other when they are created."""
    found = []
    for file in sorted((_HERE / dialect / "functions").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            script = file.read_text("utf-8")
            digest = blake2b(script.encode(), digest_size=16).hexdigest()
            found.append(Function(file.name.removesuffix(".sql"), digest, script))
    return tuple(found)


@cache
def load_migrations(dialect: str) -> tuple[Migration, ...]:
    """All migrations in order; their numbers have no gap."""
    found = []
    for file in sorted((_HERE / dialect / "migrations").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".sql"):
            continue
        script = file.read_text("utf-8")
        heading = script.splitlines()[0]
        number, _, name = file.name.removesuffix(".sql").partition("_")
        oldest, _, mode = heading.removeprefix("-- oldest: ").partition(", ")
        found.append(Migration(int(number), name, int(oldest), script, mode == "concurrently"))
    if any(later.version != earlier.version + 1 for earlier, later in pairwise(found)):
        raise ValueError(f"the numbers of {dialect}'s migrations have a gap")
    return tuple(found)
