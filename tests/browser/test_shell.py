"""The shell: no page asks elsewhere, breaks the policy, fails an accessibility check or scrolls sideways."""

from __future__ import annotations

import pytest
from backstage import OpenPage, Stage
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

PAGES = {
    "/": "Overview", "/jobs": "Jobs", "/jobs/etl-nightly": "etl-nightly",
    "/jobs/sync-inventory?tab=runs": "sync-inventory", "/jobs/invoices?tab=next": "invoices",
    "/jobs/payroll?tab=definition": "payroll", "/new-job": "New job", "/runs": "Runs",
    "/failures": "Failures", "/workers": "Workers", "/calendars": "Calendars", "/events": "Events", "/audit": "Audit",
    "/settings": "Settings",
}  # fmt: skip
PLANTED = "<img src=x onerror=\"document.title='planted'\">"


def go(page: Page, stage: Stage, path: str) -> None:
    """Another page of the same context, with its data."""
    page.goto(f"{stage.url}/ui{path}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(PAGES[path])
    expect(page.locator(".skeleton")).to_have_count(0)


def test_every_page_works_without_any_other_host_and_says_nothing_on_the_console(
    open_page: OpenPage, stage: Stage
) -> None:
    page = open_page()
    for path in PAGES:
        go(page, stage, path)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_no_page_scrolls_sideways_on_a_small_screen(open_page: OpenPage, stage: Stage) -> None:
    page = open_page(viewport={"width": 360, "height": 740})
    for path in PAGES:
        go(page, stage, path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{path} is {width} px wide"


@pytest.mark.parametrize(
    "looks", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}], ids=str
)
def test_axe_finds_nothing(open_page: OpenPage, stage: Stage, axe: str, looks: dict[str, str]) -> None:
    page = open_page(bypass_csp=True, **looks)
    found = []
    for path in PAGES:
        go(page, stage, path)
        page.evaluate(axe)
        for each in page.evaluate("axe.run()")["violations"]:
            found += [f"{path}: {each['id']}: {node['html'][:160]}" for node in each["nodes"]]
    assert found == []


def test_planted_markup_is_shown_as_text(open_page: OpenPage, stage: Stage) -> None:
    stage.ask(
        "POST",
        "/v1/jobs",
        json={"name": f"evil {PLANTED}", "task": "refuse", "args": {"text": PLANTED}, "manual": True},
    )
    run = stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": PLANTED}, "key": PLANTED})
    stage.ended(run["run_id"])
    page = open_page("/jobs?q=task:refuse")
    expect(page.get_by_role("link", name=f"evil {PLANTED}")).to_be_visible()
    for tab in ("", "?tab=output", "?tab=data"):
        page.goto(f"{stage.url}/ui/runs/{run['run_id']}{tab}")
        expect(page.get_by_text(PLANTED if tab != "?tab=data" else "onerror").first).to_be_visible()
        assert page.locator("main img").count() == 0
        assert page.title() != "planted"


def test_a_dialog_keeps_the_focus_and_gives_it_back(open_page: OpenPage) -> None:
    page = open_page("/jobs/payroll")
    button = page.get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("mainspring job pause payroll")
    for _ in range(8):
        page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        assert page.evaluate(inside), "the focus left the dialog"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()


def test_keys_lead_to_pages_and_never_fire_in_a_field(open_page: OpenPage) -> None:
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("filter jobs")).to_be_focused()
    page.keyboard.type("gr")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page.get_by_label("filter jobs")).to_have_value("gr")


def test_the_palette_finds_a_job(open_page: OpenPage) -> None:
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("payroll")
    expect(page.get_by_role("option", name="payroll")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="payroll")).to_be_visible()
