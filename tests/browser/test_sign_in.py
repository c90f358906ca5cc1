"""Signing in: a cookie that no script reads, roles that decide what is offered, typing that survives a new login."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from backstage import SECRET, OpenPage, Stage, open_stage
from playwright.sync_api import Page, expect

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


@pytest.mark.parametrize(
    ("role", "creates", "operates", "audits"),
    [("viewer", False, False, False), ("submitter", True, False, False), ("operator", True, True, False),
     ("admin", True, True, True)],
)  # fmt: skip
def test_each_role_is_offered_what_it_may_do(
    open_page: OpenPage, door: Stage, role: str, creates: bool, operates: bool, audits: bool
) -> None:
    if door.client.get("/v1/jobs/role-job").status_code == 404:
        door.ask("POST", "/v1/jobs", json={"name": "role-job", "command": "true", "every": "1h"})
    page = enter(open_page, door, role, path="/jobs")
    expect(page.get_by_role("link", name="role-job")).to_be_visible()
    assert page.get_by_role("link", name="New job").count() == int(creates)
    assert page.get_by_role("link", name="Audit").count() == int(audits)
    assert (page.get_by_role("checkbox").count() > 0) == operates
    page.get_by_role("link", name="role-job").click()
    trigger = page.get_by_role("button", name="Trigger")
    expect(trigger).to_be_visible()
    assert trigger.is_enabled() == operates
    if not operates:
        assert trigger.get_attribute("title") == "needs jobs:operate"
    pages, main = page.get_by_role("navigation", name="pages"), page.locator("main")
    row = main.get_by_role("row").filter(has_text="active")
    offered = [
        ("Runs", main.get_by_role("heading", name="Runs"), main.get_by_role("link", name="New run"), creates),
        ("Queues", main.get_by_label("queue default"), main.get_by_role("button", name="Pause"), operates),
        ("Workers", row, main.get_by_role("button", name="Drain"), operates),
        ("Calendars", main.get_by_role("heading", name="Calendars"), main.get_by_role("link", name="New"), operates),
    ]
    for name, shown, found, is_allowed in offered:
        pages.get_by_role("link", name=name, exact=True).click()
        expect(shown.first).to_be_visible()
        assert (found.count() > 0 and found.first.is_enabled()) == is_allowed, (name, role)
    page.goto(f"{door.url}/ui/settings")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    assert page.get_by_role("heading", name="Settings of the server").count() == int(audits)


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


def test_behind_a_proxy_every_address_begins_with_the_base_path(open_page: OpenPage, tmp_path: Path) -> None:
    with open_stage(tmp_path, is_seeded=False, settings={"MAINSPRING_BASE_PATH": "/x"}) as stage:
        run = stage.ask("POST", "/v1/runs", json={"task": "exact", "args": {"number": 1}})
        page = open_page("/", at=stage.url)
        expect(page.get_by_role("button", name="live")).to_be_visible()
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_role("link", name=run["run_id"][-8:]).click()
        expect(page.get_by_role("heading", name="exact")).to_be_visible()
        addresses = page.evaluate("[...document.links].map((link) => link.pathname)")
        assert [each for each in addresses if not each.startswith("/x/ui/")] == []
        page.close()
        landing = stage.client.get(stage.url.removesuffix("/x"), headers={"Accept": "text/html"})
        assert landing.headers["location"] == "/x/ui/"
        assert stage.client.get(f"{stage.url.removesuffix('/x')}/v1/me").status_code == 200  # A proxy that removes it.
