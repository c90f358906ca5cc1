"""`mainspring doctor`: what works, what does not, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert "127.0.0.1:1" in found["broker"]["detail"]
    assert "start the server" in found["broker"]["remedy"]


def test_an_unknown_scheme_names_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", "carrier-pigeon://coop")
    assert code == 1
    assert "amqp" in found["broker"]["detail"]
