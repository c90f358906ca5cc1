"""The shell: no page asks elsewhere, breaks the policy, fails an accessibility check or scrolls sideways."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from backstage import OpenPage, Stage, until
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

PAGES = {
    "/": "Overview", "/jobs": "Jobs", "/jobs?view=ledger": "Jobs", "/jobs/etl-nightly": "etl-nightly",
    "/jobs/sync-inventory?tab=runs": "sync-inventory", "/jobs/invoices?tab=next": "invoices",
    "/jobs/invoices?tab=relations": "invoices", "/jobs/invoices?tab=edit": "invoices",
    "/jobs/payroll?tab=definition": "payroll", "/jobs/payroll?tab=versions": "payroll",
    "/new-job": "New job", "/new-run?task=exact": "New run", "/runs": "Runs", "/failures": "Failures",
    "/load": "Load", "/timeline": "Timeline", "/queues": "Queues", "/workers": "Workers", "/cluster": "Cluster",
    "/calendars": "Calendars", "/calendars?new=1": "New calendar", "/events?q=kind:run.failed": "Events",
    "/audit": "Audit", "/settings": "Settings",
}  # fmt: skip
LOOKS: list[tuple[Any, str]] = [
    ({"color_scheme": "light"}, "{resultTypes: ['violations']}"),
    ({"color_scheme": "dark"}, "{resultTypes: ['violations'], runOnly: ['color-contrast']}"),
    ({"forced_colors": "active"}, "{resultTypes: ['violations'], runOnly: ['color-contrast']}"),
]
"""Themes differ in colours alone: all rules hold in one of them, those of contrast in each."""
LOOKED_AT = "{exclude: ['tbody tr:nth-child(n + 7)']}"
"""Rows of a table are alike: the first few stand for hundreds, each of which takes axe as long."""
STILL = "() => !document.querySelector('.dim') && document.getAnimations().length === 0"
"""While a page loads its data again, what was there before is dimmed."""
STOPS = 12
TO_MAIN = """() => {
  const main = document.querySelector('main');
  main.tabIndex = -1;
  main.focus();
  main.removeAttribute('tabindex');
}"""
"""Tab goes on from here: the header has more stops than a test has time for. `test_the_header_…` walks those."""
IS_FOCUS_SEEN = """() => {
  const at = document.activeElement;
  const look = getComputedStyle(at);
  return at === document.body || (look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2);
}"""
QUESTIONS = """path => performance.getEntriesByType("resource")
  .filter(each => new URL(each.name).pathname === path).map(each => each.startTime)"""
PLANTED = "<img src=x onerror=\"document.title='planted'\">"


def newest(stage: Stage, path: str, name: str, **words: str) -> str:
    """The first of a list."""
    return str(stage.ask("GET", path, params={"limit": 1, **words})["items"][0][name])


def closed_days(stage: Stage) -> str:
    """A calendar; its name."""
    rules = [{"kind": "weekdays", "days": ["sat", "sun"]}]
    stage.ask("PUT", "/v1/calendars/closed", json={"rules": rules, "timezone": "UTC"})
    return "closed"


OBJECTS: dict[str, Callable[[Stage], str]] = {
    "run": lambda stage: f"/runs/{newest(stage, '/v1/runs', 'run_id', state='failed')}",
    "waiting run": lambda stage: f"/runs/{newest(stage, '/v1/runs', 'run_id', queue='gpu', state='pending')}",
    "output": lambda stage: f"/runs/{newest(stage, '/v1/runs', 'run_id', state='failed')}?tab=output",
    "data": lambda stage: f"/runs/{newest(stage, '/v1/runs', 'run_id', state='succeeded')}?tab=data",
    "failure": lambda stage: f"/failures/{until(lambda: stage.ask('GET', '/v1/errors')['items'])[0]['error']}",
    "worker": lambda stage: f"/workers/{stage.silent_workers()[0]}",
    "relations of a run": lambda stage: f"/runs/{newest(stage, '/v1/runs', 'run_id', state='failed')}?tab=relations",
    "calendar": lambda stage: f"/calendars/{closed_days(stage)}",
    "page that is not there": lambda stage: "/elsewhere",
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_sound(open_page: OpenPage, axe: str, path: str) -> None:
    page = open_page(path)
    expect(page.get_by_role("heading", level=1)).to_contain_text(PAGES[path])
    check_sound(page, axe)


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_page_of_one_object_is_sound(open_page: OpenPage, stage: Stage, axe: str, kind: str) -> None:
    page = open_page(OBJECTS[kind](stage))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    check_sound(page, axe)


def test_the_login_is_sound(open_page: OpenPage, stage: Stage, axe: str) -> None:
    page, said = open_page("/settings", expects_faults=True), list[str]()
    page.route("**/v1/**", lambda route: route.fulfill(status=401, json={"title": "unauthenticated", "status": 401}))
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{stage.url}/ui/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    check_sound(page, axe)
    assert [each for each in said if "401" not in each] == []


def check_sound(page: Page, axe: str) -> None:
    """It asks no other host, says nothing on the console, breaks no policy, passes axe in light, dark and forced
    colours, shows where the keyboard is, and does not scroll sideways at 360 px."""
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)
    page.evaluate(axe)
    for look, options in LOOKS:
        page.emulate_media(**look)
        if "color_scheme" in look:  # The page learns of it by an event, some time later.
            expect(page.locator("html")).to_have_attribute("data-theme", look["color_scheme"])
        page.wait_for_function(STILL)
        found = page.evaluate(f"axe.run({LOOKED_AT}, {options})")["violations"]
        assert [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"]] == [], look
    page.evaluate(TO_MAIN)
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        assert page.evaluate(IS_FOCUS_SEEN), page.evaluate("document.activeElement.outerHTML.slice(0, 160)")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_header_shows_where_the_keyboard_is(open_page: OpenPage) -> None:
    page = open_page("/settings")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    stops = page.locator("header :is(a, button, input)").count()
    seen = set[str]()
    for _ in range(stops):
        page.keyboard.press("Tab")
        assert page.evaluate(IS_FOCUS_SEEN), page.evaluate("document.activeElement.outerHTML.slice(0, 160)")
        seen.add(page.evaluate("document.activeElement.closest('header') && document.activeElement.outerHTML"))
    assert len(seen) == stops


def test_planted_markup_is_shown_as_text(open_page: OpenPage, stage: Stage) -> None:
    stage.ask(
        "POST",
        "/v1/jobs",
        json={"name": f"evil {PLANTED}", "task": "refuse", "args": {"text": PLANTED}, "manual": True},
    )
    run = stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": PLANTED}, "key": PLANTED})
    stage.ended(run["run_id"])
    stage.ask("POST", "/v1/jobs/sync-inventory/pause", json={"reason": PLANTED})
    page = open_page("/jobs?q=task:refuse")
    expect(page.get_by_role("link", name=f"evil {PLANTED}").first).to_be_visible()
    for path in ("", "/jobs/sync-inventory", "/failures", "/audit"):
        page.goto(f"{stage.url}/ui{path}")
        expect(page.locator("main").get_by_text("<img src=x").first).to_be_visible()  # Kinds of error have no values.
        assert page.locator("main img").count() == 0
    stage.ask("POST", "/v1/jobs/sync-inventory/resume", json={})
    for tab in ("", "?tab=output", "?tab=data"):
        page.goto(f"{stage.url}/ui/runs/{run['run_id']}{tab}")
        expect(page.get_by_text(PLANTED if tab != "?tab=data" else "onerror").first).to_be_visible()
        assert page.locator("main img").count() == 0
        assert page.title() != "planted"


@pytest.mark.parametrize(
    ("key", "text"), [("Enter", "mainspring job pause payroll"), ("Control+k", "overview"), ("?", "filter of the page")]
)
def test_a_dialog_keeps_the_focus_and_gives_it_back(open_page: OpenPage, axe: str, key: str, text: str) -> None:
    page = open_page("/jobs/payroll")
    button = page.get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press(key)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(text)
    page.evaluate(axe)
    found = page.evaluate("axe.run('dialog[open]', {resultTypes: ['violations']})")["violations"]
    assert [each["id"] for each in found] == []
    for _ in range(8):
        page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        assert page.evaluate(inside), "the focus left the dialog"
        assert page.evaluate(IS_FOCUS_SEEN), page.evaluate("document.activeElement.outerHTML.slice(0, 160)")
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


def test_the_palette_opens_what_was_typed_also_if_enter_is_faster_than_the_answer(open_page: OpenPage) -> None:
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("report-0000")
    expect(page.get_by_role("option", name="report-00000")).to_be_visible()
    page.keyboard.type("8")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="report-00008")).to_be_visible()


def test_the_palette_finds_a_job(open_page: OpenPage) -> None:
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("et")
    expect(page.get_by_role("option").first).to_contain_text("etl-nightly")  # Not the settings.
    page.get_by_label("search pages, jobs and runs").fill("no such thing")
    expect(page.get_by_text("No page, job or run is called")).to_be_visible()
    page.get_by_label("search pages, jobs and runs").fill("payroll")
    expect(page.get_by_role("option", name="payroll")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="payroll")).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_the_first_questions_are_asked_before_the_modules_arrive_and_not_again(open_page: OpenPage, path: str) -> None:
    page = open_page(path)
    expect(page.locator(".live.on")).to_be_visible()  # News has begun, which makes pages ask again.
    expect(page.locator("main h1")).to_be_visible()
    page.wait_for_function("() => performance.now() > 500")
    assert page.evaluate("early.answers") == {}
    assert len(page.evaluate(QUESTIONS, "/v1/me")) == 1
    asked = page.evaluate(QUESTIONS, "/v1/overview")
    assert all(later - earlier > 1_500 for earlier, later in itertools.pairwise(asked)), asked
