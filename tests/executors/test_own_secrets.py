"""What the worker itself was configured with does not turn up in what is stored of runs."""

from __future__ import annotations

from typing import Any

import deeds
import pytest
from scene import Attempt, crowd_of, until

from mainspring.process.secrets import masker, secrets_of
from mainspring.settings import Settings

STORE = "postgresql://mainspring:pass-w%2Frd@db.example/mainspring"
SETTINGS = Settings(store=STORE, secret="signing-key-0123456789-abcdefghijklm", broker="redis://:redis-word@host")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot connect to {STORE}", "cannot connect to postgresql://mainspring***db.example/mainspring"),
        ("password pass-w%2Frd refused", "password *** refused"),
        ("password pass-w/rd refused", "password *** refused"),
        ("token by signing-key-0123456789-abcdefghijklm", "token by ***"),
        ("redis://:redis-word@host", "redis://***host"),
        ("mainspring is on db.example", "mainspring is on db.example"),
    ],
)
def test_each_of_them_is_masked_in_texts(text: str, shown: str) -> None:
    assert masker(secrets_of(SETTINGS))(text) == shown


def test_a_password_that_is_a_common_word_does_not_mask_that_word() -> None:
    mask = masker(secrets_of(Settings(store="postgresql://mainspring:mainspring@host/mainspring")))
    assert mask("mainspring worker") == "mainspring worker"
    assert mask("postgresql://mainspring:mainspring@host") == "postgresql://mainspring***host"


@pytest.mark.parametrize("task", ["leak", "leak_in_process"])
async def test_errors_output_and_progress_of_runs_are_masked(task: str) -> None:
    async with crowd_of(deeds.app.tasks) as crowd:
        crowd.runner.mask = masker(secrets_of(SETTINGS))
        attempt: Any = Attempt(task, {"secret": STORE})
        report = await crowd.run(attempt)
    assert report.error is not None
    assert "ValueError" in report.error
    stored = repr([report, list(crowd.runner.lines), list(crowd.runner.marks)])
    assert "got postgresql://mainspring***db.example" in stored
    assert "pass-w" not in stored


async def test_so_are_arguments_that_the_code_does_not_take() -> None:
    async with crowd_of(deeds.app.tasks) as crowd:
        runner = crowd.runner
        runner.mask = masker(secrets_of(SETTINGS))
        runner.notices = {"leak": deeds.app.tasks["leak"].notice()}
        runner.begin([Attempt("leak", {STORE: "x"})])
        await until(lambda: runner.unfit)
        (_, outcome) = runner.unfit[0]
    assert outcome.failure is not None
    assert "postgresql://mainspring***db.example" in outcome.failure.message
    assert "pass-w" not in repr(outcome)


async def test_so_is_the_output_of_commands() -> None:
    async with crowd_of() as crowd:
        crowd.runner.mask = masker(secrets_of(SETTINGS))
        report = await crowd.run(Attempt("command", {"argv": ["sh", "-c", f"echo {STORE}; echo {STORE} >&2; exit 3"]}))
        assert crowd.said("stdout") == ["postgresql://mainspring***db.example/mainspring"]
    assert "pass-w" not in repr(report)
