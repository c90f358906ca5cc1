"""Each dialog and form ends with a command. Run in a shell, it has the effect of the button."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from backstage import APP, PATIENCE_S, OpenPage, Stage, shell, until
from playwright.sync_api import Locator, Page, expect

from mainspring.operations.jobs.options import JOB, options_of

pytestmark = pytest.mark.browser

BEYOND = 2**60 + 1
"""An integer that a JavaScript number cannot hold."""


def command_of(page: Page, button: str, inside: Page | Locator | None = None, reason: str = "") -> str:
    """Open the dialog of a button, give a reason, and close it again; the command that it shows."""
    opener = (inside or page).get_by_role("button", name=button, exact=True)
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    if reason:
        dialog.get_by_label("Reason").fill(reason)
        expect(dialog.locator(".command code")).to_contain_text("--reason")
    line = dialog.locator(".command code").inner_text()
    page.keyboard.press("Shift+Tab")  # Backwards from its first control.
    assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    return line


def run_command(page: Page, stage: Stage, button: str, inside: Page | Locator | None = None, reason: str = "") -> None:
    """Run the command of a button's dialog."""
    shell(stage, command_of(page, button, inside, reason))


def test_the_command_of_each_dialog_has_the_same_effect(open_page: OpenPage, stage: Stage) -> None:
    stage.ask("POST", "/v1/jobs", json={"name": "commanded", "task": "refuse", "args": {"text": "x"}, "every": "1h"})
    page = open_page("/jobs/commanded", expects_faults=True)  # In the end the page asks for a job that is gone.
    job = "/v1/jobs/commanded"
    for button, state in (("Pause", "paused"), ("Resume", "active")):
        run_command(page, stage, button, reason="it's late")
        assert stage.ask("GET", job)["state"] == state
        if state == "paused":
            assert stage.ask("GET", job)["paused_why"] == "it's late"
        expect(page.get_by_role("button", name="Resume" if button == "Pause" else "Pause")).to_be_visible()
    run_command(page, stage, "Trigger")
    first = until(lambda: stage.ask("GET", f"{job}/runs")["items"])[0]["run_id"]
    stage.ended(first)
    page.goto(f"{stage.url}/ui/runs/{first}")
    run_command(page, stage, "Retry")
    until(lambda: len(stage.ask("GET", f"{job}/runs")["items"]) == 2)
    page.goto(f"{stage.url}/ui/queues")
    queue = page.get_by_label("queue gpu")
    for button in ("Pause", "Resume"):
        run_command(page, stage, button, inside=queue)
        expect(queue.get_by_role("button", name="Resume" if button == "Pause" else "Pause")).to_be_visible()
    page.goto(f"{stage.url}/ui/new-job")
    page.get_by_label("Name", exact=True).fill("by command")
    page.get_by_label("Command", exact=True).fill("echo 'it works'")
    shell(stage, page.locator(".command code").inner_text())
    assert stage.ask("GET", "/v1/jobs/by%20command")["args"]["argv"] == ["echo", "it works"]
    page.goto(f"{stage.url}/ui/jobs/commanded")
    run_command(page, stage, "Remove")
    assert stage.client.get(job).status_code == 404


def test_the_commands_of_actions_on_many_have_the_same_effect(open_page: OpenPage, stage: Stage) -> None:
    for number in range(3):
        stage.ask(
            "POST", "/v1/runs", json={"task": "encode", "queue": "many", "key": "many", "args": {"video": f"m{number}"}}
        )
        stage.ask("POST", "/v1/jobs", json={"name": f"many of {number}", "command": "true", "every": "1h"})
    until_later = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds").replace("+00:00", "Z")
    page = open_page(f"/runs?q=queue:many task:encode region:default key:many since:1h until:{until_later}")
    page.get_by_label("select all shown").check()
    page.get_by_role("button", name="Select all that match").click()
    run_command(page, stage, "Cancel", reason="it's late")
    cancelled = {"queue": "many", "state": "cancelled"}
    until(lambda: stage.ask("GET", "/v1/runs:count", params=cancelled)["count"] == 3)
    ended = stage.ask("GET", "/v1/runs", params=cancelled)["items"]
    assert {each["reason"] for each in ended} == {"it's late"}
    page.goto(f"{stage.url}/ui/jobs?q=many")
    expect(page.get_by_role("row")).to_have_count(4)
    page.get_by_label("select all shown").check()
    for button, state in (("Pause", "paused"), ("Resume", "active")):
        run_command(page, stage, button)
        assert [stage.ask("GET", f"/v1/jobs/many of {number}")["state"] for number in range(3)] == [state] * 3
    run_command(page, stage, "Trigger")
    assert [len(stage.ask("GET", f"/v1/jobs/many of {number}/runs")["items"]) for number in range(3)] == [1, 1, 1]


def test_the_command_of_a_kind_of_failure_retries_each_run_of_it_once(open_page: OpenPage, stage: Stage) -> None:
    word = "refused by itself"
    runs = [stage.ask("POST", "/v1/runs", json={"task": "refuse", "args": {"text": word}})["run_id"] for _ in range(3)]
    for run in runs:
        stage.ended(run)

    def groups() -> list[dict[str, Any]]:
        found = stage.ask("GET", "/v1/errors", params={"limit": 100})["items"]
        return [each for each in found if word in each["message"] and each["count"] >= len(runs)]

    group, others = until(groups)[0]["error"], stage.retried("etl-nightly")
    page = open_page(f"/failures/{group}")
    run_command(page, stage, "Retry all that failed so")
    failed = {"error": group, "limit": 20}
    found = until(lambda: [each for each in stage.ask("GET", "/v1/runs", params=failed)["items"] if each["retry_of"]])
    assert {each["retry_of"] for each in found} <= set(runs)
    assert stage.retried("etl-nightly") == others  # They failed otherwise.
    page.goto(f"{stage.url}/ui/runs?q=error:{group}")
    page.get_by_label(f"select {runs[0]}").check()
    line = command_of(page, "Retry")
    assert line == f"mainspring run retry {runs[0][-8:]}"


def test_the_commands_of_forms_and_of_single_runs_have_the_same_effect(open_page: OpenPage, stage: Stage) -> None:
    held = stage.ask("POST", "/v1/runs", json={"task": "hold"})["run_id"]
    page = open_page(f"/runs/{held}")
    run_command(page, stage, "Cancel")
    assert stage.ended(held)["state"] == "cancelled"
    stage.ask("POST", "/v1/jobs", json={"name": "edited", "task": "refuse", "args": {"text": "no"}, "every": "1h"})
    page.goto(f"{stage.url}/ui/jobs/edited?tab=edit")
    page.get_by_label("Timeout").fill("7m")
    page.get_by_label("Arguments as JSON").fill('{"text": "it\'s"}')
    expect(page.locator(".command code")).to_contain_text("--timeout 7m")
    shell(stage, page.locator(".command code").inner_text())
    job = stage.ask("GET", "/v1/jobs/edited")
    assert (job["timeout"], job["args"]) == ("7m", {"text": "it's"})
    stage.ask("PATCH", "/v1/jobs/edited", json={"tags": ["old"]})
    page.reload()
    page.get_by_label("Timeout").fill("")
    page.get_by_label("Tags").fill("")
    expect(page.locator(".command code")).to_contain_text("--tag none")
    shell(stage, page.locator(".command code").inner_text())
    job = stage.ask("GET", "/v1/jobs/edited")
    assert (job["timeout"], job["tags"]) == (None, [])
    page.goto(f"{stage.url}/ui/calendars?new=1")
    page.get_by_label("Name", exact=True).fill("by hand")
    expect(page.locator(".command code")).to_contain_text("'by hand'")
    shell(stage, page.locator(".command code").inner_text())
    assert stage.ask("GET", "/v1/calendars/by hand")["rules"][0]["days"] == ["sat", "sun"]
    page.goto(f"{stage.url}/ui/calendars/by%20hand")
    run_command(page, stage, "Remove")
    assert stage.client.get("/v1/calendars/by hand").status_code == 404


def test_a_run_is_submitted_by_a_form_that_fits_its_task_and_by_its_command(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/runs", expects_faults=True)
    page.get_by_role("link", name="New run").click()
    page.get_by_label("Task", exact=True).fill("exact")
    expect(page.get_by_text("exact(number: int)")).to_be_visible()
    page.get_by_label("number", exact=True).fill(str(BEYOND))
    page.get_by_label("Priority").fill("99")
    page.get_by_role("button", name="Submit the run").click()
    expect(page.locator("#run-priority-fault")).to_contain_text("1 (highest) to 10")
    page.get_by_label("Priority").fill("2")
    line = page.locator(".command code").inner_text()
    page.get_by_role("button", name="Submit the run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("exact …")
    first = stage.ended(page.url.rsplit("/", 1)[1])
    assert (first["args"], first["result"], first["priority"]) == ({"number": BEYOND}, BEYOND, 2)
    shell(stage, line)
    newest = stage.ask("GET", "/v1/runs", params={"task": "exact", "limit": 1})["items"][0]
    assert (newest["args"], newest["priority"]) == ({"number": BEYOND}, 2)
    assert newest["run_id"] != first["run_id"]
    page.get_by_role("link", name="Run again").click()
    expect(page.get_by_label("Arguments as JSON")).to_have_value(f'{{\n  "number": {BEYOND}\n}}')


def test_the_command_of_a_backfill_fires_what_was_missed(open_page: OpenPage, stage: Stage) -> None:
    page = open_page("/jobs/invoices")
    missed = page.locator(".cell.o-missed:not(.band)").first
    instant = str(missed.get_attribute("aria-label")).split()[0]
    missed.click()
    page.get_by_role("button", name=re.compile("Backfill th")).first.click()
    dialog = page.get_by_role("dialog")
    line = dialog.locator(".command code").inner_text()
    page.keyboard.press("Escape")
    shell(stage, line)
    cell = page.locator(f".cell[aria-label^='{instant}']")
    expect(cell).to_have_class(re.compile("o-(succeeded|late)"))


def test_the_command_of_draining_ends_a_worker(open_page: OpenPage, stage: Stage) -> None:
    words = [sys.executable, "-m", "mainspring", "worker", str(APP), "--queue", "spare"]
    environment = {**os.environ, "MAINSPRING_STORE": f"sqlite:///{stage.store}"}
    spare = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page = open_page("/workers")
        row = page.get_by_role("row").filter(has_text="spare")
        expect(row).to_contain_text("active", timeout=PATIENCE_S * 1000)
        row.get_by_role("button", name=re.compile("^Drain")).click()
        expect(page.get_by_role("dialog")).not_to_contain_text("No other worker is active")
        line = page.get_by_role("dialog").locator(".command code").inner_text()
        page.keyboard.press("Escape")
        shell(stage, line)
        assert spare.wait(PATIENCE_S) == 0
        expect(row).not_to_contain_text("active")
    finally:
        spare.kill()
        spare.wait()


UNSHOWN = {"retry", "alert"}
"""What a job has of these stays. Of `retry` the editor shows the number; answers do not tell whom an alert reaches."""
RARE = {
    "soft_timeout": "8m", "total_timeout": "1h", "grace": "20s", "start_deadline": "30m", "catch_up_window": "2d",
    "catch_up_limit": "7", "max_firings": "9", "jitter": "5s", "completions": "3", "parallelism": "2", "key": "c 7",
    "limit": "4", "on_key_failure": "stop", "max_losses": "1",
    "keep_succeeded": "10", "keep_failed": "20", "regions": "eu, us", "region_failover": "5m",
    "failover_regions": "us, asia", "under_pressure": "run", "isolation": "process", "dependencies": "upstream",
    "on_dependency_failure": "run", "start_at": "2027-01-01T00:00:00Z", "end_at": "2028-01-01T00:00:00Z",
}  # fmt: skip


def test_the_editor_has_every_option_of_a_job_and_changes_only_what_is_typed(open_page: OpenPage, stage: Stage) -> None:
    retry = {"retries": 2, "delays": ["7s"]}
    stage.ask("POST", "/v1/jobs", json={"name": "upstream", "task": "exact", "args": {"number": 1}, "manual": True})
    for name in ("plain", "other"):
        job = {"name": name, "task": "exact", "args": {"number": 1}, "every": "1h", "timeout": "10m", "retry": retry}
        stage.ask("POST", "/v1/jobs", json=job)
    page = open_page("/jobs/plain?tab=edit")
    page.locator("summary").click()
    shown = {each.get_attribute("id") for each in page.locator(".form :is(input, select, textarea)[id]").all()}
    known = {option.name for option in options_of(JOB) if option.kind.json is not None} | {"dependencies"}
    assert known - shown == UNSHOWN
    for name, value in RARE.items():
        field = page.locator(f"#{name}")
        field.select_option(value) if field.evaluate("it => it.tagName") == "SELECT" else field.fill(value)
    line = page.locator(".command code")
    expect(line).to_contain_text("--start 2027")
    shell(stage, line.inner_text().replace("job edit plain", "job edit other"))
    page.get_by_role("button", name="Save the job").click()
    expect(page).to_have_url(re.compile("tab=next"))
    saved, commanded = (stage.ask("GET", f"/v1/jobs/{name}") for name in ("plain", "other"))
    values = {name: {**saved["policy"], **saved}[name] for name in RARE}
    assert {name: ", ".join(each) if isinstance(each, list) else str(each) for name, each in values.items()} == RARE
    assert values == {name: {**commanded["policy"], **commanded}[name] for name in RARE}
    page.goto(f"{stage.url}/ui/jobs/plain?tab=edit")
    expect(page.locator("#grace")).to_be_visible()
    for name in ("soft_timeout", "grace", "regions", "key"):
        expect(page.locator(f"#{name}")).to_have_value(RARE[name])
        page.locator(f"#{name}").fill("")
    page.get_by_role("button", name="Save the job").click()
    expect(page).to_have_url(re.compile("tab=next"))
    emptied = stage.ask("GET", "/v1/jobs/plain")
    assert (emptied["soft_timeout"], emptied["key"], emptied["total_timeout"]) == (None, None, "1h")
    assert (emptied["policy"]["grace"], emptied["policy"]["regions"]) == ("10s", ["default"])
    with closing(sqlite3.connect(stage.store)) as file:
        options = [row[0] for row in file.execute("SELECT options FROM jobs WHERE name IN ('plain', 'other')")]
    assert [json.loads(each)["retry"]["delays"] for each in options] == [[7_000_000]] * 2, "nobody touched the retries"
