"""What each page says of a store whose past is known."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing

import pytest
from backstage import PATIENCE_S, OpenPage, Stage, shell, until
from playwright.sync_api import Route, expect

pytestmark = pytest.mark.browser

BEYOND = 2**60 + 1
LINE_UNDER = """(mark) => {
  const [box, text] = [mark.getBoundingClientRect(), mark.parentElement.querySelector('pre.text')];
  const lines = text.innerText.trimEnd().split("\\n");
  const { top, height } = text.getBoundingClientRect();
  return lines[Math.floor((box.top + box.height / 2 - top) / (height / lines.length))];
}"""
"""The line of output on which a mark lies."""


def test_the_overview_names_what_needs_attention(open_page: OpenPage) -> None:
    page = open_page("/")
    attention = page.locator("section", has=page.get_by_role("heading", name="Needs attention"))
    expect(attention).to_contain_text(re.compile(r"\d+ due runs wait in queue gpu, and no worker serves it"))
    expect(attention).to_contain_text(re.compile(r"cleanup.*paused \(maintenance of the disks\)"))


def test_an_open_breaker_is_named_on_every_page(open_page: OpenPage) -> None:
    page = open_page("/settings")
    opened = {"broker": "runs are claimed from the store"}
    page.route("**/v1/overview", lambda route: route.fulfill(json={**route.fetch().json(), "breakers": opened}))
    expect(
        page.get_by_text("The circuit breaker of the broker is open: runs are claimed from the store.")
    ).to_be_visible()
    page.unroute_all(behavior="wait")


def test_back_restores_the_filter_of_the_jobs(open_page: OpenPage) -> None:
    page = open_page("/jobs")
    page.get_by_label("filter jobs").fill("tag:etl")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="etl-nightly").click()
    expect(page.get_by_role("heading", name="etl-nightly")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("filter jobs")).to_have_value("tag:etl")
    expect(page.get_by_role("row")).to_have_count(2)


def test_the_jobs_have_totals_and_how_long_they_take(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/jobs?q=etl-nightly")
    counts = stage.ask("GET", "/v1/jobs:count")
    assert counts["paused"] > 0
    expect(page.get_by_role("link", name=f"paused {counts['paused']}")).to_be_visible()
    expect(page.get_by_text(re.compile(f"^{counts['jobs']} jobs · active {counts['active']} ·"))).to_be_visible()
    row = page.get_by_role("row", name=re.compile("etl-nightly"))
    listed = until(lambda: stage.ask("GET", "/v1/jobs", params={"name": "etl-nightly", "times": True})["items"][0])
    assert listed["took_p50"] > 0
    expect(row.get_by_title("half of its runs took at most")).to_have_text(re.compile(r"^\d"))
    expect(row.get_by_title("half of its runs began at most")).to_have_text(re.compile(r"^\d"))


def test_runs_are_those_of_a_day_unless_that_filter_is_removed(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/runs")
    table = page.get_by_role("table", name="runs")
    with page.expect_request(lambda request: "/v1/runs?" in request.url and "since=" not in request.url):
        page.get_by_role("link", name="show runs of all time").click()
    expect(page.get_by_role("link", name="show runs of all time")).to_have_count(0)
    page.get_by_role("link", name=re.compile("^failed")).click()
    expect(page).to_have_url(re.compile("since=all"))
    page.goto(f"{stage.url}/ui/runs?state=running")  # What has not ended is shown however old it is.
    expect(page.get_by_role("link", name=re.compile("^running"))).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("link", name="show runs of all time")).to_have_count(0)
    page.goto(f"{stage.url}/ui/runs?since=all&cols=state,worker")
    expect(table.get_by_role("columnheader")).to_have_text(["", "Run", "State", "Worker"])
    page.locator("summary").click()
    page.get_by_label("Region").check()
    expect(page).to_have_url(re.compile("cols=run%2Cstate%2Cworker%2Cregion"))
    expect(table.get_by_role("columnheader").last).to_have_text("Region")


def test_a_filter_without_a_match_says_how_to_clear_it(open_page: OpenPage) -> None:
    page = open_page("/jobs?q=tag:none")
    expect(page.get_by_text("No job matches tag:none")).to_be_visible()
    page.get_by_role("link", name="Clear the filter").click()
    expect(page.get_by_role("link", name="etl-nightly")).to_be_visible()
    for path in ("jobs", "runs"):
        page.goto(f"{page.url.partition('/ui/')[0]}/ui/{path}?q=labels:red")
        expect(page.get_by_text("There is no filter labels:")).to_be_visible()


def test_the_ledger_of_each_trigger_has_a_grid_that_fits(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/jobs/etl-nightly")
    table = page.get_by_role("table", name="ledger")
    expect(table.get_by_role("row")).to_have_count(8)  # Weekdays, and a head with the months.
    page.goto(f"{stage.url}/ui/jobs/sync-inventory")
    expect(table.get_by_role("columnheader")).to_have_count(24)
    page.goto(f"{stage.url}/ui/jobs/train-model")
    expect(page.get_by_text("It has not fired yet.")).to_be_visible()
    page.goto(f"{stage.url}/ui/jobs/publish")  # After another job: its firings in order, thirty in a row.
    expect(table.locator(".cell").nth(5)).to_be_visible()
    expect(table.get_by_role("columnheader")).to_have_count(0)
    stage.ask("POST", "/v1/jobs", json={"name": "by-hand", "command": "true", "manual": True})
    for _ in range(2):
        stage.ended(stage.ask("POST", "/v1/jobs/by-hand/trigger", json={})["run_id"])
    page.goto(f"{stage.url}/ui/jobs/by-hand")
    expect(table.locator(".cell")).to_have_count(2)
    expect(table.get_by_role("row")).to_have_count(1)
    expect(table.get_by_role("columnheader")).to_have_count(0)
    yearly = {"name": "yearly", "command": "true", "schedule": "0 0 1 1 *", "timezone": "UTC"}
    job = stage.ask("POST", "/v1/jobs", json=yearly)
    fill_ledger(stage, job["job_id"], 365 * 86_400, 6)
    page.goto(f"{stage.url}/ui/jobs/yearly")
    expect(table.locator(".cell")).to_have_count(6)
    expect(table.get_by_role("columnheader")).to_have_count(0)


def fill_ledger(stage: Stage, job_id: str, step_s: int, count: int) -> None:
    """Past firings, by one statement."""
    now = time.time_ns() // 1_000
    with closing(sqlite3.connect(stage.store, timeout=PATIENCE_S)) as connection, connection:
        connection.execute(
            """WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
               INSERT OR IGNORE INTO firings (job_id, fire_at, kind, outcome, created_at)
               SELECT :job_id, :now / :step * :step - n * :step, 'scheduled', 'succeeded', :now FROM numbers""",
            {"count": count, "job_id": job_id, "now": now, "step": step_s * 1_000_000},
        )


@pytest.mark.parametrize(
    ("every", "step_s", "cell_s", "span_s"),
    [
        ("1d", 86_400, 86_400, 365 * 86_400),
        ("30m", 1_800, 3_600, 31 * 86_400),
        ("1m", 60, 60, 86_400),
        ("1s", 1, 3, 3_600),
    ],
)
def test_a_grid_has_a_year_of_days_a_month_of_hours_a_day_of_minutes_or_an_hour_of_seconds(
    open_page: OpenPage, stage: Stage, every: str, step_s: int, cell_s: int, span_s: int
) -> None:
    name = f"past-of-{every}"
    job = stage.ask("POST", "/v1/jobs", json={"name": name, "command": "true", "every": every})
    stage.ask("POST", f"/v1/jobs/{name}/pause", json={})
    fill_ledger(stage, job["job_id"], step_s, 2 * span_s // step_s)
    asked: list[str] = []
    page = open_page("/settings")
    page.on("request", lambda request: asked.append(request.url) if "/ledger?" in request.url else None)
    page.goto(f"{stage.url}/ui/jobs/{name}")
    instants = "[...document.querySelectorAll('.cell')].map((each) => Date.parse(each.ariaLabel.split(' ')[0]))"
    until(lambda: page.evaluate(f"Math.min(...{instants}) <= Date.now() - {span_s} * 1000"))
    assert span_s // cell_s <= page.locator(".cell").count() <= 2_100
    assert len(asked) <= 6


def test_the_grid_of_a_young_daily_job_has_a_year(open_page: OpenPage) -> None:
    page = open_page("/jobs/etl-nightly")
    week = page.get_by_role("table", name="ledger").get_by_role("row").nth(1)
    expect(week.locator("td")).to_have_count(53)


def test_relations_are_drawn_as_layers_whose_nodes_lead_on(open_page: OpenPage) -> None:
    page = open_page("/jobs/publish?tab=relations")
    drawing = page.get_by_role("group", name="jobs before and after publish")
    before, own = (drawing.get_by_role("link", name=re.compile(f"^{name}")) for name in ("etl-nightly", "publish"))
    left, right = before.bounding_box(), own.bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]
    expect(page.locator("section", has_text="Before it")).to_contain_text("this job fires after it has ended")
    before.click()
    expect(page.get_by_role("heading", level=1, name="etl-nightly")).to_be_visible()


def test_calendars_are_named_where_they_take_instants_away(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("PUT", "/v1/calendars/week-ends", json={"rules": [{"kind": "weekdays", "days": ["sat", "sun"]}]})
    daily = {"command": "true", "schedule": "30 2 * * *", "timezone": "UTC", "calendars": ["week-ends"]}
    stage.ask("POST", "/v1/jobs", json={"name": "but-on-week-ends", **daily})
    page = open_page("/jobs/but-on-week-ends?tab=next")
    expect(page.locator(".page-head")).to_contain_text("every day at 02:30")
    expect(page.locator(".page-head").get_by_role("link", name="week-ends")).to_be_visible()
    expect(page.get_by_text("is left out: week-ends")).to_be_visible()
    stage.ask("DELETE", "/v1/jobs/but-on-week-ends")


def test_a_refused_dry_run_of_a_backfill_says_why(open_page: OpenPage) -> None:
    problem = {
        "type": "about:blank",
        "title": "Refused",
        "status": 422,
        "detail": "The span is too long.",
        "remedy": "",
    }
    page = open_page("/jobs/cleanup", expects_faults=True, viewport={"width": 1440, "height": 900})
    refuse = {"status": 422, "content_type": "application/problem+json", "json": problem}
    page.route("**/backfill", lambda route: route.fulfill(**refuse))
    page.locator(".cell.o-missed").first.click()
    chosen = page.get_by_label("the chosen instant")
    expect(chosen).to_be_in_viewport()
    page.get_by_role("button", name=re.compile("Backfill th")).first.click()
    expect(chosen.get_by_role("alert")).to_contain_text("The span is too long.")
    page.unroute_all(behavior="wait")


def test_a_cell_has_an_address_and_says_what_became_of_it(open_page: OpenPage, stage: Stage) -> None:
    ledger = stage.ask("GET", "/v1/jobs/etl-nightly/firings", params={"limit": 100})["items"]
    newest = next(each["fire_at"] for each in ledger if each["outcome"] == "failed")
    page = open_page("/jobs/etl-nightly")
    page.locator(f".cell[aria-label^='{newest}']").click()
    expect(page.get_by_label("the chosen instant")).to_contain_text("failed")
    assert "at=20" in page.url
    page.reload()
    expect(page.get_by_label("the chosen instant")).to_contain_text("failed")
    page.get_by_role("link", name="Open its run").click()
    expect(page.get_by_text(re.compile("ConnectionError: db:")).first).to_be_visible()


def test_the_ledger_can_be_walked_by_arrows(open_page: OpenPage) -> None:
    page = open_page("/jobs/sync-inventory")
    expect(page.locator(".cell").first).to_be_visible()
    before = page.evaluate("document.querySelector('.cell[tabindex=\"0\"]').focus(), document.activeElement.title")
    page.keyboard.press("ArrowUp")
    after = page.evaluate("document.activeElement.title")
    assert after != before
    page.keyboard.press("Enter")
    expect(page.get_by_label("the chosen instant")).to_be_visible()


def test_a_missed_night_can_be_fired_from_its_cell(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/jobs/sync-inventory")
    missed = page.locator(".cell.o-missed:not(.band)").first
    label = missed.get_attribute("aria-label")
    assert label is not None
    instant = label.split()[0]
    missed.click()
    chosen = page.get_by_label("the chosen instant")
    expect(chosen).to_contain_text("a later instant stands for it")
    page.get_by_role("button", name=re.compile("Backfill th")).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"mainspring job backfill sync-inventory --from 20"))
    rows = stage.ask("GET", "/v1/jobs/sync-inventory/firings", params={"limit": 500})["items"]
    [stretch] = [each for each in rows if each["fire_at"] == instant]
    assert stretch["outcome"] == "missed", "nothing fires before it is confirmed"
    dialog.get_by_role("button", name=f"Fire {stretch['count']}", exact=True).click()
    expect(dialog).to_be_hidden()
    cell = page.locator(f".cell[aria-label^='{instant}']")
    expect(cell).to_have_class(re.compile("o-(succeeded|failed|late)"), timeout=20_000)


def test_an_edit_of_the_job_reaches_an_open_page(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/jobs/invoices")
    expect(page.get_by_text("active").first).to_be_visible()
    expect(page.get_by_role("button", name="live")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Reason").fill("the books are closed")
    page.get_by_role("dialog").get_by_role("button", name="Pause it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()  # Its command holds the same words.
    expect(page.locator("main").get_by_text("the books are closed").first).to_be_visible()
    assert stage.ask("GET", "/v1/jobs/invoices")["paused_why"] == "the books are closed"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume it").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_a_job_whose_name_has_a_slash_is_found_and_acted_on(open_page: OpenPage, stage: Stage) -> None:
    words = {"name": "team/report", "task": "refuse", "args": {"text": "no"}, "every": "1h"}
    job = stage.ask("POST", "/v1/jobs", json=words)["job_id"]
    run = stage.ask("POST", f"/v1/jobs/{job}/trigger", json={})["run_id"]
    stage.ended(run)
    page = open_page(f"/runs/{run}")
    page.locator("main").get_by_role("link", name="team/report").click()
    expect(page.get_by_role("heading", name="team/report")).to_be_visible()
    for tab in ("Runs", "Next", "Ledger"):
        page.get_by_role("navigation", name="parts").get_by_role("link", name=tab).click()
        expect(page.get_by_role("table").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause it").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.goto(f"{stage.url}/ui/")
    cause = page.locator(".attention li").filter(has_text="team/report")
    cause.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume it").click()
    until(lambda: stage.ask("GET", f"/v1/jobs/{job}")["state"] == "active")


def test_an_address_that_a_command_prints_opens_its_page(open_page: OpenPage, stage: Stage) -> None:
    words = {"name": "team/printed", "task": "exact", "args": {"number": 1}, "manual": True}
    stage.ask("POST", "/v1/jobs", json=words)
    page = open_page("/settings")
    run = ""
    for line in ("mainspring job show team/printed", "mainspring job trigger team/printed"):
        page.goto(shell(stage, line).partition("Page: ")[2].strip())
        expect(page.get_by_role("heading", level=1)).to_contain_text("team/printed")
        run = page.url.rpartition("/")[2]
    page.goto(f"{stage.url}/ui/runs/{run[-8:]}")
    expect(page).to_have_url(f"{stage.url}/ui/runs/{run}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"team/printed …{run[-8:]}")


def test_a_run_says_why_it_waits(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("GET", "/v1/runs", params={"queue": "gpu", "state": "pending", "limit": 1})["items"][0]
    page = open_page(f"/runs/{run['run_id'][-10:]}")
    expect(page.get_by_role("heading", name="Why it is not running")).to_be_visible()
    expect(page.locator(".why")).to_contain_text("queue")


def test_of_a_run_that_was_removed_the_page_says_what_the_ledger_knows(open_page: OpenPage, stage: Stage) -> None:
    run_id = stage.ask("POST", "/v1/jobs/etl-nightly/trigger", json={})["run_id"]
    stage.ended(run_id)
    with closing(sqlite3.connect(stage.store, timeout=PATIENCE_S)) as connection, connection:
        connection.execute("DELETE FROM history WHERE id = ?", (run_id,))
    page = open_page(f"/runs/{run_id}", expects_faults=True)
    known = page.get_by_role("region", name="what the ledger knows")
    expect(known.get_by_role("link", name="etl-nightly")).to_be_visible()
    expect(known).to_contain_text(re.compile("outcome.*(succeeded|failed)"))


def test_a_queue_has_its_rates(open_page: OpenPage, stage: Stage) -> None:
    stage.ended(stage.ask("POST", "/v1/runs", json={"task": "chatter", "args": {"lines": 1}})["run_id"])

    def rate() -> float:
        queues = {each["queue"]: each for each in stage.ask("GET", "/v1/queues")["items"]}
        return float(queues["default"]["ended_per_minute"])

    until(rate)
    queue = open_page("/queues").get_by_role("region", name="queue default")
    expect(queue).to_contain_text(re.compile(r"in per minute\s*\d.*out per minute\s*\d"))


def test_ten_thousand_lines_are_text_and_each_has_an_address(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "chatter", "args": {"lines": 10_000}})
    stage.ended(run["run_id"])
    page = open_page(f"/runs/{run['run_id']}?tab=output#L9000")
    expect(page.get_by_role("log")).to_contain_text("line 10000", timeout=60_000)
    target = page.locator("#L9000")
    expect(target).to_be_in_viewport()
    assert target.evaluate(LINE_UNDER) == "line 9000"
    assert (page.get_by_role("log").text_content() or "").count("line ") == 10_000
    page.evaluate("getSelection().removeAllRanges()")
    assert page.evaluate("find('line 10000')")  # The browser's own search.


def test_output_that_arrives_after_the_end_is_shown(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "chatter", "args": {"lines": 3}})
    stage.ended(run["run_id"])
    page = open_page("/settings")
    answered: list[str] = []

    def answer(route: Route) -> None:
        answered.append(route.request.url)
        if len(answered) == 1:  # As if the lines were not stored yet.
            route.fulfill(json={"items": [], "next": 0})
        else:
            route.continue_()

    page.route("**/logs*", answer)
    page.goto(f"{stage.url}/ui/runs/{run['run_id']}?tab=output")
    expect(page.get_by_text("It wrote nothing.")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("line 3")
    expect(page.get_by_text("3 lines")).to_be_visible()


def test_integers_beyond_two_to_the_53_are_exact(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", content=f'{{"task": "exact", "args": {{"number": {BEYOND}}}}}',
                    headers={"Content-Type": "application/json"})  # fmt: skip
    stage.ended(run["run_id"])
    page = open_page(f"/runs/{run['run_id']}?tab=data", permissions=["clipboard-read", "clipboard-write"])
    expect(page.get_by_label("arguments", exact=True)).to_contain_text(str(BEYOND))
    expect(page.get_by_label("result", exact=True)).to_have_text(str(BEYOND))
    page.get_by_role("button", name="copy the result").click()
    expect(page.get_by_text("copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == str(BEYOND)


def test_an_edit_leaves_integers_beyond_two_to_the_53_as_they_are(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/jobs", json={"name": "large", "task": "exact", "manual": True, "args": {"number": BEYOND}})
    page = open_page("/jobs/large?tab=edit")
    page.get_by_label("Timeout").fill("7m")
    page.get_by_role("button", name="Save the job").click()
    until(lambda: stage.ask("GET", "/v1/jobs/large")["timeout"] == "7m")
    assert stage.ask("GET", "/v1/jobs/large")["args"] == {"number": BEYOND}
    page.goto(f"{stage.url}/ui/jobs/large?tab=versions")
    page.get_by_role("row").filter(has_text="job.create").get_by_role("link", name="Edit from this").click()
    expect(page.get_by_label("Timeout")).to_have_value("")
    page.get_by_role("button", name="Save the job").click()
    until(lambda: stage.ask("GET", "/v1/jobs/large")["timeout"] is None)


def test_a_new_job_is_saved_and_faults_stand_at_their_fields(open_page: OpenPage) -> None:
    page = open_page("/new-job", expects_faults=True)
    page.get_by_label("Name", exact=True).fill("hello")
    page.get_by_label("Command", exact=True).fill("echo hello")
    page.get_by_label("Expression").fill("61 2 * * *")
    page.get_by_role("button", name="Save the job").click()
    expect(page.locator("#value-fault")).to_contain_text("61")
    page.get_by_label("Expression").fill("30 2 * * *")
    page.get_by_label("Zone", exact=True).fill("Europe/Berlin")
    page.get_by_role("button", name="Save the job").click()
    expect(page.get_by_role("heading", name="hello")).to_be_visible()
    expect(page.get_by_role("table", name="next fire times")).to_be_visible()


def test_a_failed_run_is_retried_with_a_thumb(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": "no"}})
    stage.ended(run["run_id"])
    page = open_page(f"/runs/{run['run_id']}", viewport={"width": 360, "height": 740}, has_touch=True)
    button = page.get_by_role("button", name="Retry")
    box = button.bounding_box()
    assert box is not None
    assert box["height"] >= 44
    button.tap()
    page.get_by_role("dialog").get_by_role("button", name="Retry").tap()
    expect(page.get_by_text("submitted again")).to_be_visible()
    newest = stage.ask("GET", "/v1/runs", params={"task": "refuse", "limit": 20})["items"]
    assert [each["retry_of"] for each in newest].count(run["run_id"]) == 1


def test_a_run_under_way_shows_its_attempt_and_tabs_are_counted_each_for_itself(
    open_page: OpenPage, stage: Stage
) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "hold", "queue": "default"})["run_id"]
    stage.ended(run, ["running"])
    page = open_page("/settings", expects_faults=True)
    page.route("**/v1/runs:count*state=blocked*", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    page.goto(f"{stage.url}/ui/runs?q=task:hold&state=running")
    row = page.locator(f"[data-row='{run}']")
    expect(row.locator("[data-label=Attempt]")).to_have_text("1")
    expect(page.locator(".tabs a", has_text="running").locator(".tally")).to_be_visible()
    page.goto(f"{stage.url}/ui/runs/{run}")
    expect(page.get_by_text(re.compile("Attempt 1 runs since .*ago"))).to_be_visible()
    stage.ask("POST", f"/v1/runs/{run}/cancel", json={})


def test_what_is_not_there_says_so(open_page: OpenPage) -> None:
    page = open_page("/jobs/nothing-of-the-kind", expects_faults=True)
    expect(page.get_by_role("alert")).to_contain_text("nothing-of-the-kind")
    page.goto(page.url.replace("/jobs/nothing-of-the-kind", f"/runs/{'0' * 26}"))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("There is no run …00000000: mainspring run list shows those that are kept.")
    expect(alert.get_by_role("link")).to_have_count(0)
    page.goto(page.url.replace(f"/runs/{'0' * 26}", "/jobs/nothing-of-the-kind"))
    page.goto(page.url.replace("/jobs/nothing-of-the-kind", "/elsewhere"))
    expect(page.get_by_text("This page does not exist.")).to_be_visible()
