"""Commands as one text: words as a shell would split them, and no shell syntax that would silently be arguments."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.runs.alerts import check_alert
from mainspring.core.tasks.commands import find_shell_syntax, split_command
from mainspring.core.tasks.specs import check_spec
from mainspring.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ("a | b > c", "|"),
        ("a>c", ">"),
        ("a 2>&1", ">&"),
        ("sort < in", "<"),
        ("cd x && y", "&&"),
        ("x || y", "||"),
        ("x &", "&"),
        ("a; b", ";"),
        ("(a)", "("),
        ("a\nb", "a line break"),
        ("echo $(date)", "$("),
        ('echo "today is $(date)"', "$("),
        ("echo `date`", "`"),
        ('echo "`date`"', "`"),
        ("echo $HOME/x", "$HOME/x"),
        ('echo "$HOME"', "$HOME"),
        ("echo ${HOME}", "${HOME}"),
        ("rm -f /tmp/*.log", "/tmp/*.log"),
        ("rm -f log-??", "log-??"),
        ("rm -f log[0-9]", "log[0-9]"),
        ("rm -rf ~/cache", "~"),
        ("ls ~postgres", "~postgres"),
        ("backup.sh # nightly", "#"),
        ("curl http://host/?a=1&b=2", "&"),
        ("PATH=/opt/bin backup.sh", "PATH="),
    ],
)
def test_what_only_a_shell_could_do_is_refused(text: str, syntax: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        split_command(text)
    assert f"needs a shell for {syntax}, and no shell runs it" in caught.value.problem
    remedy = caught.value.remedy
    assert split_command(remedy.removeprefix("write ") if "env" in remedy else remedy.partition("run it: ")[2])


@pytest.mark.parametrize(
    "text",
    [
        "find . -name '*.tmp' -delete",
        "find . -name \\*.tmp -delete",
        "grep 'a|b' 'x > y'",
        'grep "a|b;c&d<e>f" "(*)"',
        "awk '{print $1}' /etc/passwd",
        "grep end$ file",
        "sh -c 'a | b > $(date)'",
        "curl 'http://host/?a=1&b=2'",
        "curl http://host/?a=1",
        "git show HEAD~1",
        "convert x.png -fill '#fff' issue#12",
        "make DEBUG=1",
        "python -c 'print([1])'",
        "echo a\\;b \\> \\| \\& \\$HOME",
        "echo 'it'\\''s'",
    ],
)
def test_what_is_quoted_or_means_nothing_to_a_shell_passes_as_the_shell_itself_would_pass_it(text: str) -> None:
    words = split_command(text)
    shown = subprocess.run(
        ["sh", "-c", f"set -f; for word in {text}; do printf '%s\\0' \"$word\"; done"], capture_output=True, check=True
    )
    assert words == shown.stdout.decode().split("\0")[:-1]


def test_lines_may_be_continued() -> None:
    assert split_command("curl \\\n  -s 'a\\\nb'") == ["curl", "-s", "a\\\nb"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_words_that_were_quoted_are_never_refused(words: list[str]) -> None:
    text = shlex.join(words)
    assert not find_shell_syntax(text)
    assert split_command(text) == words


def test_every_text_that_is_a_command_is_checked() -> None:
    with pytest.raises(InvalidInput, match=r"args\.argv: 'a \| b' needs a shell"):
        check_spec("command", {"argv": "a | b"})
    check_spec("command", {"argv": "a | b", "shell": True})
    check_spec("command", {"argv": ["grep", "a | b"]})
    with pytest.raises(InvalidInput, match=r"alert: 'a \| b' needs a shell"):
        check_alert("$a | b")
    with pytest.raises(InvalidInput, match="no closing quotation"):
        check_alert("$notify 'all")
