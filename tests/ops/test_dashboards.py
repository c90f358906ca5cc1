"""Dashboards: the files are what is described, and every query answers in a real Prometheus that scrapes a real run and
its broker."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_servers import find_server
from cli_work import Terminal
from mainspring.ops.dashboards.description import BOARDS, Dashboard, Query
from mainspring.ops.dashboards.grafana import COLUMNS, as_text, grafana
from mainspring.testing.servers.process import free_port
from prometheus_server import answers, running_prometheus

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
QUERIES = [query for board in BOARDS for _, row in board.rows for panel in row for query in panel.queries]
WORK = """
import asyncio
from mainspring import Mainspring, every

app = Mainspring(name="seen")

@app.job(every("1s"))
async def tick():
    async with app.lock("one"):
        await asyncio.sleep(0.01)

@app.job(every("1s"))
def fail():
    raise ValueError("on purpose")
"""
NOT_IN_EVERY_RUN = {
    # Nothing of this kind happens in a short and healthy run on SQLite: the series begins with the first.
    "mainspring_store_errors_total",
    "mainspring_broker_total",
    "mainspring_cache_total",
    "mainspring_statuses_total",
    "mainspring_duplicates_total",
    "mainspring_starts_late_total",
}


def until(look: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    """Look until it answers True."""
    end = time.monotonic() + limit_s
    while not look():
        assert time.monotonic() < end, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of a Prometheus and of the server that it scrapes."""
    folder = tmp_path_factory.mktemp("prometheus")
    served = f"http://127.0.0.1:{free_port()}"
    (folder / "work.py").write_text(WORK)
    broker = f"{find_server('RABBITMQ')}?prefix={secrets.token_hex(4)}."
    environment = {**os.environ, "MAINSPRING_STORE": "sqlite:///seen.db", "MAINSPRING_BROKER": broker}
    command = [sys.executable, "-m", "mainspring", "up", "work.py", "--port", served.rpartition(":")[2]]
    quiet: Any = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=environment, **quiet)
    try:
        with running_prometheus(folder, served) as address:
            until(lambda: answers(f"{served}/metrics"), "the server does not answer")
            yield address, served
    finally:
        server.kill()
        server.wait()


def ask(address: str, query: Query) -> list[object]:
    answer = httpx.get(f"{address}/api/v1/query", params={"query": query.expr}).json()
    assert answer["status"] == "success", (query.expr, answer)
    found: list[object] = answer["data"]["result"]
    return found


def names_in(query: Query) -> set[str]:
    return set(re.findall(r"\bmainspring[:_][\w:]+", query.expr))


@pytest.mark.brokers
def test_every_query_answers_in_a_real_prometheus(prometheus: tuple[str, str]) -> None:
    address, _ = prometheus
    left = [query for query in QUERIES if not names_in(query) & NOT_IN_EVERY_RUN]

    def none_left() -> bool:
        left[:] = [query for query in left if not ask(address, query)]
        return not left

    until(none_left, f"nothing answers {[query.expr for query in left]}", 90)
    for query in QUERIES:
        ask(address, query)


@pytest.mark.brokers
def test_every_metric_of_a_query_is_in_a_real_answer_or_is_recorded(prometheus: tuple[str, str]) -> None:
    text = httpx.get(f"{prometheus[1]}/metrics").text
    served = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    served |= {f"{name}{end}" for name in served for end in ("_bucket", "_sum", "_count", "_total")}
    recorded = set(re.findall(r"record: (\S+)", (DEPLOY / "prometheus" / "recording.rules.yml").read_text()))
    assert set().union(*map(names_in, QUERIES)) - served - recorded == set()
    rules = "".join(
        (DEPLOY / "prometheus" / f"{name}.rules.yml").read_text() for name in ("recording", "alerts", "sources")
    )
    used = {name for name in re.findall(r"\bmainspring_\w+", rules) if not name.endswith("_")}
    assert used - served == set()


@pytest.mark.brokers
def test_the_cost_of_cpu_time_is_what_prometheus_saw(
    prometheus: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, served = prometheus
    (tmp_path / "prices.toml").write_text('[components.processors]\nunit = "cpu_hour"\nprice = 0.05\n')
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    words = ("cost", "--since", "1m", "--prices", "prices.toml")
    terminal("db", "migrate")
    look = Query("sum(rate(mainspring_process_cpu_seconds_total[60s]))")
    until(lambda: ask(address, look) != [], "two scrapes")
    answer = terminal.json(*words, "--prometheus", address)
    hours, bill = Decimal(answer["usage"]["cpu_hours"]), answer["bill"]
    used = re.search(r"^mainspring_process_cpu_seconds_total (\S+)", httpx.get(f"{served}/metrics").text, re.MULTILINE)
    assert used is not None
    # The server has used more than it had at the scrapes; a month is 720 hours, and the period one minute.
    assert 0 < hours <= Decimal(used[1]) / 60 * 720
    assert abs(Decimal(bill["total"]) - hours * Decimal("0.05")) < Decimal("0.01")
    for other in (served, "http://127.0.0.1:9"):  # A server that is no Prometheus, and none.
        refused = terminal(*words, "--prometheus", other)
        assert refused.code == 2
        assert f"Prometheus at '{other}' does not answer" in refused.err


@pytest.mark.brokers
def test_the_rules_evaluate_without_errors(prometheus: tuple[str, str]) -> None:
    until(lambda: ask(prometheus[0], Query("mainspring:success:ratio5m")) != [], "no rule has been evaluated")
    groups = httpx.get(f"{prometheus[0]}/api/v1/rules").json()["data"]["groups"]
    troubles = {rule["name"]: rule.get("lastError") for group in groups for rule in group["rules"]}
    assert {name: why for name, why in troubles.items() if why} == {}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_the_file_of_a_board_is_what_is_described(board: Dashboard) -> None:
    file = DEPLOY / "grafana" / f"{board.name}.json"
    assert file.read_text() == as_text(board), "python -m mainspring.ops.dashboards.grafana deploy/grafana"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_panels_do_not_overlap(board: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    panels = grafana(board)["panels"]
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
