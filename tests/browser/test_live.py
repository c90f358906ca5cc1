"""Live: what changes is shown without a reload, through deaths of the server and proxies that hold streams back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from backstage import OpenPage, Stage, Wire, open_stage
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

NEWER = """
import mainspring.version
mainspring.version.VERSION = "99.0.0"
from mainspring.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server of this file's own, that may be killed."""
    with open_stage(tmp_path_factory.mktemp("live"), is_seeded=False) as stage:
        yield stage


def submit(stage: Stage) -> str:
    """A run that succeeds; the end of its id."""
    run = stage.ask("POST", "/v1/runs", json={"task": "exact", "args": {"number": 1}})
    return str(run["run_id"])[-8:]


def test_a_new_run_appears_and_typing_is_undisturbed(open_page: OpenPage, small: Stage) -> None:
    page = open_page("/runs", at=small.url)
    expect(page.get_by_role("button", name="live")).to_be_visible()
    page.get_by_label("filter runs").fill("task:exact")
    identity = submit(small)
    expect(page.get_by_role("link", name=identity)).to_be_visible()
    expect(page.get_by_label("filter runs")).to_have_value("task:exact")
    expect(page.get_by_label("filter runs")).to_be_focused()


def test_a_paused_page_stays_as_it_is(open_page: OpenPage, small: Stage) -> None:
    first = submit(small)
    page, other = open_page("/runs", at=small.url), open_page("/runs", at=small.url)
    expect(page.get_by_role("link", name=first)).to_be_visible()
    page.get_by_role("button", name="live").click()
    expect(page.get_by_role("button", name="paused")).to_be_visible()
    identity = submit(small)
    expect(other.get_by_role("link", name=identity)).to_be_visible()
    expect(page.get_by_role("link", name=identity)).to_have_count(0)
    page.get_by_role("button", name="paused").click()
    expect(page.get_by_role("link", name=identity)).to_be_visible()


def test_a_killed_server_is_reported_and_so_is_its_return_with_another_version(
    open_page: OpenPage, small: Stage
) -> None:
    identity = submit(small)
    page = open_page("/runs", at=small.url, expects_faults=True)
    form = open_page("/new-job", at=small.url, expects_faults=True)
    form.get_by_label("Name", exact=True).fill("half-typed")
    asking = open_page("/workers", at=small.url, expects_faults=True)  # Again every three seconds.
    expect(asking.get_by_role("table", name="workers")).to_be_visible()
    expect(page.get_by_role("link", name=identity)).to_be_visible()
    small.kill()
    expect(page.get_by_role("button", name="no answer since")).to_be_visible()
    expect(page.get_by_role("link", name=identity)).to_be_visible()
    expect(asking.get_by_role("alert")).to_be_visible()
    expect(asking.get_by_role("table", name="workers")).to_be_visible()
    small.start([sys.executable, "-c", NEWER])
    expect(page.get_by_role("button", name="live")).to_be_visible()
    newer = submit(small)
    expect(page.get_by_role("link", name=newer)).to_be_visible()
    expect(asking.get_by_role("alert")).to_have_count(0)
    expect(form.get_by_text("The server has another version (99.0.0)")).to_be_visible()
    expect(form.get_by_label("Name", exact=True)).to_have_value("half-typed")


def test_a_page_that_is_opened_while_the_server_is_away_says_so_and_goes_on(open_page: OpenPage, small: Stage) -> None:
    page = open_page("/settings", at=small.url, expects_faults=True)
    page.route("**/v1/**", lambda route: route.abort())
    page.goto(f"{small.url}/ui/")
    expect(page.get_by_role("alert")).to_contain_text("There is no connection to it.")
    page.unroute_all(behavior="wait")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_output_is_followed_through_a_broken_connection_without_a_gap_or_a_double(
    open_page: OpenPage, small: Stage, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    run = small.ask("POST", "/v1/runs", json={"task": "drip", "args": {"lines": 100, "end": str(end)}})["run_id"]
    wire = Wire(small)
    try:
        page = open_page(f"/runs/{run}?tab=output", at=wire.url, expects_faults=True)
        output = page.get_by_role("log")
        for line in ("drop 10\n", "drop 40\n"):
            expect(output).to_contain_text(line.strip())
            wire.cut()
        expect(output).to_contain_text("drop 100")  # While it runs: its end makes the page read all of it again.
        end.touch()
        small.ended(run)
        expect(page.get_by_text("100 lines", exact=True)).to_be_visible()
        assert (output.locator(".text").all_text_contents()) == ["".join(f"drop {n}\n" for n in range(1, 101))]
    finally:
        wire.close()


def test_where_no_stream_passes_the_page_asks_every_five_seconds(open_page: OpenPage, small: Stage) -> None:
    page = open_page("/settings", at=small.url, expects_faults=True)
    page.route("**/v1/live*", lambda route: None)  # Held back for ever, as by a proxy that buffers.
    page.goto(f"{small.url}/ui/runs")
    expect(page.get_by_role("button", name="every 5 s")).to_be_visible()
    identity = submit(small)
    expect(page.get_by_role("link", name=identity)).to_be_visible()
