"""The table of options drives the SDK's keywords, the flags of commands and the fields of the API."""

from __future__ import annotations

from typing import get_type_hints

import click
import msgspec
import pytest

from mainspring.api.schemas.bodies import JobBody, RunBody
from mainspring.cli.jobs.define import add, edit
from mainspring.cli.runs.submit import submit
from mainspring.core.model import JobPolicy, RunOptions
from mainspring.operations.jobs.options import (
    JOB,
    OPTIONS,
    RUN,
    TASK,
    JobWords,
    Option,
    RunWords,
    TaskWords,
    options_of,
)

ELSEWHERE = {"retry": {"retries", "retry_policy"}, "at": {"run_at"}}
"""Options that have other flags, or another field."""
NOTES = {"context", "said", "give_up_at", "unfit_since", "home_region", "moved_at", "moved_because"}
"""Fields of `RunOptions` that hooks and workers write, not authors."""


@pytest.mark.parametrize(("keywords", "what"), [(TaskWords, TASK), (RunWords, RUN), (JobWords, JOB)])
def test_type_checkers_see_the_keywords_of_the_table(keywords: type, what: str) -> None:
    assert set(get_type_hints(keywords)) == {option.name for option in options_of(what)}


def test_everything_that_is_stored_has_a_row() -> None:
    stored = {*RunOptions.__struct_fields__, *JobPolicy.__struct_fields__} - NOTES
    assert stored <= OPTIONS.keys()


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_the_default_of_an_option_is_what_the_model_stores(option: Option) -> None:
    for struct in (RunOptions(), JobPolicy()):
        if option.name in struct.__struct_fields__:
            assert option.default == getattr(struct, option.name)


@pytest.mark.parametrize("command", [add, edit, submit], ids=lambda command: command.name)
def test_commands_have_a_flag_for_every_option(command: click.Command) -> None:
    flags = {param.name for param in command.params}
    for option in options_of(RUN if command is submit else JOB):
        if option.kind.json is not None:
            assert ELSEWHERE.get(option.name, {option.name}) & flags or option.name in flags, option.name


@pytest.mark.parametrize(("body", "what"), [(JobBody, JOB), (RunBody, RUN)])
def test_the_api_has_a_field_for_every_option(body: type[msgspec.Struct], what: str) -> None:
    for option in options_of(what):
        if option.kind.json is not None and option.name != "idempotency_key":  # A header over HTTP.
            assert {option.name, *ELSEWHERE.get(option.name, ())} & set(body.__struct_fields__), option.name


def test_fields_of_the_api_are_checked_by_the_kind_of_the_option() -> None:
    with pytest.raises(msgspec.ValidationError, match="priority"):
        msgspec.convert({"task": "t", "priority": 11}, RunBody)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"task": "t", "misfire": "once"}, RunBody)
