"""`mainspring doctor`: what works, what does not, and what to do."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from redis import Redis

from broker_servers import find_server
from mainspring.cli.main import run


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = run(["doctor", "--json", *args])
    found = json.loads(capsys.readouterr().out)
    return code, {each["part"]: each for each in found}


def test_a_store_alone_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path / 'a.db'}"
    code, found = ask(capsys, "--store", store)
    assert code == 0
    assert "no database yet" in found["store"]["detail"]
    assert not (tmp_path / "a.db").exists()
    run(["db", "migrate", "--store", store])
    capsys.readouterr()
    code, found = ask(capsys, "--store", store)
    assert (code, found["store"]["state"], found["clock"]["state"]) == (0, "good", "good")
    assert {found[part]["state"] for part in ("broker", "lease", "cache", "sink")} == {"unused"}


@pytest.mark.parametrize(
    "url",
    ["redis://127.0.0.1:1", "amqp://127.0.0.1:1", "kafka://127.0.0.1:1", "sqs://k:s@r?endpoint=http://127.0.0.1:1"],
)
def test_a_broker_that_is_not_there_fails_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", url)
    assert code == 1
    assert found["broker"]["state"] == "failed"
    assert "127.0.0.1:1" in found["broker"]["where"]
    assert "start the server, or correct the host and port in `broker`" in found["broker"]["remedy"]


def test_a_broker_that_answers_and_may_not_be_written_to_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, user = find_server("REDIS"), f"reader-{secrets.token_hex(4)}"
    with Redis.from_url(url) as admin:
        admin.acl_setuser(user, enabled=True, passwords=["+secret"], keys=["*"], commands=["+ping", "+client"])
        try:
            allowed = url.replace("://", f"://{user}:secret@")
            code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", allowed)
            assert (code, found["broker"]["state"]) == (1, "failed")
            assert "grant the permission that is missing" in found["broker"]["remedy"]
            assert "secret" not in str(found)
            wrong = url.replace("://", f"://{user}:guessed@")
            code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", wrong)
            assert code == 1
            assert "correct the user and password in `broker`" in found["broker"]["remedy"]
        finally:
            admin.acl_deluser(user)


def test_a_broker_that_takes_a_message_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{find_server('RABBITMQ')}?prefix={secrets.token_hex(4)}.&timeout=10s"
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", url)
    assert (code, found["broker"]["state"]) == (0, "good")


def test_an_unknown_scheme_names_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", "carrier-pigeon://coop")
    assert code == 1
    assert "amqp" in found["broker"]["detail"]
