"""Ways to the web UI from a terminal: printed addresses, `--web`, `mainspring ui`; and `mainspring top`."""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
from rich.console import Console, RenderableType
from rich.live import Live

from cli_work import FILMS, SECRET, Served, Terminal
from mainspring.cli.opening import Backend
from mainspring.cli.web.top import _watch as watch
from mainspring.cli.web.top import draw
from mainspring.errors import StoreUnavailable
from mainspring.operations.views.overview_records import Fleet, Overview, RunCounts

AT = datetime(2026, 11, 18, tzinfo=UTC)
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("web"))
    yield server
    server.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.write("films.py", FILMS)
    yield terminal
    terminal.close()


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which the browser of this test writes the addresses that it opens."""
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    return opened


def read(opened: Path) -> str:
    """What the browser was given; it is a process of its own."""
    deadline = time.monotonic() + PATIENCE_S
    while not (opened.exists() and opened.read_text().endswith("\n")):
        assert time.monotonic() < deadline, "no browser was started"
        time.sleep(0.02)
    return opened.read_text().strip()


def test_commands_print_the_address_of_their_page_and_open_it(cli: Terminal, served: Served, opened: Path) -> None:
    cli.connect(served)
    cli("job", "add", "nightly/etl", "--cron", "0 2 * * *", "--task", "encode")
    job_id = cli.json("job", "show", "nightly/etl")["job_id"]
    assert f"Page: {served.url}/ui/jobs/{job_id}" in cli("job", "show", "nightly/etl").err
    submitted = cli("run", "submit", "encode", "--arg", "video=v1")
    run_id = submitted.out.strip()
    page = f"{served.url}/ui/runs/{run_id}"
    assert f"Page: {page}" in submitted.err
    cli.finish("run", "show", run_id[-8:], "--web")  # Python looks for browsers once per process.
    assert read(opened) == page


def test_each_command_opens_the_page_that_it_prints(
    cli: Terminal, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def note(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", note)
    cli.connect(served)
    cli("job", "add", "nightly", "--cron", "0 2 * * *", "--task", "encode")
    assert cli("job", "show", "nightly", "--web").code == 0
    assert cli("job", "trigger", "nightly", "--web").code == 0
    submitted = cli("run", "submit", "encode", "--web").out.strip()
    shown = cli("run", "show", submitted[-8:], "--web").err
    newest, oldest = (run["run_id"] for run in cli.json("run", "list"))
    assert submitted == newest
    pages = ["jobs/nightly", f"runs/{oldest}", f"runs/{newest}", f"runs/{newest}"]
    assert opened == [f"{served.url}/ui/{page}" for page in pages]
    assert f"Page: {opened[-1]}" in shown


def test_the_page_of_another_namespace_names_it(cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_PUBLIC_URL", "https://jobs.example.com")
    submitted = cli("run", "submit", "encode", "--namespace", "night shift")
    assert f"Page: https://jobs.example.com/ui/runs/{submitted.out.strip()}?ns=night+shift\n" in submitted.err


def test_up_prints_the_address_at_which_it_serves_the_ui(cli: Terminal) -> None:
    process = cli.start("up", "films.py", "--port", "0", "--for", "20s")
    assert process.stderr is not None
    line = next(line for line in process.stderr if line.startswith("ui "))
    answer = httpx.get(line.split()[1])
    assert answer.headers["content-type"].startswith("text/html")


def test_an_address_for_people_is_printed_instead_of_the_server_s(
    cli: Terminal, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.connect(served)
    monkeypatch.setenv("MAINSPRING_PUBLIC_URL", "https://jobs.example.com/")
    run_id = cli("run", "submit", "encode").out.strip()
    assert f"Page: https://jobs.example.com/ui/runs/{run_id}" in cli("run", "show", run_id).err


def test_without_a_server_no_page_can_be_opened(cli: Terminal) -> None:
    cli("job", "add", "a", "--every", "1h", "--task", "encode")
    answer = cli("job", "trigger", "a", "--web")
    assert answer.code == 2
    assert "--web needs a server" in answer.err
    assert cli.json("run", "list") == []


def test_the_ui_opens_with_a_token_that_signs_in(
    cli: Terminal, served: Served, opened: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET", SECRET)
    monkeypatch.setenv("MAINSPRING_SERVER", served.url)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    cli.finish("ui", "--role", "viewer")
    file = Path(read(opened).removeprefix("file://"))  # Every user of the machine can read a browser's command line.
    assert file.stat().st_mode & 0o777 == 0o600
    found = re.search(r"url=(.*)/login#token=([^\"]+)", file.read_text())
    assert found is not None
    address, token = found.groups()
    assert address == f"{served.url}/ui"
    answer = httpx.post(f"{served.url}/v1/session", json={"token": token}, headers={"Mainspring-UI": "1"})
    assert answer.status_code in (200, 204)
    assert answer.cookies


def test_a_server_without_a_secret_needs_no_token(cli: Terminal) -> None:
    assert cli("ui", "--print").out == "http://127.0.0.1:8321/ui/\n"


def test_top_shows_the_overview_once(cli: Terminal, served: Served) -> None:
    cli.connect(served)
    cli("job", "add", "hourly", "--every", "1h", "--task", "encode")
    cli("job", "add", "long-" * 20, "--every", "1h", "--task", "encode")
    cli("job", "pause", "long-" * 20, "--reason", "the disks")
    shown = cli("top", "--once").out
    assert re.search(r"long-\S*… It is paused \(the disks\)", shown)  # The name leaves room for what is wrong.
    for words in ("leader", "none: no node plans firings", "0 of 0 slots", "No scheduler leads", "Next due", "hourly"):
        assert words in shown
    assert cli.json("top")["next"][0]["name"] == "hourly"


@pytest.mark.parametrize(("lines", "has_remedy"), [("24", False), ("40", True)])
def test_top_shows_a_cause_whole_and_its_remedy_in_a_high_terminal(
    cli: Terminal, monkeypatch: pytest.MonkeyPatch, lines: str, has_remedy: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", lines)
    cli("job", "add", "hourly", "--every", "1h", "--task", "encode")
    words = [f"word{number}" for number in range(20)]
    cli("job", "pause", "hourly", "--reason", " ".join(words))
    answer = cli("top", "--once")
    assert max(map(len, answer.out.splitlines())) <= 80
    shown = " ".join(answer.out.split())  # As it reads across lines.
    assert f"hourly It is paused ({' '.join(words)}). · " in shown  # The age, which comes last, follows.
    assert ("Resume it with mainspring job resume hourly" in shown) is has_remedy


def test_top_is_not_steered_by_a_reason_of_several_lines(cli: Terminal) -> None:
    cli("job", "add", "hourly", "--every", "1h", "--task", "encode")
    cli("job", "pause", "hourly", "--reason", "the disks\n\x1b]0;owned\x07 \x9b31m")
    assert "\\x1b]0;owned\\x07 \\x9b31m" in cli("top", "--once").out


def an_overview(**changes: Any) -> Overview:
    """The overview of an idle namespace."""
    counts = RunCounts(due=0, blocked=0, later=0, succeeded=0, failed=0, missed=0)
    fleet = Fleet(active=1, known=1, running=0, slots=4)
    found = Overview(
        at=AT, leader=None, workers=fleet, counts=counts, oldest_due=None, attention=[], running=[], next=[]
    )
    return msgspec.structs.replace(found, **changes)


def printed(shown: RenderableType) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text()


def test_top_says_under_which_pressure_the_namespace_is_and_what_is_given_up() -> None:
    pressed = an_overview(degradation="shedding", pressure=1.2, given_up="runs of priorities 8 to 10 are skipped")
    assert "pressure" not in printed(draw(an_overview(), rows=8))
    assert "shedding (1.2): runs of priorities 8 to 10 are skipped" in printed(draw(pressed, rows=8))


class _Away:
    """A scheduler that answers once, then not, and then the user ends it."""

    def __init__(self) -> None:
        self._asked = 0

    async def overview(self) -> Overview:
        self._asked += 1
        if self._asked == 2:
            raise StoreUnavailable("the database is away")
        if self._asked == 3:
            raise KeyboardInterrupt
        return an_overview()


def test_an_outage_does_not_end_top(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(Live, "update", lambda _, renderable: shown.append(printed(renderable)))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(watch(cast("Backend", _Away()), 0.001, 8))
    (during,) = shown
    assert f"no answer since {AT.astimezone():%H:%M:%S}" in during
    assert "1 of 1" in during  # What was known stays.
