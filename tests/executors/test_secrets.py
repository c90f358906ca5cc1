"""Secrets: known to the run that names them, and shown to no reader of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deeds
import pytest
from scene import Attempt, scene_of

from mainspring.core.tasks.specs import check_spec
from mainspring.errors import InvalidInput

TOKEN = 'pa"ss\\wörd-123'
REFERENCE = {"$secret": "TOKEN"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET_TOKEN", TOKEN)
    monkeypatch.setenv("PRIVATE", "the worker's own")


def everything(outcome: Any, attempt: Attempt) -> str:
    """All that would be stored."""
    return json.dumps([outcome.result, repr(outcome.failure), attempt.lines, attempt.marks], ensure_ascii=False)


async def test_a_command_gets_them_and_its_output_does_not_show_them() -> None:
    script = 'test "$TOKEN" = "$EXPECTED" && echo same; echo "$TOKEN"; echo "x${TOKEN}y" >&2; exit 3'
    async with scene_of() as scene:
        env = {"TOKEN": REFERENCE, "EXPECTED": TOKEN}
        outcome, attempt = await scene.command(["sh", "-c", script], env=env)
    assert attempt.said("stdout") == ["same", "***"]
    assert attempt.said("stderr") == ["x***y"]
    assert outcome.failure.message == "the command exited with code 3: x***y"
    assert TOKEN not in everything(outcome, attempt)
    assert attempt.claim.run_id


@pytest.mark.parametrize("task", [deeds.leak, deeds.leak_in_process], ids=["thread", "process"])
async def test_a_function_gets_them_and_neither_its_error_nor_its_log_shows_them(task: Any) -> None:
    async with scene_of(deeds.app.tasks) as scene:
        outcome, attempt = await scene.outcome(task, secret=REFERENCE)
    assert outcome.failure is not None
    assert outcome.failure.type == "ValueError"
    shown = everything(outcome, attempt)
    assert "got ***" in shown
    for form in (TOKEN, json.dumps(TOKEN)[1:-1], repr(TOKEN)[1:-1]):
        assert form not in shown


async def test_a_result_does_not_show_them() -> None:
    async with scene_of(deeds.app.tasks) as scene:
        assert await scene.run(deeds.echo, value=[REFERENCE, {"deep": REFERENCE}]) == ["***", {"deep": "***"}]


async def test_they_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "TOKEN").write_text("from a file\n")
    async with scene_of(deeds.app.tasks, secrets=str(tmp_path)) as scene:
        assert await scene.run(deeds.length, value=REFERENCE) == len("from a file")


@pytest.mark.parametrize("name", ["PRIVATE", "../outside", "/etc/passwd", "", ".", "a\0b", 3, None])
async def test_others_are_not_to_be_had(tmp_path: Path, name: object) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").write_text("outside")
    async with scene_of(deeds.app.tasks, secrets=str(tmp_path / "folder")) as scene:
        attempt = Attempt("echo", {"value": {"$secret": name}})
        outcome = await scene.execute(attempt)
    assert outcome.failure is not None
    assert outcome.failure.type == "SecretMissing"


def test_a_reference_passes_where_a_text_is_expected_and_a_wrong_one_does_not() -> None:
    check_spec("command", {"argv": ["env"], "env": {"TOKEN": REFERENCE}})
    with pytest.raises(InvalidInput, match="not the name of a secret"):
        check_spec("command", {"argv": ["env"], "env": {"TOKEN": {"$secret": "../x"}}})


async def test_arguments_of_a_task_may_refer_to_them(tmp_path: Path) -> None:
    assert json.loads(deeds.length.encode_args({"value": REFERENCE})) == {"value": REFERENCE}
    with pytest.raises(InvalidInput):
        deeds.length.encode_args({"value": {"$secrets": "TOKEN"}})
