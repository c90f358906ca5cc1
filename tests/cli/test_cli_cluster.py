"""`mainspring cluster`: the leader, and the leaders before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_work import Terminal
from mainspring.core.instants import SECOND
from mainspring.core.model import Node
from mainspring.store import Store


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    yield terminal
    terminal.close()


async def make_history(store: Store) -> None:
    first = await store.begin_term("scheduler", "host:1:a")
    await store.end_term(first, "shutting down")
    await store.begin_term("scheduler", "host:2:b")
    await store.begin_term("default/importer", "host:3:c")
    await store.begin_term("another/importer", "host:4:d")
    await store.check_in(Node("host:2:b", "leader", 5 * SECOND))


def test_the_history_of_terms_is_shown_and_its_json_is_whole(cli: Terminal) -> None:
    cli("db", "migrate")
    cli.store(make_history)
    shown = cli.json("cluster")
    assert sorted((term["name"], term["number"]) for term in shown["leaders"])[::-1] == [
        ("scheduler", 2),
        ("default/importer", 1),
    ]
    assert [(term["number"], term["reason"]) for term in shown["terms"] if term["name"] == "scheduler"] == [
        (2, ""),
        (1, "shutting down"),
    ]
    (node,) = shown["nodes"]
    assert (node["node"], node["alive"], node["check_in"]) == ("host:2:b", True, "5s")
    assert len(cli.json("cluster", "--limit", "1")["terms"]) == 1
    assert "another/importer" not in str(shown)
    out = cli("cluster").out
    assert "shutting down" in out
    assert "host:2:b" in out


@pytest.mark.parametrize(
    ("owner", "coordination", "role"), [("a", "leader", "leads"), ("b", "leader", "stands by"), ("b", "cluster", "")]
)
def test_the_node_that_leads_is_named(cli: Terminal, owner: str, coordination: str, role: str) -> None:
    async def make(store: Store) -> None:
        await store.begin_term("scheduler", owner)
        await store.check_in(Node("a", coordination, 5 * SECOND))

    cli("db", "migrate")
    cli.store(make)
    header, row, *_ = cli("cluster").out.splitlines()
    assert row[header.index("ROLE") : header.index("COORDINATION")].strip() == role


def test_without_any_leader_it_says_how_to_start_one(cli: Terminal) -> None:
    cli("db", "migrate")
    assert "mainspring up" in cli("cluster").err
    shown = {"leaders": [], "nodes": [], "terms": [], "changes": 0, "longest_gap_s": None}
    assert cli.json("cluster") == shown
