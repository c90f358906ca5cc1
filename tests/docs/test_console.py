"""The commands that pages show exist, with the options that they show."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pages import EXAMPLE_PAGES, PAGES, name_of

from mainspring.cli.main import cli

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDS = {"|", "&&", ";", ">", "&", "||"}
MODULE = re.compile(r"python -m ((?:bench|examples)[\w.]*)")
PROGRAMS = {"mainspring", ".venv/bin/mainspring"}
SHARED = {"--help", "-h", "--version"}


def commands(text: str) -> Iterator[list[str]]:
    """The words after `mainspring` of each command in the console blocks of a page."""
    for block in BLOCK.findall(text):
        for line in re.findall(r"^\$ ((?:.*\\\n)*.*)", block, re.MULTILINE):
            try:
                words = shlex.split(line.replace("\\\n", " "), comments=True)
            except ValueError:
                continue  # It goes on in further lines, for a shell.
            for start, word in enumerate(words):
                if word in PROGRAMS and (start == 0 or words[start - 1] in ENDS or "=" in words[start - 1]):
                    end = next((n for n in range(start, len(words)) if words[n] in ENDS), len(words))
                    yield words[start + 1 : end]


def check(words: list[str]) -> None:
    """Find the command, and each option up to `--`."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | SHARED
    given = words[: words.index("--")] if "--" in words else words
    unknown = [word for word in given if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    assert unknown == [], f"{command.name} has no {unknown}"


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLE_PAGES], ids=name_of)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    for words in commands(text):
        check(words)
    modules = {name for block in BLOCK.findall(text) for name in MODULE.findall(block)}
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_commands_are_found_in_pages() -> None:
    found = [words for page in PAGES for words in commands(page.read_text())]
    assert len(found) > 60
    with pytest.raises(AssertionError, match="has no"):
        check(["job", "list", "--no-such-option"])
    with pytest.raises(AssertionError, match="there is no command"):
        check(["jobs"])
