"""What will happen, before it does: simulations, edits of calendars, and proposals that flatten a peak."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from backstage import SEEDING, OpenPage, Stage, shell
from playwright.sync_api import Page, expect
from seeding import busy_hour

pytestmark = pytest.mark.browser

JOBS = 1_000


def test_a_simulated_outage_predicts_what_the_ledger_holds_after_a_real_one(open_page: OpenPage, stage: Stage) -> None:
    """The past of the stage was played by the real planner, with a night without a node."""
    rows = stage.ask("GET", "/v1/jobs/cleanup/firings", params={"limit": 500})["items"]
    missed = sorted(each["fire_at"] for each in rows if each["outcome"] == "missed")
    stretch = [each for each in rows if each["outcome"] == "missed"]
    begin = datetime.fromisoformat(missed[0])
    end = max(datetime.fromisoformat(each["last_at"] or each["fire_at"]) for each in stretch) + timedelta(hours=1)
    page = open_page("/jobs/cleanup?tab=edit")
    page.get_by_label("No scheduler from").fill((begin - timedelta(minutes=10)).isoformat())
    page.get_by_label("until").fill((end + timedelta(minutes=10)).isoformat())
    page.get_by_role("button", name="Simulate").click()
    simulated = page.get_by_role("table", name="simulated ledger")
    expect(simulated).to_be_visible()
    predicted = simulated.locator(".cell.o-missed")
    expect(predicted.first).to_be_visible()
    look = "cells => cells.map(each => [each.ariaLabel.split(' ')[0], each.classList.contains('o-missed')])"
    said = simulated.locator(".cell:not(.band)").evaluate_all(look)
    held = [(each["fire_at"], each["outcome"] == "missed") for each in rows]
    assert near(begin, end, said) == near(begin, end, held)
    assert len(near(begin, end, held)) > len(missed) + 20
    predicted.first.click()
    expect(page.get_by_label("the simulated instant")).to_contain_text("missed")


def near(begin: datetime, end: datetime, cells: Iterable[Sequence[Any]]) -> dict[datetime, bool]:
    """Which instants within half a day of a span there are, and whether each was missed."""
    known = {datetime.fromisoformat(fire_at): is_missed for fire_at, is_missed in cells}
    reach = timedelta(hours=12)
    return {instant: known[instant] for instant in sorted(known) if begin - reach <= instant <= end + reach}


def test_an_edit_of_a_calendar_names_the_firings_that_move_before_it_is_saved(
    open_page: OpenPage, stage: Stage
) -> None:
    rules = [{"kind": "weekdays", "days": ["sat"]}]
    stage.ask("PUT", "/v1/calendars/free-days", json={"rules": rules, "timezone": "UTC"})
    daily = {"command": "true", "schedule": "0 12 * * *", "timezone": "UTC", "calendars": ["free-days"]}
    stage.ask("POST", "/v1/jobs", json={"name": "daily-but", **daily})
    weekly = {**daily, "schedule": "0 12 * * sat", "on_excluded": "next_day"}
    stage.ask("POST", "/v1/jobs", json={"name": "weekly-but", **weekly})
    page = open_page("/calendars/free-days", expects_faults=True)
    changes = page.get_by_label("what saving changes")
    expect(changes).to_contain_text("No firing of the next 30 days changes.")
    expect(page.locator("td.out").first).to_be_visible()
    page.get_by_label("Rules as JSON").fill(json.dumps([{"kind": "weekdays", "days": ["sat", "sun"]}]))
    expect(changes).to_contain_text(re.compile(r"\d firings of 2 jobs change: [45] move, [45] disappear, 0 appear"))
    expect(changes.get_by_role("listitem").filter(has_text="daily-but").first).to_contain_text(
        re.compile("dropped.*Sun")
    )
    moved = changes.get_by_role("listitem").filter(has_text="weekly-but").first
    expect(moved).to_contain_text(re.compile("moved.*Sun .*→ Mon ", re.S))
    assert stage.ask("GET", "/v1/calendars/free-days")["rules"][0]["days"] == ["sat"]
    page.get_by_role("button", name="Save the calendar").click()
    expect(changes).to_contain_text("No firing of the next 30 days changes.")
    assert stage.ask("GET", "/v1/calendars/free-days")["rules"][0]["days"] == ["sat", "sun"]


def test_applying_a_proposal_lowers_the_peak_to_what_was_said_and_names_what_is_refused(
    open_page: OpenPage, stage: Stage
) -> None:
    subprocess.run([sys.executable, str(SEEDING), str(stage.store), str(JOBS), "night"], check=True)
    night = {"headers": {"Mainspring-Namespace": "night"}}
    page = open_page("/load?ns=night", expects_faults=True)
    expect(page.get_by_text(re.compile(rf"Peak .*{busy_hour():02}:00:00.*: 1,000 starts"))).to_be_visible()
    spread = page.get_by_label("spread")
    before, after = propose(page)
    assert before == JOBS > after
    edited = spread.get_by_role("row").nth(1).get_by_role("link").inner_text()
    stage.ask("PATCH", f"/v1/jobs/{edited}", json={"priority": 2}, **night)
    spread.get_by_role("button", name=re.compile("Apply to")).click()
    dialog = page.get_by_role("dialog")
    line = dialog.locator(".command code").inner_text()
    assert line == "mainspring load --spread --within 15m --apply --namespace night"
    dialog.get_by_role("button", name=re.compile("^Move")).click()
    expect(dialog.get_by_role("alert")).to_contain_text(edited)
    page.keyboard.press("Escape")
    peak = stage.ask("GET", "/v1/load", params={"bucket": "1m"}, **night)["peak"]["starts"]
    assert peak == after + 1  # One job was not moved.
    shell(stage, line)
    assert stage.ask("GET", "/v1/load", params={"bucket": "1m"}, **night)["peak"]["starts"] == after


def propose(page: Page) -> tuple[int, int]:
    """The starts of the fullest minute before and after what the page proposes."""
    spread = page.get_by_label("spread")
    spread.get_by_role("button", name="Propose").click()
    sentence = spread.locator(".sentence").inner_text().replace(",", "")
    found = re.search(r"falls from (\d+) to (\d+) starts", sentence)
    assert found is not None, sentence
    return int(found[1]), int(found[2])
