"""Signing in with a browser: a cookie that scripts cannot read, and that counts for pages of this server only."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from door import Door, open_door, problem, until

from mainspring.api.auth.session import LONGEST_COOKIE
from mainspring.core.instants import SECOND

UI = {"Mainspring-UI": "1"}


def origin(door: Door, scheme: str = "http") -> dict[str, str]:
    return {"Origin": f"{scheme}://{door.url.removeprefix('http://')}"}


def sign_in(door: Door, token: str, **headers: str) -> httpx.Response:
    return door.client().post("/v1/session", json={"token": token}, headers={**UI, **origin(door), **headers})


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_a_token_is_exchanged_for_a_cookie_that_serves_the_page(door: Door) -> None:
    answer = sign_in(door, door.token("viewer", subject="bob"))
    assert (answer.status_code, answer.content) == (204, b"")
    attributes = {each.strip() for each in answer.headers["set-cookie"].split(";")}
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= attributes
    me = door.client().get("/v1/me", headers={**UI, **cookie_of(answer)}).json()
    assert (me["subject"], me["open"], me["home"]) == ("bob", False, "default")
    assert "jobs:read" in me["permissions"]["default"]
    assert "jobs:write" not in me["permissions"]["default"]


def test_over_tls_the_cookie_is_bound_to_this_host(door: Door) -> None:
    answer = sign_in(door, door.token("viewer"), **origin(door, "https"))
    assert answer.headers["set-cookie"].startswith("__Host-mainspring=")
    assert "; Secure" in answer.headers["set-cookie"]
    assert "Domain" not in answer.headers["set-cookie"]
    assert door.client().get("/v1/me", headers={**UI, **cookie_of(answer)}).status_code == 200
    plain = sign_in(door, door.token("viewer")).headers["set-cookie"]
    assert plain.startswith("mainspring=")
    assert "Secure" not in plain


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Mainspring-UI": "0"},
        {**UI, "Origin": "https://evil.example"},
        {**UI, "Origin": "null"},
        {**UI, "Sec-Fetch-Site": "cross-site"},
        {**UI, "Sec-Fetch-Site": "same-site"},
        {**UI, "Sec-Fetch-Site": "none"},
    ],
)
def test_a_cookie_does_not_count_for_what_a_foreign_page_can_send(door: Door, headers: dict[str, str]) -> None:
    cookie = cookie_of(sign_in(door, door.token("admin")))
    client = door.client()
    problem(client.get("/v1/jobs", headers={**cookie, **headers}), 401, "unauthenticated")
    problem(client.post("/v1/runs", json={"task": "x"}, headers={**cookie, **headers}), 401, "unauthenticated")


def test_a_form_of_a_foreign_page_neither_signs_in_nor_out(door: Door) -> None:
    client, token = door.client(), door.token("admin")
    for headers in ({}, {**UI, "Origin": "https://evil.example"}, {**UI, "Sec-Fetch-Site": "cross-site"}):
        answer = client.post("/v1/session", json={"token": token}, headers=headers)
        problem(answer, 403, "forbidden")
        assert "set-cookie" not in answer.headers
        answer = client.delete("/v1/session", headers=headers)
        problem(answer, 403, "forbidden")
        assert "set-cookie" not in answer.headers


def test_a_token_in_a_header_wins_over_a_cookie(door: Door) -> None:
    cookie = cookie_of(sign_in(door, door.token("viewer", subject="bob")))
    client = door.client("admin", subject="ann")
    assert client.get("/v1/me", headers={**UI, **cookie}).json()["subject"] == "ann"
    wrong = {"Authorization": "Bearer nonsense", **UI, **cookie}
    problem(door.client().get("/v1/me", headers=wrong), 401, "unauthenticated")


def test_a_cookie_that_was_sent_twice_is_refused(door: Door) -> None:
    mine, other = (cookie_of(sign_in(door, door.token("viewer")))["Cookie"] for _ in range(2))
    answer = door.client().get("/v1/me", headers={**UI, "Cookie": f"{mine}; {other}"})
    assert "more than once" in problem(answer, 401, "unauthenticated")["detail"]


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "x" * 8_000])
def test_a_token_that_is_not_valid_makes_no_session(door: Door, token: str) -> None:
    answer = sign_in(door, token)
    problem(answer, 401, "unauthenticated")
    assert "set-cookie" not in answer.headers
    assert token not in answer.text


def test_a_token_that_fits_no_cookie_is_refused_with_the_reason(door: Door) -> None:
    grants = {f"namespace-{number}": ["viewer"] for number in range(150)}
    token = door.token(grants=grants)
    assert LONGEST_COOKIE < len(token) < 8_192
    assert str(LONGEST_COOKIE) in problem(sign_in(door, token), 413, "too-large")["detail"]


def test_a_session_ends_with_its_token_and_with_a_revocation(private_door: Door) -> None:
    short = cookie_of(sign_in(private_door, private_door.token("viewer", subject="short", lifetime=SECOND)))
    long = cookie_of(sign_in(private_door, private_door.token("viewer", subject="long")))
    client = private_door.client()
    assert client.get("/v1/me", headers={**UI, **long}).status_code == 200
    revoked = private_door.client("admin").post("/v1/tokens:revoke", json={"subject": "long"})
    assert revoked.status_code in (200, 204)
    until(lambda: client.get("/v1/me", headers={**UI, **long}).status_code == 401)
    until(lambda: client.get("/v1/me", headers={**UI, **short}).status_code == 401)


def test_signing_out_removes_the_cookie(door: Door) -> None:
    answer = door.client().delete("/v1/session", headers={**UI, **origin(door)})
    assert answer.status_code == 204
    assert answer.headers["set-cookie"].startswith("mainspring=; ")
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_the_body_of_a_stranger_is_small(door: Door) -> None:
    answer = door.client().post("/v1/session", json={"token": "x" * 20_000}, headers={**UI, **origin(door)})
    problem(answer, 413, "too-large")


def test_strangers_with_slow_bodies_hold_no_slot(private_door: Door) -> None:
    head = b"POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    connections = [private_door.connect() for _ in range(20)]
    try:
        for each in connections:
            each.sendall(head)
        assert private_door.client("viewer").get("/v1/jobs").status_code == 200
        assert private_door.server.context.capacity.busy["reading"] == 0
    finally:
        for each in connections:
            each.close()


def test_without_a_secret_there_is_no_sign_in(tmp_path: Path) -> None:
    with open_door(tmp_path, secret=None) as door:
        me = door.client().get("/v1/me").json()
        assert (me["subject"], me["open"], me["expires_at"]) == ("local", True, None)
        assert "audit:read" in me["permissions"]["default"]
        problem(sign_in(door, "anything"), 409, "conflict")


def test_permissions_are_named_by_namespace(door: Door) -> None:
    both = door.client(grants={"a": ["viewer"], "b": ["operator"]})
    me = both.get("/v1/me").json()
    assert me["namespaces"] == ["a", "b"]
    assert "jobs:write" not in me["permissions"]["a"]
    assert "jobs:write" in me["permissions"]["b"]
    everywhere = door.client(grants={"*": ["viewer"]}).get("/v1/me").json()
    assert everywhere["permissions"]["*"] == everywhere["permissions"]["default"]
