"""What a reader must be able to read: nothing hidden, nothing broken, nothing that a slow answer makes untrue."""

from __future__ import annotations

import time

import pytest
from backstage import OpenPage, Stage
from playwright.sync_api import Route, expect

pytestmark = pytest.mark.browser

MAIN = "document.querySelector('script[src*=main]').src"
SLOW_S = 3.5
"""Beyond what the header of an answer can hide."""


def test_a_slow_answer_does_not_move_the_clock(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "hold"})["run_id"]

    def answer_late(route: Route) -> None:
        answer = route.fetch()
        time.sleep(SLOW_S)
        route.fulfill(response=answer)

    page = open_page("/settings")
    page.route("**/v1/overview", answer_late)
    page.goto(f"{stage.url}/ui/")
    lines = page.locator("section", has=page.get_by_role("heading", name="Running now"))
    expect(lines.get_by_role("link", name="hold").first).to_be_visible()
    skew = page.evaluate(f"async () => (await import({MAIN}.replace('main.js', 'api.js'))).skew.value")
    assert skew == 0
    page.unroute_all(behavior="wait")
    stage.ask("POST", f"/v1/runs/{run}/cancel", json={})


def test_a_page_that_could_not_be_loaded_is_loaded_later(open_page: OpenPage) -> None:
    page = open_page("/settings", expects_faults=True)
    expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
    page.route("**/pages/workers.js", lambda route: route.abort())
    page.get_by_role("link", name="Workers").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no connection to it.")
    page.get_by_role("link", name="Queues").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("link", name="Workers").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.unroute_all(behavior="wait")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("table", name="workers")).to_be_visible()
