"""Pages that answer for the whole: kinds of failure, actions on many, queues, workers, the load ahead, the leader."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from backstage import OpenPage, Stage, until
from playwright.sync_api import Page, Route, expect
from seeding import busy_hour

from mainspring.version import VERSION

pytestmark = pytest.mark.browser


def groups(stage: Stage) -> dict[str, Any]:
    """The kinds of failure that the server distinguishes, by type, once the tallies have them."""

    def look() -> dict[str, Any] | None:
        found = {each["type"]: each for each in stage.ask("GET", "/v1/errors", params={"limit": 100})["items"]}
        return found if {"ConnectionError", "ValueError"} <= set(found) else None

    return until(look)


def confirm(page: Page, word: str) -> None:
    """Press the button of the dialog, and wait for it to close."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=re.compile(word)).click()
    expect(dialog).to_be_hidden()


def test_each_kind_of_error_is_one_group_and_is_retried_at_most_once(open_page: OpenPage, stage: Stage) -> None:
    known = groups(stage)
    page = open_page("/failures?span=30d")
    panels = page.locator(".failure")
    expect(panels.filter(has_text="ConnectionError db:* refused")).to_have_count(1)
    expect(panels.filter(has_text="ValueError invalid literal")).to_have_count(1)
    others = stage.retried("etl-nightly")
    page.get_by_role("link", name=re.compile("ValueError invalid")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ValueError")
    expect(page.get_by_label("the newest error")).to_contain_text("sync_inventory")
    dialog = page.get_by_role("dialog")
    for _ in range(2):
        page.get_by_role("button", name="Retry all that failed so").click()
        expect(dialog).to_contain_text(f"--error {known['ValueError']['error']}")
        confirm(page, "Retry")
    originals = stage.retried("sync-inventory")
    assert originals
    assert len(originals) == len(set(originals))
    assert stage.retried("etl-nightly") == others  # They failed otherwise.


def test_failures_of_one_job_and_a_sample_that_is_retried_first(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/failures?span=30d")
    panels = page.locator(".failure")
    expect(panels.nth(1)).to_be_visible()
    page.get_by_label("job").fill("etl-nightly")
    page.get_by_label("job").press("Enter")
    expect(panels).to_have_count(1)
    expect(panels).to_contain_text(re.compile(r"ConnectionError.* runs?, 1 job", re.S))
    page.get_by_role("link", name=re.compile("ConnectionError")).click()
    first = page.get_by_role("table", name="runs that failed so").locator("[data-row]").first.get_attribute("data-row")
    page.get_by_role("button", name="Retry one first").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"mainspring run retry {first}")
    confirm(page, "Retry it")
    repeated = until(
        lambda: [
            run
            for run in stage.ask("GET", "/v1/runs", params={"job": "etl-nightly", "limit": 100})["items"]
            if run["retry_of"] == first
        ]
    )
    assert len(repeated) == 1


@pytest.mark.parametrize("path", ["/", "/failures?span=30d"])
def test_while_failures_are_still_counted_the_page_says_so_and_asks_again(
    open_page: OpenPage, stage: Stage, path: str
) -> None:
    groups(stage)
    page = open_page("/settings")
    behind = (datetime.now(UTC) - timedelta(minutes=7)).isoformat()

    def answer(route: Route) -> None:
        """As the server does while nothing of the last minutes is counted."""
        route.fulfill(json={"items": [], "next": None, "counted_until": behind})

    page.route("**/v1/errors*", answer)
    page.goto(f"{stage.url}/ui{path}")
    expect(page.get_by_text(re.compile("Still counting, as of .* 7 m"))).to_be_visible()
    expect(page.get_by_text("No run has failed for good")).to_have_count(0)
    page.unroute("**/v1/errors*")
    expect(page.get_by_text("Still counting")).to_have_count(0)
    expect(
        page.locator("main").get_by_text(re.compile("ValueError|TimeoutError|ConnectionError")).first
    ).to_be_visible()


def test_all_that_match_are_acted_on_with_a_dry_run_first(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/runs:batch", json={"runs": [{"task": "encode", "queue": "shelf", "args": {"video": f"s{n}"}}
                                                       for n in range(150)]})  # fmt: skip
    page = open_page("/runs?q=queue:shelf")
    page.get_by_label("select all shown").check()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 150 runs")
    expect(dialog).to_contain_text("mainspring run act cancel --queue shelf --yes")
    dialog.get_by_label("Reason").fill("not needed")
    confirm(page, "Cancel 150")
    until(lambda: stage.ask("GET", "/v1/runs:count", params={"queue": "shelf", "state": "cancelled"})["count"] == 150)


def test_all_that_match_are_those_of_the_span_that_is_shown(open_page: OpenPage, stage: Stage) -> None:
    """The list of a tab shows a day unless it is told otherwise, and kinds of failure those of the page's filters."""
    sent: list[dict[str, Any]] = []

    def refuse(route: Route) -> None:
        sent.append(json.loads(route.request.post_data or "{}"))
        route.fulfill(json={"matched": 1, "done": 0, "runs": {}, "refused": {}, "next": None})

    page = open_page("/settings")
    page.route("**/v1/runs:act", refuse)
    page.goto(f"{stage.url}/ui/runs?state=failed")
    page.get_by_label("select all shown").check()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"run act retry --state failed --since 20\S+ --yes"))
    page.goto(f"{stage.url}/ui/failures?span=30d&job=etl-nightly")
    page.locator(".failure").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile("--job etl-nightly --since 20"))
    day, month = (datetime.now(UTC) - datetime.fromisoformat(each.pop("since")) for each in sent)
    assert (round(day / timedelta(days=1)), round(month / timedelta(days=1))) == (1, 30)
    assert sent[0] == {"action": "retry", "state": ["failed"], "dry_run": True}
    assert (sent[1]["job"], sent[1]["state"]) == ("etl-nightly", ["failed"])


def test_an_action_that_a_reload_interrupts_can_be_continued(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/runs:batch", json={"runs": [{"task": "encode", "queue": "attic", "args": {"video": f"a{n}"}}
                                                       for n in range(30)]})  # fmt: skip
    page = open_page("/settings")
    kept = {"kind": "runs", "action": "cancel", "filter": {"queue": "attic"}, "reason": "", "cursor": None, "total": 30,
            "looked": 0, "done": 0, "refused": {}, "ns": None}  # fmt: skip
    page.evaluate("(bulk) => history.replaceState({ bulk }, '')", kept)
    page.reload()
    expect(page.get_by_text("was interrupted after 0")).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("was interrupted after 0")).to_be_hidden()
    until(lambda: stage.ask("GET", "/v1/runs:count", params={"queue": "attic", "state": "cancelled"})["count"] == 30)


def test_a_queue_without_workers_and_a_paused_one_say_how_to_go_on(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/queues")
    gpu = page.get_by_label("queue gpu")
    expect(gpu).to_contain_text("No worker serves it")
    expect(gpu).to_contain_text("mainspring worker APP --queue gpu")
    gpu.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("new drivers")
    confirm(page, "Pause it")
    expect(gpu).to_contain_text(re.compile("paused.*new drivers"))
    expect(gpu).to_contain_text(re.compile("No worker serves it.*To resume it is not enough"))
    expect(gpu).to_contain_text("mainspring worker APP --queue gpu")
    run = stage.ask("GET", "/v1/runs", params={"queue": "gpu", "state": "pending", "limit": 1})["items"][0]
    page.goto(f"{stage.url}/ui/runs/{run['run_id']}")
    cause = page.locator(".why li").filter(has_text=re.compile("Queue gpu is paused since .*new drivers"))
    expect(cause.locator("a[href^='/ui/queues']")).to_be_visible()
    page.goto(f"{stage.url}/ui/queues")
    gpu.get_by_role("button", name="Resume").click()
    confirm(page, "Resume it")
    expect(gpu.get_by_role("button", name="Pause")).to_be_visible()


def test_queues_say_where_a_region_lacks_a_worker_and_what_pressure_is(open_page: OpenPage, stage: Stage) -> None:
    away = {"region": "mars", "due": 3, "oldest_due": None, "workers": 0, "slots": 0}

    def queues(route: Route) -> None:
        found = route.fetch().json()
        one = next(each for each in found["items"] if each["queue"] == "default")
        one.update(due=one["due"] + 3, regions=[*one["regions"], away], priorities={"2": 6, "5": 66})
        route.fulfill(json=found)

    def pressed(route: Route) -> None:
        given_up = {"degradation": "shedding", "pressure": 1.2, "given_up": "runs are skipped"}
        route.fulfill(json={**route.fetch().json(), **given_up})

    page = open_page("/settings")
    page.route("**/v1/queues", queues)
    page.route("**/v1/overview", pressed)
    page.goto(f"{stage.url}/ui/queues")
    queue = page.get_by_label("queue default")
    expect(queue).to_contain_text("No worker serves it in mars: 3 due runs wait")
    expect(queue).to_contain_text("mainspring worker APP --queue default --region mars")
    expect(queue).to_contain_text("priority 2: 6, priority 5: 66")
    expect(page.get_by_label("pressure", exact=True)).to_contain_text("1.2 times the limit")
    expect(page.get_by_label("pressure", exact=True)).to_contain_text("Given up now: runs are skipped")
    page.unroute_all(behavior="ignoreErrors")


def test_the_load_ahead_shows_its_peak_and_the_jobs_of_it(open_page: OpenPage, stage: Stage) -> None:
    hour = busy_hour()
    midnight = {"schedule": f"0 {hour} * * *", "timezone": "UTC", "command": "true"}
    for number in range(20):
        stage.ask("POST", "/v1/jobs", json={"name": f"midnight-{number}", **midnight})
    page = open_page("/load")
    expect(page.get_by_text(re.compile(rf"Peak .*{hour:02}:00:00"))).to_be_visible()
    expect(page.get_by_label("the chosen period").get_by_role("link", name="midnight-7")).to_be_visible()
    cells = page.locator(".heat td button")
    assert cells.count() == 288
    cells.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("at=20"))


def test_the_load_ahead_states_no_more_than_is_known_and_marks_what_does_not_fit(
    open_page: OpenPage, stage: Stage
) -> None:
    figures = {"00": (9, 0.5), "05": (1, 7.5), "10": (2, 0.0)}
    items = [{"at": f"2027-01-12T00:{minute}:00Z", "starts": starts, "busy": busy}
             for minute, (starts, busy) in figures.items()]  # fmt: skip
    planned = {"items": items, "bucket": "5m", "capacity": 4, "jobs": 12, "peak": items[0], "quiet": []}
    page = open_page("/settings", timezone_id="UTC")
    page.route("**/v1/load?*", lambda route: route.fulfill(json={**planned, "partial": "queue" in route.request.url}))
    page.goto(f"{stage.url}/ui/load")
    main, chosen = page.locator("main"), page.locator(".heat [aria-pressed=true]")
    expect(main).to_contain_text(re.compile("Peak of 5 minutes .*00:00:00.*: 9 starts, 0.5 of 4 slots busy"))
    expect(page.get_by_text("▲")).to_have_count(0)
    page.get_by_role("link", name="busy slots").click()
    expect(main).to_contain_text(
        re.compile("Most slots are busy in 5 minutes .*00:05:00.*: 7.5 slots busy of 4, 1 starts")
    )
    expect(chosen).to_have_text("▲")
    page.goto(f"{stage.url}/ui/load?queue=gpu")
    expect(main).to_contain_text(re.compile(r"Cut short .*Peak of 5 minutes .*: at least 9 starts · at least 12 jobs"))
    expect(main).not_to_contain_text("slots busy of")


def test_the_past_day_stands_beside_the_coming_one(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/load")
    page.get_by_role("link", name="past", exact=True).click()
    page.get_by_role("link", name="7 days").click()
    total = stage.ask("GET", "/v1/tallies", params={"bucket": "1h", "since": "2000-01-01T00:00:00Z"})["total"]
    assert total["succeeded"] > 0
    expect(page.get_by_role("table", name=re.compile("what ended"))).to_be_visible()
    chosen = page.get_by_label("the chosen period")
    expect(chosen.get_by_text("succeeded")).to_be_visible()
    page.get_by_role("button", name=re.compile(r": 0 ended")).first.click()
    expect(page).to_have_url(re.compile("at="))
    expect(chosen.locator("dd")).to_have_text(["0"] * 5)


WINTER = "GMT+1"


@pytest.mark.parametrize(("begin", "hours"), [("2027-03-26T12:00:00Z", 23), ("2027-10-29T12:00:00Z", 25)])
def test_a_day_on_which_clocks_change_has_23_or_25_hours(
    open_page: OpenPage, stage: Stage, begin: str, hours: int
) -> None:
    """The page shows the coming days. Here they are those around a clock change, as the server plans them."""
    first = datetime.fromisoformat(begin)
    span = {"from": first.isoformat(), "to": (first + timedelta(days=4)).isoformat(), "bucket": "1h"}
    planned = stage.ask("GET", "/v1/load", params=span)
    page = open_page("/settings", timezone_id="Europe/Berlin")
    page.route("**/v1/load?*", lambda route: route.fulfill(json=planned))
    page.goto(f"{stage.url}/ui/load?span=7d")
    table = page.get_by_role("table", name="load ahead in Europe/Berlin")
    days = table.get_by_role("rowheader")
    expect(days).to_have_count(5)  # The first and the last are parts of days.
    whole = table.get_by_role("row").filter(has=page.get_by_role("rowheader")).all()[1:4]
    assert [row.get_by_role("button").count() for row in whole] == [24, hours, 24]
    columns = table.get_by_role("columnheader").all_inner_texts()
    assert columns[:3] == ["00", "01", "02"]
    assert columns[3:] == [f"02 {WINTER}"] * max(hours - 24, 0) + [f"{hour:02}" for hour in range(3, 24)]
    assert table.get_by_role("button").count() == 4 * 24  # An hour that the clock shows twice has both.


@pytest.mark.parametrize(("zone", "hour", "minute"), [("Asia/Kolkata", "05", ":30"), ("America/St_Johns", "20", ":30")])
def test_where_hours_begin_at_half_past_a_start_stands_where_its_clock_shows_it(
    open_page: OpenPage, stage: Stage, zone: str, hour: str, minute: str
) -> None:
    first = datetime(2027, 1, 12, tzinfo=UTC)
    starts = {first + timedelta(minutes=5 * number): number == 0 for number in range(-144, 144)}
    items = [{"at": at.isoformat(), "starts": int(busy), "busy": 0} for at, busy in starts.items()]
    planned = {**stage.ask("GET", "/v1/load"), "items": items, "peak": items[144]}
    page = open_page("/settings", timezone_id=zone)
    page.route("**/v1/load?*", lambda route: route.fulfill(json=planned))
    page.goto(f"{stage.url}/ui/load")
    cell = page.locator(".heat td").filter(has=page.get_by_role("button", name=re.compile("T00:00:00.*: 1 starts")))
    place = "(cell) => [cell.parentElement.cells[0], cell.closest('table').rows[0].cells[cell.cellIndex]]"
    assert cell.evaluate(f"(cell) => ({place})(cell).map((each) => each.innerText)") == [hour, minute]


def test_the_cluster_names_its_leader_and_the_terms_before(open_page: OpenPage, stage: Stage) -> None:
    leader = stage.ask("GET", "/v1/cluster")["leaders"][0]
    page = open_page("/cluster")
    expect(page.get_by_role("table", name="terms")).to_contain_text(leader["owner"])
    expect(page.get_by_role("img", name="terms of leadership")).to_be_visible()
    expect(page.get_by_role("table", name="processes")).to_contain_text(VERSION)
    page.goto(f"{stage.url}/ui/settings")
    expect(page.get_by_role("table", name="settings of the server")).to_contain_text("MAINSPRING_STORE")
    stage.ask("POST", "/v1/jobs", json={"name": "versioned", "command": "true", "manual": True})
    stage.ask("PATCH", "/v1/jobs/versioned", json={"priority": 3})
    page.goto(f"{stage.url}/ui/jobs/versioned?tab=versions")
    expect(page.get_by_role("table", name="versions")).to_contain_text(re.compile("priority.*5 → 3"))


def test_a_worker_shows_what_it_ran(open_page: OpenPage, stage: Stage) -> None:
    run = stage.ask("POST", "/v1/runs", json={"task": "exact", "args": {"number": 7}})
    worker = stage.ended(run["run_id"])["worker"]
    page = open_page("/workers")
    page.get_by_role("link", name=worker, exact=True).click()
    expect(page.get_by_role("img", name=re.compile(f"runs of {worker}"))).to_be_visible()
    page.goto(f"{stage.url}/ui/timeline")
    expect(page.get_by_role("img", name=re.compile("runs over time"))).to_be_visible()


def test_the_timeline_has_rows_of_queues_and_tags_and_a_table(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/timeline?span=30d&by=tag&view=table")
    table = page.get_by_role("table", name="attempts")
    expect(table.get_by_role("columnheader").last).to_have_text("Tags")
    expect(table.get_by_role("row", name=re.compile("etl-nightly.* etl")).first).to_be_visible()
    page.get_by_role("link", name="queues", exact=True).click()
    expect(table.get_by_role("row", name=re.compile("etl-nightly.* default")).first).to_be_visible()
    page.get_by_role("link", name="drawing").click()
    expect(page.get_by_role("img", name=re.compile(r"runs over time: \d+ spans"))).to_be_visible()
    page.get_by_role("link", name="1 minute").click()
    expect(page).to_have_url(re.compile("span=1m"))


PIXELS = """() => {
  const shown = document.querySelector('.lanes canvas');
  const canvas = Object.assign(document.createElement('canvas'), { width: shown.width, height: shown.height });
  const pen = canvas.getContext('2d', { willReadFrequently: true });
  pen.drawImage(shown, 0, 0);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const found = {};
  for (const tone of ['succeeded', 'failed', 'running', 'neutral']) {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${tone}`).trim();
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    for (let n = 0; n < data.length; n += 4)
      if (data[n] === red && data[n + 1] === green && data[n + 2] === blue) found[tone] = (found[tone] ?? 0) + 1;
  }
  return found;
}"""
"""How many pixels of the drawing have the colour of each state."""
WHOLE_BAR = 60
"""A failure is at least 5 by 18 pixels, less its edges. Of one that others cover, 20 would be left."""


def test_a_failure_among_hundreds_is_seen_beside_what_runs_and_what_is_planned(
    open_page: OpenPage, stage: Stage
) -> None:
    stage.ask("POST", "/v1/jobs", json={"name": "soon", "command": "true", "every": "10m"})
    many = [{"task": "exact", "args": {"number": 1}}] * 500
    own = stage.ask("POST", "/v1/runs:batch", json={"runs": many})["run_ids"]
    bad = stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": "no"}})["run_id"]
    held = stage.ask("POST", "/v1/runs", json={"task": "hold"})["run_id"]
    stage.ended(bad)
    stage.ended(held, ["running"])
    page = open_page("/settings")

    def answer(route: Route) -> None:
        """Without the runs of other tests, some of which failed or were cancelled."""
        found = route.fetch().json()
        ours = [each for each in found["items"] if each["run_id"] in {*own, bad, held}]
        route.fulfill(json={**found, "items": ours})

    page.route("**/v1/timeline*", answer)
    page.goto(f"{stage.url}/ui/timeline")
    expect(page.get_by_role("img", name=re.compile(r"runs over time: \d{3,} spans"))).to_be_visible()
    until(lambda: set(page.evaluate(PIXELS)) == {"succeeded", "failed", "running", "neutral"})
    page.get_by_role("link", name="workers", exact=True).click()  # What ran beside one another has lanes of its own.
    expect(page.get_by_role("img", name=re.compile(r"in ([2-9]|\d\d) rows"))).to_be_visible()
    until(lambda: page.evaluate(PIXELS).get("failed", 0) > WHOLE_BAR)
    page.unroute_all(behavior="ignoreErrors")
    stage.ask("POST", f"/v1/runs/{held}/cancel", json={})


def test_the_draft_of_a_job_shows_the_gap_and_the_fold_of_its_zone(open_page: OpenPage) -> None:
    page = open_page("/new-job", expects_faults=True)
    page.get_by_label("Zone", exact=True).fill("Europe/Berlin")
    meaning = page.get_by_label("what this means")
    page.get_by_label("Expression").fill("30 2 28 3 *")
    expect(meaning).to_contain_text("clocks went forward")
    page.get_by_label("Expression").fill("30 2 31 10 *")
    expect(meaning).to_contain_text("30 2 31 10")  # What stood there before named both changes.
    expect(meaning).to_contain_text("clocks went back")
    page.get_by_label("Expression").fill("30 2 * * *")
    marks = meaning.locator(".s-warning")
    expect(marks).to_have_count(2)
    said = " ".join(marks.all_inner_texts())
    assert "clocks went forward 1h at 02:00" in said
    assert "clocks went back 1h at 03:00" in said
    page.get_by_label("Expression").fill("61 2 * * *")
    page.get_by_label("Retries").fill("many")
    page.get_by_label("Timeout").fill("soon")
    for field, value in (("value", "61"), ("retries", "whole number"), ("timeout", "30s")):
        expect(page.locator(f"#{field}-fault")).to_contain_text(value)


def test_an_older_answer_never_replaces_a_newer_one(open_page: OpenPage) -> None:
    page = open_page("/new-job")
    meaning = page.get_by_label("what this means")
    expect(meaning).to_contain_text("02:00")
    held: list[Route] = []

    def answer(route: Route) -> None:
        """The first is held back, as by a slow network."""
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/v1/jobs:preview*", answer)
    page.get_by_label("Expression").fill("0 3 * * *")
    until(lambda: page.evaluate("1") and held)
    page.get_by_label("Expression").fill("0 4 * * *")
    expect(meaning).to_contain_text("04:00")
    with page.expect_response("**/v1/jobs:preview*"):
        held[0].continue_()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(meaning).to_contain_text("04:00")
    assert "03:00" not in meaning.inner_text()


def test_saving_over_a_job_that_changed_meanwhile_loses_nothing(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/jobs", json={"name": "contested", "command": "true", "every": "1h"})
    page = open_page("/jobs/contested?tab=edit", expects_faults=True)
    page.get_by_label("Timeout").fill("7m")
    stage.ask("PATCH", "/v1/jobs/contested", json={"priority": 2})
    page.get_by_role("button", name="Save the job").click()
    expect(page.get_by_role("alert")).to_contain_text("has changed meanwhile")
    expect(page.get_by_role("alert")).to_contain_text("priority")
    expect(page.get_by_label("Timeout")).to_have_value("7m")
    page.get_by_role("button", name="Save mine over it").click()
    expect(page.get_by_role("heading", name="contested")).to_be_visible()
    until(lambda: stage.ask("GET", "/v1/jobs/contested")["timeout"] == "7m")  # The heading was there before it, too.


def test_the_waiting_time_s_parts_add_up_to_the_whole(open_page: OpenPage, stage: Stage) -> None:
    first, second = (stage.ask("POST", "/v1/runs", json={"task": "narrow"})["run_id"] for _ in range(2))
    stage.ended(first, ["running"])
    stage.ended(second, ["blocked"])
    for each in (first, second):  # The second one starts as soon as the first one has ended.
        stage.ended(each, ["running"])
        stage.ask("POST", f"/v1/runs/{each}/cancel", json={})
    run = stage.ended(second)
    page = open_page(f"/runs/{second}")
    spent = page.locator(".spent li")
    expect(spent).to_have_text([re.compile("waited to start"), re.compile("attempt 1.*cancelled")])
    parts = [float(each.get_attribute("data-seconds") or "nan") for each in spent.all()]
    begin, end = (datetime.fromisoformat(run[name]) for name in ("due_at", "finished_at"))
    assert sum(parts) == pytest.approx((end - begin).total_seconds(), abs=0.002)


@pytest.mark.parametrize("path", ["/jobs", "/jobs?q=tag:etl"])
def test_another_namespace_leaves_nothing_of_the_former_on_screen(open_page: OpenPage, path: str) -> None:
    page = open_page(path)
    expect(page.get_by_role("link", name="etl-nightly")).to_be_visible()
    page.keyboard.press("n")
    page.get_by_label("namespace").fill("elsewhere")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There are no jobs yet.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/ui/jobs\?ns=elsewhere$"))
    expect(page.get_by_role("link", name="etl-nightly")).to_have_count(0)


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_while_another_namespace_answers_nothing_of_the_former_is_left(open_page: OpenPage, path: str) -> None:
    page = open_page(path)
    rows, counted = page.locator(".attention li, tr[data-row]"), page.locator("header .count")
    expect(rows.first).to_be_visible()
    expect(counted).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option", name="jobs")).to_be_visible()
    page.keyboard.press("Escape")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/**", hold)
    page.get_by_label("namespace").fill("elsewhere")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"ns=elsewhere$"))
    expect(rows).to_have_count(0)
    expect(counted).to_have_count(0)
    expect(page.locator("main").get_by_role("listitem")).to_have_count(0)
    for each in held:
        each.continue_()
    page.unroute("**/v1/**")
    expect(page.locator(".cards, .empty").first).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option", name="jobs")).to_have_attribute("href", "/ui/jobs?ns=elsewhere")


def test_a_paused_queue_is_resumed_from_the_overview(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/runs", json={"task": "exact", "queue": "shut", "args": {"number": 1}})
    stage.ask("POST", "/v1/queues/shut/pause", json={"reason": "the provider is away"})
    page = open_page("/")
    cause = page.locator(".attention li").filter(has_text="the provider is away")
    cause.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume it").click()
    expect(cause).to_have_count(0)
    shut = [each for each in stage.ask("GET", "/v1/queues")["items"] if each["queue"] == "shut"]
    assert shut[0]["paused_at"] is None
