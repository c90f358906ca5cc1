"""Live: what changes is shown without a reload, through deaths of the server and proxies that hold streams back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from backstage import OpenPage, Stage, open_stage
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


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
    page = open_page("/runs", at=small.url)
    page.get_by_role("button", name="live").click()
    expect(page.get_by_role("button", name="paused")).to_be_visible()
    identity = submit(small)
    page.wait_for_timeout(1_500)
    expect(page.get_by_role("link", name=identity)).to_have_count(0)
    page.get_by_role("button", name="paused").click()
    expect(page.get_by_role("link", name=identity)).to_be_visible()


def test_a_killed_server_is_told_and_its_return_too(open_page: OpenPage, small: Stage) -> None:
    identity = submit(small)
    page = open_page("/runs", at=small.url, expects_faults=True)
    expect(page.get_by_role("link", name=identity)).to_be_visible()
    small.kill()
    expect(page.get_by_role("button", name="no answer since")).to_be_visible()
    expect(page.get_by_role("link", name=identity)).to_be_visible()
    small.start()
    expect(page.get_by_role("button", name="live")).to_be_visible(timeout=20_000)
    newer = submit(small)
    expect(page.get_by_role("link", name=newer)).to_be_visible()


def test_where_no_stream_passes_the_page_asks_every_five_seconds(open_page: OpenPage, small: Stage) -> None:
    page = open_page("/settings", at=small.url, expects_faults=True)
    page.route("**/v1/live*", lambda route: None)  # Held back for ever, as by a proxy that buffers.
    page.goto(f"{small.url}/ui/runs")
    expect(page.get_by_role("button", name="every 5 s")).to_be_visible()
    identity = submit(small)
    expect(page.get_by_role("link", name=identity)).to_be_visible()
