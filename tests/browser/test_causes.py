"""Why something has not run: each cause that the engine knows is named, and leads to what it names."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from backstage import OpenPage, Stage, until
from playwright.sync_api import Page, expect

from mainspring.core.model import AttemptOutcome, FiringOutcome
from mainspring.core.runs.why import CauseKind
from mainspring.core.states import STATES
from mainspring.operations.records import WorkerState

pytestmark = pytest.mark.browser

LINKS = {"run_id": "/ui/runs/{}", "job": "/ui/jobs/{}", "queue": "/ui/queues", "gate": "/ui/queues"}
"""The page to which each thing leads that a cause names."""
NAMED = {
    "key": {"run_id"}, "dependency": {"run_id"}, "not-due": {"since"}, "no-worker": {"queue"},
    "queue-unserved": {"queue"}, "region-unserved": {"queue", "workers"}, "task-unknown": {"queue", "workers"},
    "gate": {"gate"}, "workers-busy": {"queue", "workers"}, "queue-paused": {"queue"},
}  # fmt: skip
"""What each cause of waiting that a caller can bring about names."""
SLOTS = 10
WEEKENDS = {"kind": "weekdays", "days": ["sat", "sun"]}


def submit(stage: Stage, **words: Any) -> str:
    """A run; its id."""
    namespace = words.pop("namespace", "default")
    run = stage.ask("POST", "/v1/runs", json=words, headers={"Mainspring-Namespace": namespace})
    return str(run["run_id"])


def waiting_runs(stage: Stage) -> dict[str, str]:
    """A run for each cause of waiting that a caller can bring about."""
    first = submit(stage, task="encode", queue="gpu", args={"video": "first"}, key="queue-up")
    return {
        "key": submit(stage, task="encode", queue="gpu", args={"video": "second"}, key="queue-up"),
        "dependency": submit(stage, task="exact", args={"number": 1}, after=[first]),
        "not-due": submit(stage, task="exact", args={"number": 1}, delay="1h"),
        "no-worker": submit(stage, task="exact", args={"number": 1}, namespace="nobody-works-here"),
        "queue-unserved": first,
        "region-unserved": submit(stage, task="exact", args={"number": 1}, region="mars"),
        "task-unknown": submit(stage, task="exakt", args={"number": 1}),
    }


def check_page(page: Page, stage: Stage, kind: str, run: str) -> None:
    """The page of a run says each cause in the server's words, with a link to each thing that the cause names."""
    namespace = "nobody-works-here" if kind == "no-worker" else "default"
    words = {"Mainspring-Namespace": namespace}

    def look() -> list[dict[str, Any]] | None:  # How busy a worker is, it says with its next heartbeat.
        found: list[dict[str, Any]] = stage.ask("GET", f"/v1/runs/{run}", headers=words).get("causes", [])
        return found if kind in [each["kind"] for each in found] else None

    causes = until(look)
    named = next(each for each in causes if each["kind"] == kind)
    assert NAMED[kind] <= {name for name, value in named.items() if value}
    page.goto(f"{stage.url}/ui/runs/{run}{'?ns=' + namespace if namespace != 'default' else ''}")
    rows = page.locator(".why li")
    expect(rows).to_have_count(len(causes))
    for cause, row in zip(causes, rows.all(), strict=True):
        text = re.split(r"`| since | \(in |\d{4}-", cause["text"])[0]  # Times pass.
        if "run_id" in cause:
            text = text.replace(cause["run_id"], f"…{cause['run_id'][-8:]}")
        expect(row).to_contain_text(text)
        for name, path in LINKS.items():
            if name in cause:
                address = path.format(cause[name])
                expect(row.locator(f"a[href^='{address}']").first).to_be_visible()
        if cause.get("workers"):
            expect(row.locator("a[href^='/ui/workers']")).to_be_visible()


def test_each_cause_of_waiting_is_named_and_leads_to_what_it_names(open_page: OpenPage, stage: Stage) -> None:
    runs = waiting_runs(stage)
    page = open_page("/settings")
    for kind, run in runs.items():
        check_page(page, stage, kind, run)
    held = [submit(stage, task="narrow")]
    stage.ended(held[0], ["running"])
    held.append(submit(stage, task="narrow"))
    check_page(page, stage, "gate", held[1])
    held += [submit(stage, task="hold") for _ in range(SLOTS - 1)]
    for run in held[2:]:
        stage.ended(run, ["running"])
    held.append(submit(stage, task="hold"))
    check_page(page, stage, "workers-busy", held[-1])
    stage.ask("POST", "/v1/runs:act", json={"action": "cancel", "run_ids": [*held, *runs.values()][:-1]})
    for run in held:
        stage.ended(run)


def test_each_cause_that_there_is_has_a_sentence_on_the_page_of_its_run(open_page: OpenPage, stage: Stage) -> None:
    run = submit(stage, task="exact", args={"number": 1}, delay="1h")
    causes = [{"kind": kind, "text": f"Because of {kind}."} for kind in get_args(CauseKind)]
    page = open_page("/settings")
    page.route(f"**/v1/runs/{run}", lambda route: route.fulfill(json={**route.fetch().json(), "causes": causes}))
    page.goto(f"{stage.url}/ui/runs/{run}")
    expect(page.locator(".why li")).to_have_text([re.compile(re.escape(each["text"])) for each in causes])
    page.unroute_all(behavior="wait")
    stage.ask("POST", f"/v1/runs/{run}/cancel", json={})


def test_every_state_and_outcome_has_a_glyph_a_word_and_a_colour(open_page: OpenPage) -> None:
    known = {*STATES, *get_args(FiringOutcome), *get_args(AttemptOutcome), *get_args(WorkerState)}
    known |= {"planned", "excluded", "late", "retrying", "held", "paused", "clock-change", "leads", "stands_by"}
    page = open_page("/settings")
    looks = page.evaluate(
        """async (states) => {
          const main = document.querySelector('script[type=module]').src;
          const { lookOf } = await import(main.replace('main.js', 'draw/text.js'));
          const style = getComputedStyle(document.documentElement);
          const colourOf = (state) => style.getPropertyValue(`--${lookOf(state).tone}`);
          return states.map((state) => ({ state, ...lookOf(state), colour: colourOf(state) }));
        }""",
        sorted(known),
    )
    assert [each["state"] for each in looks if each["glyph"] == "?" or not each["colour"]] == []
    assert len({each["word"] for each in looks}) == len(looks)


def test_a_ledger_shows_skips_exclusions_and_both_clock_changes_with_reasons(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("PUT", "/v1/calendars/weekends", json={"rules": [WEEKENDS], "timezone": "UTC"})
    night = {"command": "true", "schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    stage.ask("POST", "/v1/jobs", json={"name": "nightly", **night})
    stage.ask("POST", "/v1/jobs", json={"name": "workdays", **night, "calendars": ["weekends"]})
    stage.ask("POST", "/v1/jobs", json={"name": "overlapping", "task": "hold", "every": "1s", "overlap": "forbid"})
    until(lambda: "skipped" in outcomes(stage, "overlapping"))
    stage.ask("POST", "/v1/jobs/overlapping/pause", json={})
    page = open_page("/jobs/overlapping")
    check_cell(page, "skipped", re.compile("overlap"))
    stage.ask("POST", "/v1/runs:act", json={"action": "cancel", "job": "overlapping"})
    page.goto(f"{stage.url}/ui/jobs/workdays")
    check_cell(page, "excluded", re.compile("a calendar excludes it"))
    page.goto(f"{stage.url}/ui/jobs/nightly?ahead=1y")
    changes = page.locator(".cell.o-clock-change")
    expect(changes).to_have_count(2)
    said = " ".join(str(each.get_attribute("aria-label")) for each in changes.all())
    assert "forward" in said
    assert "back" in said
    page.goto(f"{stage.url}/ui/jobs/sync-inventory")
    check_cell(page, "late", re.compile("began .* after its instant"))


def outcomes(stage: Stage, job: str) -> set[str]:
    """What became of the firings of a job."""
    return {each["outcome"] for each in stage.ask("GET", f"/v1/jobs/{job}/firings")["items"]}


def check_cell(page: Page, outcome: str, reason: re.Pattern[str]) -> None:
    """There is a cell of this outcome, and choosing it says why."""
    page.locator(f".cell.o-{outcome}:not(.band)").first.click()
    expect(page.get_by_label("the chosen instant")).to_contain_text(reason)
