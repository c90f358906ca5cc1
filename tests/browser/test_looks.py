"""What a reader must be able to read: nothing hidden, nothing broken, nothing that a slow answer makes untrue."""

from __future__ import annotations

import re
import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from backstage import OpenPage, Stage
from playwright.sync_api import Route, ViewportSize, expect

from mainspring.core.load.degradation import REFUSING, Level

pytestmark = pytest.mark.browser

NARROW: ViewportSize = {"width": 390, "height": 844}
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


def test_why_a_job_is_paused_has_its_command_and_its_instant_in_the_zone_of_the_job(open_page: OpenPage) -> None:
    page = open_page("/jobs/cleanup")
    why = page.locator(".why-job")
    expect(why.locator("code")).to_have_text("mainspring job resume cleanup")
    expect(why.locator("time")).to_have_text(re.compile(r"^.*\d\d:\d\d:\d\d \+00:00 · .* ago$"))
    expect(why).not_to_contain_text("`")


def test_a_long_reason_leaves_room_for_the_name(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": "a word " * 150}})["run_id"]
    stage.ended(run)
    page = open_page("/runs?state=failed&since=all")
    expect(page.get_by_role("row", name=re.compile(run[-8:]))).to_be_visible()
    name = page.get_by_role("link", name="sync-inventory").first
    box, tall = name.bounding_box(), page.get_by_role("row", name=re.compile(run[-8:])).bounding_box()
    assert box is not None
    assert tall is not None
    assert box["height"] < 30  # One line.
    assert tall["height"] < 60  # Two lines.


def test_a_failed_cell_keeps_its_colour_under_the_pointer(open_page: OpenPage) -> None:
    page = open_page("/jobs/etl-nightly")
    cell = page.locator(".cell.o-failed").last
    colour = "(cell) => getComputedStyle(cell).backgroundColor"
    before = cell.evaluate(colour)
    cell.hover()
    assert cell.evaluate(colour) == before


def test_a_narrow_ledger_begins_with_the_newest_firing(open_page: OpenPage) -> None:
    page = open_page("/jobs/cleanup", viewport=NARROW)
    expect(page.locator("[data-newest]")).to_be_in_viewport()


def test_the_choice_of_columns_is_aligned_on_a_narrow_screen(open_page: OpenPage) -> None:
    page = open_page("/runs", viewport=NARROW)
    page.locator("summary").click()
    boxes = [each.bounding_box() for each in page.locator(".choose input").all()]
    assert all(box is not None and box["width"] < 30 for box in boxes)
    assert len({round(box["x"]) for box in boxes if box is not None}) == 1


def test_a_command_never_ends_a_line_behind_its_dashes(open_page: OpenPage) -> None:
    page = open_page("/jobs/etl-nightly?tab=edit", viewport=NARROW)
    command = page.locator(".command code")
    expect(command).to_contain_text("mainspring job edit etl-nightly --cron '30 1 * * *'")
    heights = command.evaluate("(code) => [...code.children].map((word) => word.getClientRects().length)")
    assert set(heights) == {1}


def test_a_value_without_neighbours_is_drawn(open_page: OpenPage) -> None:
    page = open_page("/jobs/sync-inventory")
    plot = page.locator(".plot").first
    expect(plot).to_contain_text("30 d ago")
    expect(plot.locator(".high span")).to_have_text([re.compile(r"\d"), "0"])
    path = f"(await import({MAIN}.replace('main.js', 'parts/chart.js'))).pathOf"
    assert page.evaluate(f"async () => {path}([null, 1, null], (n) => n * 50, 1)") == "M48.80 6.00H51.20"
    assert page.evaluate(f"async () => {path}([1, 0.5, null], (n) => n * 50, 1)") == "M0.00 6.00L50.00 38.00"


def test_lengths_of_time_are_written_alike(open_page: OpenPage) -> None:
    page = open_page("/settings")
    written = page.evaluate(
        """async () => {
          const main = MAIN;
          const { length, spaced } = await import(main.replace('main.js', 'draw/text.js'));
          const written = ['1s136ms493us', '26ms954us', '75us', '1h30m', '0s'];
          return [written.map(spaced), [4 * 3600e3 + 51e3, 90061e3].map(length)];
        }""".replace("MAIN", MAIN)
    )
    assert written == [["1.1 s", "27 ms", "75 µs", "1 h 30 m", "0 ms"], ["4 h", "1 d 1 h"]]


def test_ticks_of_an_axis_are_many_enough_on_a_narrow_screen(open_page: OpenPage) -> None:
    page = open_page("/settings")
    counts = page.evaluate(
        """async () => {
          const main = MAIN;
          const { ticks } = await import(main.replace('main.js', 'draw/lanes.js'));
          return [1, 15, 60, 360, 1440, 10080, 43200].map((minutes) => ticks(0, minutes * 72e3, 3).at.length);
        }""".replace("MAIN", MAIN)
    )
    assert all(2 <= each <= 4 for each in counts), counts


def test_ticks_stand_at_local_midnight_also_across_a_clock_change(open_page: OpenPage) -> None:
    page = open_page("/settings")
    days = page.evaluate(
        """async () => {
          const main = MAIN;
          const { ticks } = await import(main.replace('main.js', 'draw/lanes.js'));
          const change = Date.parse('2026-10-25T01:00:00Z');
          const berlin = (at) => (at < change ? 2 : 1) * 36e5;
          const { at } = ticks(Date.parse('2026-10-23T12:00:00Z'), Date.parse('2026-10-27T12:00:00Z'), 5, berlin);
          return at.map((each) => new Date(each).toISOString().slice(0, 16));
        }""".replace("MAIN", MAIN)
    )
    assert days == ["2026-10-23T22:00", "2026-10-24T22:00", "2026-10-25T23:00", "2026-10-26T23:00"]


@pytest.mark.parametrize("path", ["/jobs", "/workers", "/runs?since=all&state=failed"])
def test_no_table_is_cut_at_a_thousand_pixels(open_page: OpenPage, path: str) -> None:
    page = open_page(path, viewport={"width": 1000, "height": 700})
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    assert page.locator(".table").evaluate("(box) => box.scrollWidth - box.clientWidth") == 0


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


def test_the_header_does_not_overlap_on_a_narrow_screen(open_page: OpenPage) -> None:
    page = open_page("/jobs?ns=another-namespace", viewport={"width": 360, "height": 700})
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.evaluate("document.querySelector('.live').textContent = 'no answer since 03:14:15'")
    brand, search = page.locator(".brand").bounding_box(), page.locator(".search").bounding_box()
    assert brand is not None
    assert search is not None
    assert search["x"] >= brand["x"] + brand["width"] or search["y"] >= brand["y"] + brand["height"] / 2


def test_the_banner_of_pressure_says_what_is_given_up(open_page: OpenPage, stage: Stage) -> None:
    def answer(route: Route) -> None:
        level = {"degradation": "refusing", "given_up": Level(REFUSING).given_up, "pressure": 8.559}
        route.fulfill(json={**route.fetch().json(), **level, "attention": []})

    page = open_page("/settings", viewport=NARROW)
    page.route("**/v1/overview", answer)
    page.goto(f"{stage.url}/ui/")
    banner = page.get_by_role("status").filter(has_text="Under pressure")
    expect(banner).to_contain_text("Under pressure, load is 8.6 times its limit: new work is refused, ")
    expect(banner).to_contain_text("runs of priorities 8 to 10 are skipped.")
    expect(page.locator(".verdict")).to_have_text(re.compile("Under pressure"))
    text = banner.locator(".first")
    assert text.evaluate("each => each.scrollHeight > each.clientHeight")  # Two lines, until more is asked for.
    banner.get_by_role("button", name="more").click()
    expect(text).to_have_count(0)
    page.unroute_all(behavior="wait")


def test_a_node_keeps_its_place_when_it_checks_in(open_page: OpenPage, stage: Stage) -> None:
    def answer(route: Route) -> None:
        found = route.fetch().json()
        leader = found["nodes"][0]
        dead = [
            {**leader, "node": f"dead-{day}", "alive": False, "checked_in_at": f"2026-01-0{day}T00:00:00Z"}
            for day in (1, 2)
        ]
        younger = {
            **leader,
            "node": "younger",
            "started_at": "2999-01-01T00:00:00Z",
            "checked_in_at": "2999-01-02T00:00:00Z",
        }
        route.fulfill(json={**found, "nodes": [*dead, younger, leader]})

    page = open_page("/settings")
    page.route("**/v1/cluster*", answer)
    page.goto(f"{stage.url}/ui/cluster")
    leader = stage.ask("GET", "/v1/cluster")["leaders"][0]["owner"]
    names = page.get_by_role("table", name="nodes").locator("tbody tr td:first-child")
    expect(names).to_have_text([leader, "younger", "dead-2", "dead-1"])
    page.unroute_all(behavior="wait")


def test_the_audit_names_a_run_by_the_end_of_its_id_on_one_line(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "exact", "args": {"number": 1}})["run_id"]
    page = open_page("/audit?q=action:run.submit")
    link = page.locator(f"a[href$='/runs/{run}']")
    expect(link).to_have_text(f"run …{run[-8:]}")
    box = link.bounding_box()
    assert box is not None
    assert box["height"] < 30


def test_a_long_name_does_not_widen_a_narrow_overview(open_page: OpenPage, stage: Stage) -> None:
    name = "warehouse.facts.customer_lifetime_value.recompute_for_every_region_and_currency"
    stage.ask("POST", "/v1/jobs", json={"name": name, "task": "exact", "args": {"number": 1}, "every": "1s"})
    page = open_page("/", viewport=NARROW)
    expect(page.locator(".lines").get_by_role("link", name=name)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    stage.ask("DELETE", f"/v1/jobs/{name}")


LONG_NAME = "warehouse.facts.customer_lifetime_value.recompute_for_every_region_and_every_currency_of_the_world"


def test_a_long_name_stays_within_the_palette_and_is_broken_behind_its_signs(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/jobs", json={"name": LONG_NAME, "command": "true", "manual": True})
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").get_by_role("textbox").fill("lifetime")
    expect(page.get_by_role("option", name=LONG_NAME)).to_be_visible()
    assert page.locator("dialog:has(.palette)").evaluate("(box) => box.scrollWidth - box.clientWidth") == 0
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(LONG_NAME)
    expect(heading.locator("wbr").first).to_be_attached()
    page.close()
    stage.ask("DELETE", f"/v1/jobs/{LONG_NAME}")


def test_text_that_is_no_json_is_not_blamed_on_the_server(open_page: OpenPage) -> None:
    page = open_page("/calendars?new=1")
    page.get_by_label("Rules as JSON").fill("[{")
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    expect(page.get_by_role("button", name="Save the calendar")).to_be_disabled()
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("heading", name="Calendars")).to_be_visible()


def test_a_year_of_a_calendar_marks_today_and_mutes_what_is_past(open_page: OpenPage, stage: Stage) -> None:
    rules = [{"kind": "weekdays", "days": ["sat", "sun"]}]
    stage.ask("PUT", "/v1/calendars/elsewhere", json={"rules": rules, "timezone": "Pacific/Kiritimati"})
    page = open_page("/calendars/elsewhere")
    today = datetime.now(ZoneInfo("Pacific/Kiritimati"))
    month = page.get_by_role("table", name=f"{today:%B %Y}")
    expect(month.locator("[aria-current=date]")).to_have_text(str(today.day))
    expect(month.locator("td.past")).to_have_count(today.day - 1)
    page.close()
    stage.ask("DELETE", "/v1/calendars/elsewhere")


def test_a_run_that_did_not_start_says_why_and_leads_to_the_other(open_page: OpenPage, stage: Stage) -> None:
    first = stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": "no"}})["run_id"]
    stage.ended(first)
    second = stage.ask("POST", "/v1/runs", json={"task": "exact", "args": {"number": 1}, "after": [first]})["run_id"]
    stage.ended(second, ["skipped"])
    page = open_page(f"/runs/{second}")
    why = page.locator("section", has=page.get_by_role("heading", name="Why it did not run"))
    why.get_by_role("link", name=f"…{first[-8:]}").click()
    expect(page.get_by_role("link", name="all failures of this task")).to_have_attribute(
        "href", re.compile("task=refuse")
    )


def test_many_causes_of_one_kind_hide_no_other_kind(open_page: OpenPage, stage: Stage) -> None:
    def answer(route: Route) -> None:
        cause = {"kind": "job-failing", "state": "failed", "text": "It failed 5 times.", "remedy": "", "since": None}
        jobs = [{**cause, "name": f"job-{n}", "job": f"job-{n}", "run_id": None, "queue": None} for n in range(9)]
        other = {**cause, "kind": "queue-paused", "state": "held", "name": "mail", "job": None, "queue": "mail"}
        route.fulfill(json={**route.fetch().json(), "attention": [*jobs, other]})

    page = open_page("/settings")
    page.route("**/v1/overview", answer)
    page.goto(f"{stage.url}/ui/")
    causes = page.locator(".attention li")
    expect(causes).to_have_count(4)
    expect(causes.last).to_contain_text("mail")
    expect(causes.first.get_by_role("link", name="Failures")).to_have_attribute("href", re.compile("job=job-0"))
    page.get_by_role("button", name="Show 6 more").click()
    expect(causes).to_have_count(10)
    page.unroute_all(behavior="wait")


def test_without_a_worker_not_all_is_well(open_page: OpenPage, stage: Stage) -> None:
    def answer(route: Route) -> None:
        found = route.fetch().json()
        route.fulfill(json={**found, "attention": [], "workers": {**found["workers"], "active": 0}})

    page = open_page("/settings")
    page.route("**/v1/overview", answer)
    page.goto(f"{stage.url}/ui/")
    expect(page.locator(".verdict")).to_have_text(re.compile("No worker is running"))
    expect(page.locator(".attention")).to_contain_text("mainspring worker APP")
    expect(page.get_by_text("Nothing needs you")).to_have_count(0)
    page.unroute_all(behavior="wait")


def test_an_instant_of_today_is_one_of_today_in_its_zone(open_page: OpenPage) -> None:
    page = open_page("/settings", timezone_id="America/New_York")
    written = page.evaluate(
        """async () => {
          const { absolute } = await import(MAIN.replace('main.js', 'draw/text.js'));
          const now = new Date('2026-11-19T22:40:00Z');
          const write = (at) => absolute(new Date(at), 'Europe/Berlin', now);
          return ['2026-11-19T22:50:00Z', '2026-11-19T23:30:00Z'].map(write);
        }""".replace("MAIN", MAIN)
    )
    assert written == ["23:50:00 +01:00", "Fri 20 Nov 00:30:00 +01:00"]


def test_the_audit_names_a_job_by_its_name(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("PATCH", "/v1/jobs/invoices", json={"priority": 4})
    page = open_page("/audit?q=action:job.update")
    page.get_by_role("link", name="job invoices").first.click()
    expect(page.get_by_role("heading", name="invoices")).to_be_visible()


def test_the_audit_without_a_match_names_the_filter_and_clears_it(open_page: OpenPage) -> None:
    page = open_page("/audit?q=subject:nobody")
    expect(page.get_by_text("No change matches subject:nobody.")).to_be_visible()
    page.get_by_role("link", name="Clear the filter").click()
    expect(page.get_by_role("table", name="changes")).to_be_visible()
