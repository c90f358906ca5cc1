"""Nodes that die: the pages of another one show it without a reload."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from backstage import OpenPage, Stage, open_stage
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

LEASE_S = 1.5
"""A killed leader's lease lasts this long after its last renewal, less the time since."""
ROUNDED_S = 0.05
TERM, GAP = 0, 5
"""Columns of the table of terms."""


def leader(stage: Stage) -> dict[str, object] | None:
    """The term that lasts, as this node knows it."""
    found = stage.ask("GET", "/v1/cluster")["leaders"]
    return found[0] if found else None


class Failover(NamedTuple):
    """Seconds after the leader was killed."""

    unseen_s: float
    """Until the page of the other node no longer shows it."""
    seen_s: float
    """Until that page shows the new term."""
    killed_at: datetime


def fail_over(page: Page, dying: Stage, heir: Stage, term: int) -> Failover:
    """Kill the leader while a page of the other node is open."""
    page.goto(f"{heir.url}/ui/")
    owner = str((leader(heir) or {})["owner"])
    expect(page.get_by_title(owner)).to_be_visible()
    began, killed_at = time.monotonic(), datetime.now(UTC)
    dying.kill()
    expect(page.get_by_title(owner)).to_be_hidden()
    unseen_s = time.monotonic() - began
    expect(page.locator(".cards")).to_contain_text(f"term {term}")
    return Failover(unseen_s, time.monotonic() - began, killed_at)


def test_dead_nodes_and_workers_are_shown_and_their_runs_name_the_next_worker(
    open_page: OpenPage, tmp_path: Path
) -> None:
    with open_stage(tmp_path, is_seeded=False) as first:
        words = {"task": "survive", "args": {"marker": str(tmp_path / "marker")}}
        run = first.ask("POST", "/v1/runs", json=words)["run_id"]
        lost = first.ended(run, ["running"])["worker"]
        second = Stage(first.store)
        second.start()
        try:
            page = open_page("/", at=second.url, expects_faults=True)
            took = [fail_over(page, first, second, 2)]
            killed = time.monotonic() - took[0].seen_s
            page.get_by_role("link", name="Workers", exact=True).click()
            row = page.get_by_role("row").filter(has_text=lost)
            expect(row).to_contain_text("dead")
            dead_s = time.monotonic() - killed
            next_worker = second.ended(run)["worker"]
            assert next_worker != lost
            page.goto(f"{second.url}/ui/runs/{run}")
            expect(page.get_by_text("lost").first).to_be_visible()
            expect(page.locator("main dl.facts")).to_contain_text(next_worker)
            first.start()
            took.append(fail_over(page, second, first, 3))
            second.start()
            took.append(fail_over(page, first, second, 4))
            page.goto(f"{second.url}/ui/cluster")
            rows = page.get_by_role("table", name="terms").get_by_role("row")
            expect(rows).to_have_count(5)
            began = {each["number"]: each["began_at"] for each in second.ask("GET", "/v1/cluster")["terms"]}
            for number, each in enumerate(took, 2):
                cells = rows.nth(5 - number).get_by_role("cell")
                expect(cells.nth(TERM)).to_have_text(str(number))
                gap_s = seconds(cells.nth(GAP).inner_text()) + ROUNDED_S
                silent_s = (datetime.fromisoformat(began[number]) - each.killed_at).total_seconds()
                # A term ends with the last sign of its owner, which is some time before its death.
                assert max(silent_s, LEASE_S) <= gap_s <= silent_s + LEASE_S + 2 * ROUNDED_S, (number, gap_s, silent_s)
            expect(page.get_by_text(re.compile("longest time without a leader"))).to_be_visible()
            # The best of three: others that use the same cores make each of them longer.
            assert min(each.unseen_s for each in took) <= 3.0, took
            assert min(each.seen_s for each in took) <= 5.0, took
            assert dead_s <= 15.0
        finally:
            second.kill()
            second.client.close()
        first.start()  # The end of the block kills it.


def seconds(text: str) -> float:
    """The length that `1.8 s`, `900 ms` or `1 m 2 s` says."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    return sum(float(count) * units[unit] for count, unit in re.findall(r"([\d.]+) (ms|s|m)", text))
