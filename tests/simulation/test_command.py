"""`mainspring simulate`."""

import json
from pathlib import Path

import pytest

from mainspring.cli.main import run
from mainspring.testing.history import load

QUICK = ["--minutes", "0.3", "--nodes", "1", "--workers", "1"]


def test_it_reports_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--seed", "3", "--profile", "calm", *QUICK]) == 0

    shown = capsys.readouterr().out
    assert "all promises kept" in shown
    assert "report accepted" in shown


def test_it_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--seeds", "2", "--profile", "network", "--json", *QUICK]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["seeds"] == 2
    assert answer["failed"] == []
    assert answer["sometimes"]["report accepted"] > 0
    assert answer["faults"]["delay"] > 0
    assert answer["faults"]["crash"] == 0


def test_it_writes_the_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"

    assert run(["simulate", "--seed", "3", "--profile", "calm", "--history", str(file), *QUICK]) == 0

    records = list(load(file.read_bytes().splitlines(keepends=True)))
    assert records[-1].what == "tally"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("option", "value"), [("--profile", "sunny"), ("--without", "rain")])
def test_an_unknown_word_is_answered_with_those_that_are_known(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", option, value]) == 2

    assert "choose" in capsys.readouterr().err
