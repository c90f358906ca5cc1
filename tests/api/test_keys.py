"""Secrets in a file, which may change while servers run; and how long a token may be good."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from door import SECRET, Door, make_app, open_door, problem, until

from mainspring.api.auth.tokens import load_keys
from mainspring.api.server import Server
from mainspring.core.instants import DAY
from mainspring.errors import InvalidInput
from mainspring.settings import Settings

OTHER = "YW5vdGhlciBzZWNyZXQgZm9yIHRlc3RzIG9mIHJvdGF0aW9u"


def status(door: Door, token: str) -> int:
    return httpx.get(f"{door.url}/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code


def write(path: Path, *lines: str) -> None:
    """As an editor does: the file is there in whole, or as it was."""
    path.with_suffix(".new").write_text("".join(f"{line}\n" for line in lines))
    os.replace(path.with_suffix(".new"), path)


def test_another_secret_in_its_file_counts_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.api.auth.tokens.LOOK_S", 0.05)
    path = tmp_path / "secrets"
    write(path, SECRET)
    with open_door(tmp_path, secret=None, token_keys=str(path)) as door:
        old = door.token("viewer")
        assert status(door, old) == 200
        write(path, "# the new one signs, the old one is still believed", OTHER, SECRET)
        new = door.token("viewer")
        until(lambda: status(door, new) == 200)
        assert status(door, old) == 200
        write(path, OTHER)
        until(lambda: status(door, old) == 401)
        assert status(door, new) == 200
        write(path, "too short")
        for _ in range(20):
            assert status(door, new) == 200, "a file that cannot be used is survived for a while"


def test_a_token_of_a_secret_that_was_given_as_such_is_good_by_a_file_with_it(tmp_path: Path) -> None:
    with open_door(tmp_path) as door:
        token = door.token("viewer")
    for lines, answer in (((SECRET,), 200), ((OTHER, SECRET), 200), ((OTHER, SECRET[::-1]), 401)):
        write(tmp_path / "secrets", *lines)
        with open_door(tmp_path, secret=None, token_keys=str(tmp_path / "secrets")) as door:
            assert status(door, token) == answer, lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short\n", {}),
        ("", {}),
        ("# only a remark\n", {}),
        ('{"keys": []}', {}),
        ("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n", {}),
        (f"{SECRET}\n", {"secret": OTHER}),
    ],
)
def test_a_file_that_holds_no_good_secret_is_refused_at_the_start(
    tmp_path: Path, text: str, words: dict[str, str]
) -> None:
    (tmp_path / "secrets").write_text(text)
    with pytest.raises(InvalidInput) as refused:
        Server(make_app(tmp_path, token_keys=str(tmp_path / "secrets"), **{"secret": None, **words}))
    assert SECRET not in str(refused.value)


def test_no_token_is_good_for_longer_than_a_revocation_is_remembered(private_door: Door) -> None:
    assert status(private_door, private_door.token("viewer", lifetime=400 * DAY)) == 200
    assert status(private_door, private_door.token("viewer", lifetime=401 * DAY)) == 401


class TestRevoking:
    """An admin of one tenant must not be able to lock out the people of another."""

    @pytest.fixture
    def door(self, private_door: Door, monkeypatch: pytest.MonkeyPatch) -> Door:
        monkeypatch.setattr("mainspring.api.auth.gatekeeper.FRESH", 0)
        return private_door

    def test_an_admin_revokes_what_tokens_allow_in_its_own_namespace(self, door: Door) -> None:
        here, there = (door.client("viewer", subject="bob", namespace=name) for name in ("default", "tenant"))
        both = door.client(subject="bob", grants={"default": ["viewer"], "tenant": ["viewer"]})
        admin = door.client("admin", namespace="tenant", subject="eve")
        assert admin.post("/v1/tokens:revoke", json={"subject": "bob"}).json() == {"revoked": ["sub:bob"]}
        problem(there.get("/v1/jobs"), 401, "unauthenticated")
        assert here.get("/v1/jobs").status_code == 200
        assert both.get("/v1/jobs", headers={"Mainspring-Namespace": "default"}).status_code == 200
        problem(both.get("/v1/jobs", headers={"Mainspring-Namespace": "tenant"}), 403, "forbidden")

    def test_an_admin_of_all_namespaces_revokes_them_altogether(self, door: Door) -> None:
        here = door.client("viewer", subject="bob")
        admin = door.client(subject="root", grants={"*": ["admin"]})
        assert admin.post("/v1/tokens:revoke", json={"subject": "bob"}).status_code == 200
        problem(here.get("/v1/jobs"), 401, "unauthenticated")
        assert admin.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("subject", ["", "a\nb", "\0", "x" * 201])
def test_a_subject_that_cannot_be_shown_is_refused(private_door: Door, subject: str) -> None:
    with pytest.raises(InvalidInput, match="subject"):
        private_door.token("viewer", subject=subject)
    words = {"iss": "mainspring", "aud": "mainspring", "jti": "1", "roles": {"default": ["admin"]}}
    now = private_door.app.clock.now() // 1_000_000
    claims = {**words, "sub": subject, "iat": now, "exp": now + 60}
    assert status(private_door, jwt.encode({**claims, "sub": "ann"}, SECRET, "HS256", {"typ": "at+jwt"})) == 200
    assert status(private_door, jwt.encode(claims, SECRET, "HS256", {"typ": "at+jwt"})) == 401


@pytest.mark.parametrize("algorithm", ["RS256", "EdDSA"])
def test_keys_need_a_package_that_secrets_do_not(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.api.auth.tokens.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"needs the package cryptography.*pip install 'mainspring\[keys\]'"):
        load_keys(Settings(token_algorithm=algorithm, token_keys="keys.pem"))
    assert load_keys(Settings(secret=SECRET)) is not None
