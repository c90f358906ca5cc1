"""Signing in: a cookie that no script reads, roles that decide what is offered, typing that survives a new login."""

from __future__ import annotations

import html
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import httpx
import pytest
from backstage import PATIENCE_S, SECRET, OpenPage, Stage, open_stage, until
from playwright.sync_api import Locator, Page, expect

from mainspring.core.instants import SECOND

pytestmark = pytest.mark.browser

SHORT_S = 8


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server that asks for a token."""
    with open_stage(tmp_path_factory.mktemp("door"), secret=SECRET, is_seeded=False) as door:
        yield door


def sign_in(page: Page, token: str) -> None:
    """Fill in the form."""
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def enter(open_page: OpenPage, door: Stage, *roles: str, path: str = "/") -> Page:
    """A page of a caller with these roles."""
    page = open_page(path, at=door.url, expects_faults=True)
    sign_in(page, door.token(*roles))
    expect(page.get_by_role("navigation", name="pages")).to_be_visible()
    return page


def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(open_page: OpenPage, door: Stage) -> None:
    page = enter(open_page, door, "viewer")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    [cookie] = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    alone = httpx.get(f"{door.url}/v1/jobs", headers={"Cookie": f"{cookie['name']}={cookie['value']}"})
    assert alone.status_code == 401
    storage = page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert cookie["value"] not in storage


def test_a_wrong_token_is_refused_with_the_reason(open_page: OpenPage, door: Stage) -> None:
    page = open_page("/", at=door.url, expects_faults=True)
    sign_in(page, "nonsense")
    expect(page.get_by_role("alert")).to_contain_text("token")


def test_a_token_in_the_address_signs_in_and_leaves_the_address(open_page: OpenPage, door: Stage) -> None:
    page = open_page(f"/login#token={door.token('viewer')}", at=door.url, expects_faults=True)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert "token" not in page.url


def test_after_signing_out_the_login_is_there(open_page: OpenPage, door: Stage) -> None:
    page = enter(open_page, door, "viewer", path="/settings")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.context.cookies() == []
    expect(page.get_by_role("navigation", name="pages")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize("end", ["the cookie is gone", "the token is revoked", "the token expires"])
def test_what_was_typed_survives_a_session_that_ends(open_page: OpenPage, door: Stage, end: str) -> None:
    page = open_page("/new-job", at=door.url, expects_faults=True)
    sign_in(page, door.token("admin", subject="eve", lifetime=(SHORT_S if "expires" in end else 3_600) * SECOND))
    page.get_by_label("Name", exact=True).fill(f"typed before {end}")
    page.get_by_label("Command", exact=True).fill("echo typed")
    if "cookie" in end:
        page.context.clear_cookies()
    elif "revoked" in end:
        door.ask("POST", "/v1/tokens:revoke", json={"subject": "eve"})
    else:
        expect(page.get_by_text("Your session ends in 1 m")).to_be_visible()
    # Pages notice by themselves within seconds; the next request of this one notices at once.
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(page, door.token("admin"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_hidden()
    expect(page.get_by_label("Command", exact=True)).to_be_focused()
    expect(page.get_by_label("Name", exact=True)).to_have_value(f"typed before {end}")
    page.get_by_role("button", name="Save the job").click()
    expect(page.get_by_role("heading", name=f"typed before {end}")).to_be_visible()


class Foreign(BaseHTTPRequestHandler):
    """A page of another origin that posts a form to the server as soon as it is opened."""

    target = ""

    def do_GET(self) -> None:
        body = json.dumps({"name": "forged", "command": "true", "manual": True})[:-1]
        field = html.escape(f'{body}, "tags": ["')  # A form of text/plain: the name of its field, "=", its value.
        page = f"""<form method="post" enctype="text/plain" action="{self.target}/v1/jobs">
            <input name="{field}" value='"]}}'></form>
            <script>document.forms[0].submit()</script>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_a_form_of_another_origin_changes_nothing(open_page: OpenPage, door: Stage) -> None:
    page = enter(open_page, door, "admin")
    handler = type("Handler", (Foreign,), {"target": door.url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as foreign:
        Thread(target=foreign.serve_forever, daemon=True).start()
        with page.expect_response("**/v1/jobs") as answered:
            page.goto(f"http://127.0.0.1:{foreign.server_port}/")
        foreign.shutdown()
    assert answered.value.status in (401, 403, 415)
    assert door.client.get("/v1/jobs/forged").status_code == 404


ROLES = ("viewer", "submitter", "operator", "admin")


class Offer(NamedTuple):
    """What a page offers from a role on. `ready` is a text that is there as soon as the offer could be."""

    role: str
    path: str
    ready: str
    find: Callable[[Locator], Locator]


def button(name: str) -> Callable[[Locator], Locator]:
    """A button of the page by its name, or the beginning of it."""
    return lambda main: main.get_by_role("button", name=re.compile(f"^{name}"))


def link(name: str) -> Callable[[Locator], Locator]:
    """A link of the page, likewise."""
    return lambda main: main.get_by_role("link", name=re.compile(f"^{name}"))


def boxes(main: Locator) -> Locator:
    """What selects rows."""
    return main.get_by_role("checkbox")


def in_row(text: str, name: str) -> Callable[[Locator], Locator]:
    """A button beside a text of the overview."""
    return lambda main: main.get_by_role("listitem").filter(has_text=text).get_by_role("button", name=name)


@pytest.fixture(scope="module")
def offers(door: Stage) -> list[Offer]:
    """All actions of the UI, each where it is offered."""
    words = {"task": "exact", "args": {"number": 1}}
    job = door.ask("POST", "/v1/jobs", json={"name": "role-job", **words, "every": "1h"})["job_id"]
    missed = time.time_ns() // 3_600_000_000_000 * 3_600_000_000 - 86_400_000_000
    with closing(sqlite3.connect(door.store, timeout=PATIENCE_S)) as connection, connection:
        row = "INSERT INTO firings (job_id, fire_at, kind, outcome, created_at) VALUES (?, ?, 'scheduled', 'missed', ?)"
        connection.execute(row, (job, missed, missed))
    missed_at = datetime.fromtimestamp(missed // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    door.ask("POST", "/v1/jobs", json={"name": "role-command", "command": "true", "manual": True})
    door.ask("POST", "/v1/jobs", json={"name": "role-paused", **words, "every": "1h"})
    door.ask("POST", "/v1/jobs/role-paused/pause", json={})
    fails = {"name": "role-fails", "task": "refuse", "args": {"text": "no role helps"}, "manual": True}
    door.ask("POST", "/v1/jobs", json=fails)
    failed = door.ended(door.ask("POST", "/v1/jobs/role-fails/trigger", json={})["run_id"])["run_id"]
    waiting = door.ask("POST", "/v1/runs", json={**words, "queue": "shut"})["run_id"]
    door.ask("POST", "/v1/queues/shut/pause", json={"reason": "for the roles"})
    rules = [{"kind": "weekdays", "days": ["sun"]}]
    door.ask("PUT", "/v1/calendars/role-days", json={"rules": rules, "timezone": "UTC"})
    until(lambda: door.ask("GET", "/v1/errors")["items"])
    kind = door.ask("GET", "/v1/errors")["items"][0]["error"]
    worker = door.ask("GET", "/v1/workers")["items"][0]["worker"]
    named: list[tuple[str, str, str, Callable[[Locator], Locator]]] = [
        ("operator", "/", "no role helps", in_row("role-fails", "Retry")),
        ("operator", "/", "no role helps", in_row("role-paused", "Resume")),
        ("operator", "/", "no role helps", in_row("for the roles", "Resume")),
        ("operator", "/", "no role helps", in_row("in all", "Retry")),
        ("submitter", "/jobs", "role-job", link("New job")),
        ("operator", "/jobs", "role-job", boxes),
        ("operator", f"/jobs/role-job?at={missed_at}", "Copy link", button("Backfill")),
        *(("operator", "/jobs/role-job", "Remove", button(name)) for name in ("Trigger", "Pause", "Remove")),
        ("operator", "/jobs/role-job", "Remove", lambda main: main.locator(".actions > *").filter(has_text="Edit")),
        ("operator", "/jobs/role-job", "Remove", lambda main: main.locator(".tabs").get_by_role("link", name="Edit")),
        ("operator", "/jobs/role-job?tab=versions", "job.create", link("Edit from this")),
        ("operator", "/jobs/role-job?tab=edit", "What this means", button("Save the job")),
        ("admin", "/jobs/role-command?tab=edit", "What this means", button("Save the job")),
        ("submitter", "/new-job", "What this means", button("Save the job")),
        ("admin", "/new-job", "What this means", lambda main: main.locator("option", has_text="command")),
        ("submitter", "/new-run?task=exact", "The same as a command", button("Submit the run")),
        ("submitter", "/runs?since=all", failed[-8:], link("New run")),
        ("operator", "/runs?since=all", failed[-8:], lambda main: main.get_by_label("select all shown")),
        ("submitter", f"/runs/{failed}", "no role helps", lambda main: main.locator(".actions > *", has_text="as new")),
        ("operator", f"/runs/{failed}", "no role helps", button("Retry")),
        ("operator", f"/runs/{waiting}", "Why it is not running", button("Cancel")),
        ("operator", "/failures", "no role helps", button("Retry")),
        ("operator", f"/failures/{kind}", "no role helps", button("Retry one first")),
        ("operator", f"/failures/{kind}", "no role helps", button("Retry all that failed so")),
        ("operator", f"/failures/{kind}", "no role helps", boxes),
        ("operator", "/queues", "for the roles", button("Resume")),
        ("operator", "/workers", worker, button("Drain")),
        ("operator", f"/workers/{worker}", "Heartbeat", button("Drain")),
        ("operator", "/calendars", "role-days", link("New calendar")),
        ("operator", "/calendars/role-days", "The coming year", button("Remove")),
        ("operator", "/calendars/role-days", "The coming year", button("Save the calendar")),
        ("admin", "/settings", "Session", lambda main: main.get_by_role("heading", name="Settings of the server")),
    ]  # fmt: skip
    return sorted((Offer(*each) for each in named), key=lambda each: each.path)


def visit(page: Page, path: str) -> None:
    """Another page without loading all of them again."""
    go = "path => { history.pushState({}, '', path); dispatchEvent(new PopStateEvent('popstate', { state: {} })); }"
    page.evaluate(go, f"/ui{path}")


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_offered_what_it_may_do(open_page: OpenPage, door: Stage, offers: list[Offer], role: str) -> None:
    """The roles include each other: what the next one is offered first, this one must not be offered."""
    page, rank = enter(open_page, door, role, path="/settings"), ROLES.index(role)
    main = page.locator("main")
    assert page.get_by_role("link", name="Audit").count() == int(role == "admin")
    for path, some in groupby(offers, key=lambda each: each.path):
        near = [each for each in some if ROLES.index(each.role) in (rank, rank + 1)]
        if near:
            visit(page, path)
            expect(main.get_by_text(near[0].ready).first).to_be_visible()
        for each in sorted(near, key=lambda each: -ROLES.index(each.role)):
            found = each.find(main)
            if each.role == role:
                expect(found.first).to_be_enabled()
            elif found.count():
                assert found.first.is_disabled(), each
                assert (found.first.get_attribute("title") or "").startswith("needs "), each
    proposal = {"job": "role-job", "schedule": "a", "to": "b", "minutes": 1, "reason": "", "change": {}, "version": 1}
    peak = {"at": "2026-01-01T00:00:00Z", "starts": 2}
    spread = {"edits": [proposal], "staying": [], "partial": False, "before": peak, "after": peak}
    page.route("**/v1/load:spread", lambda route: route.fulfill(json=spread))
    visit(page, "/load")
    main.get_by_role("button", name="Propose").click()
    expect(main.get_by_text("1 jobs move")).to_be_visible()
    assert main.get_by_role("button", name="Apply to").count() == int(rank >= ROLES.index("operator"))


def test_a_call_that_is_not_allowed_is_refused_and_says_so(open_page: OpenPage, door: Stage) -> None:
    page = enter(open_page, door, "viewer", path="/audit")
    expect(page.get_by_role("alert")).to_contain_text("audit:read")


def test_a_forged_call_is_refused_and_the_page_says_so(open_page: OpenPage, door: Stage) -> None:
    door.ask("POST", "/v1/jobs", json={"name": "guarded", "command": "true", "manual": True})
    page = enter(open_page, door, "viewer", path="/jobs/guarded")
    page.get_by_role("button", name="Trigger").evaluate("button => button.disabled = false")
    page.get_by_role("button", name="Trigger").click()
    with page.expect_response("**/trigger") as answered:
        page.get_by_role("button", name="Fire it now").click()
    assert answered.value.status == 403
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("jobs:operate")
    assert door.ask("GET", "/v1/jobs/guarded/runs")["items"] == []


def test_another_namespace_is_not_there(open_page: OpenPage, door: Stage) -> None:
    door.ask("POST", "/v1/jobs", json={"name": "ours", "command": "true", "manual": True})
    page = open_page("/jobs/ours?ns=theirs", at=door.url, expects_faults=True)
    sign_in(page, door.token("operator", namespace="theirs"))
    expect(page.get_by_role("alert")).to_contain_text("ours")
    expect(page.get_by_role("button", name="Trigger")).to_have_count(0)


def test_output_is_downloaded_with_the_session(open_page: OpenPage, door: Stage) -> None:
    run = door.ask("POST", "/v1/runs", json={"task": "chatter", "args": {"lines": 3}})["run_id"]
    door.ended(run)
    page = enter(open_page, door, "viewer", path=f"/runs/{run}?tab=output")
    expect(page.get_by_role("log")).to_contain_text("line 3")
    with page.expect_download() as downloaded:
        page.get_by_role("button", name="Download").click()
    assert downloaded.value.suggested_filename == f"{run}.txt"
    assert "line 3" in downloaded.value.path().read_text(encoding="utf-8")


def test_behind_a_proxy_every_address_begins_with_the_base_path(open_page: OpenPage, tmp_path: Path) -> None:
    with open_stage(tmp_path, is_seeded=False, settings={"MAINSPRING_BASE_PATH": "/x"}) as stage:
        run = stage.ask("POST", "/v1/runs", json={"task": "exact", "args": {"number": 1}})
        page = open_page("/", at=stage.url)
        expect(page.get_by_role("button", name="live")).to_be_visible()
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_role("link", name=run["run_id"][-8:]).click()
        expect(page.get_by_role("heading", name="exact")).to_be_visible()
        names = page.get_by_role("navigation", name="pages").get_by_role("link").all_inner_texts()
        for name in [*names, ""]:
            addresses = page.evaluate("[...document.links].map((link) => link.pathname)")
            assert [each for each in addresses if not each.startswith("/x/ui/")] == [], page.url
            if name:
                page.get_by_role("link", name=name, exact=True).click()
                expect(page.get_by_role("heading", level=1)).to_have_text(name)
                expect(page.locator(".skeleton")).to_have_count(0)
        page.keyboard.press("g")
        page.keyboard.press("j")
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        page.keyboard.press("n")
        page.get_by_label("namespace").fill("elsewhere")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{stage.url}/ui/jobs?ns=elsewhere")
        expect(page.get_by_text("There are no jobs yet.")).to_be_visible()
        page.close()
        landing = stage.client.get(stage.url.removesuffix("/x"), headers={"Accept": "text/html"})
        assert landing.headers["location"] == "/x/ui/"
        assert stage.client.get(f"{stage.url.removesuffix('/x')}/v1/me").status_code == 200  # A proxy that removes it.
