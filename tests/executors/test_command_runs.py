"""Commands: what they are given, what their end means, and what is kept of what they write."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scene import LEVELS, Attempt, Scene, scene_of, until

from mainspring.core.tasks.isolation import format_size
from mainspring.core.tasks.specs import check_spec
from mainspring.errors import InvalidInput
from mainspring.executors.programs.output import LINE_COST

_OF_THE_C_LIBRARY = 0b11 << 31
"""Signals 32 and 33, which it keeps to itself, and which no program can set."""


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of() as scene:
        yield scene


class TestWords:
    async def test_a_text_is_split_as_a_shell_would_and_no_shell_runs_it(self, scene: Scene) -> None:
        _, attempt = await scene.command(r"""printf '%s\n' 'one word' "a;b" '$HOME' \; '`id`' '&' \>x""")
        assert attempt.said() == ["one word", "a;b", "$HOME", ";", "`id`", "&", ">x"]

    async def test_a_shell_is_refused_unless_the_worker_allows_it(self, scene: Scene) -> None:
        outcome, _ = await scene.command("echo $((1 + 1))", shell=True)
        assert outcome.kind == "failed"
        assert outcome.final
        assert "allow_shell" in outcome.failure.message
        async with scene_of(allow_shell=True) as permissive:
            outcome, attempt = await permissive.command("echo $((1 + 1))", shell=True)
        assert attempt.said() == ["2"]

    @pytest.mark.parametrize(
        "spec",
        [
            {},
            {"argv": []},
            {"argv": ""},
            {"argv": ["a\0b"]},
            {"argv": ["true"], "shell": True},
            {"argv": ["true"], "evn": {}},
            {"argv": ["true"], "env": {"A=B": "c"}},
            {"argv": ["true"], "success": ["0"]},
        ],
    )
    def test_what_can_be_no_command_is_refused_when_it_is_defined(self, spec: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="are no arguments of command"):
            check_spec("command", spec)

    @pytest.mark.parametrize("argv", [[], ["a\0b"], "'"])
    async def test_what_is_no_command_after_all_is_not_retried(self, scene: Scene, argv: Any) -> None:
        outcome = await scene.execute(Attempt("command", {"argv": argv}))
        assert outcome.failure is not None
        assert outcome.failure.type == "CommandNotStarted"
        assert outcome.final

    @pytest.mark.parametrize("level", ["none", "limits"])
    @pytest.mark.parametrize(
        ("argv", "cwd", "message"),
        [
            (["no-such-program", "x"], None, "no-such-program: No such file or directory"),
            (["/etc/passwd"], None, "/etc/passwd: Permission denied"),
            (["true"], "/no/such/folder", "/no/such/folder: No such file or directory"),
        ],
    )
    async def test_what_cannot_be_started_says_what_is_missing_and_writes_nothing(
        self, scene: Scene, level: str, argv: list[str], cwd: str | None, message: str
    ) -> None:
        outcome, attempt = await scene.command(argv, {"isolation": level}, cwd=cwd)
        assert (outcome.failure.type, outcome.failure.message) == ("CommandNotStarted", message)
        assert outcome.final, "a retry would find it so again"
        assert attempt.lines == []

    @pytest.mark.parametrize(
        ("argv", "cwd", "message"),
        [
            (["no-such-program"], None, "no-such-program: No such file or directory"),
            (["/usr/bin"], None, "/usr/bin: Permission denied"),
            (["true"], "/no/such/folder", "/no/such/folder: No such file or directory"),
        ],
    )
    async def test_nor_is_what_cannot_be_started_in_a_sandbox_retried(
        self, scene: Scene, argv: list[str], cwd: str | None, message: str
    ) -> None:
        outcome, _ = await scene.command(argv, {"isolation": "sandbox"}, cwd=cwd, success=[0, 1])
        assert (outcome.failure.type, outcome.failure.message) == ("CommandNotStarted", message)
        assert outcome.final

    async def test_a_program_in_a_sandbox_that_fails_with_the_same_words_is_retried(self, scene: Scene) -> None:
        words = "bwrap: execvp no-such-program: No such file or directory"
        argv = ["sh", "-c", f"echo '{words}' >&2; exit 1"]
        outcome, _ = await scene.command(argv, {"isolation": "sandbox"})
        assert (outcome.failure.type, outcome.final) == ("CommandFailed", False)
        assert outcome.failure.message == f"the command exited with code 1: {words}"


class TestSurroundings:
    async def test_the_environment_is_what_is_named_and_little_else(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAINSPRING_STORE", "postgresql://user:password@host/db")
        _, attempt = await scene.command(["env"], env={"GIVEN": "1"})
        names = {line.partition("=")[0] for line in attempt.said()}
        allowed = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "GIVEN"}
        assert {"PATH", "GIVEN", "MAINSPRING_RUN_ID", "MAINSPRING_ATTEMPT"} <= names
        assert names - allowed == {"MAINSPRING_RUN_ID", "MAINSPRING_ATTEMPT", "MAINSPRING_INDEX"}

    @pytest.mark.parametrize(
        ("given", "seen"), [("text\nno end", ["text", "no end"]), ({"n": [1]}, ['{"n":[1]}']), (None, [])]
    )
    async def test_its_input_comes_from_the_payload(self, scene: Scene, given: object, seen: list[str]) -> None:
        _, attempt = await scene.command(["cat"], stdin=given)
        assert attempt.said() == seen

    async def test_a_large_input_arrives_whole_even_if_it_is_not_read(self, scene: Scene) -> None:
        outcome, attempt = await scene.command(["wc", "-c"], stdin="x" * 900_000)
        assert attempt.said() == ["900000"]
        outcome, _ = await scene.command(["true"], stdin="x" * 900_000)
        assert outcome.kind == "succeeded"

    async def test_it_runs_in_the_folder_that_is_named(self, scene: Scene) -> None:
        _, attempt = await scene.command(["pwd"], cwd="/usr")
        assert attempt.said() == ["/usr"]

    async def test_a_program_is_looked_for_in_its_own_search_path(self, scene: Scene, tmp_path: Path) -> None:
        for folder, mode in (("refused", 0o644), ("found", 0o755), ("late", 0o755)):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "greet").write_text(f"#!/bin/sh\necho {folder}\n")
            (tmp_path / folder / "greet").chmod(mode)
        path = ":".join(str(tmp_path / folder) for folder in ("absent", "refused", "found", "late"))
        _, attempt = await scene.command(["greet"], env={"PATH": path})
        assert attempt.said() == ["found"]
        outcome, _ = await scene.command(["greet"], env={"PATH": str(tmp_path / "refused")})
        assert outcome.failure is not None
        assert outcome.failure.message == "greet: Permission denied"
        outcome, _ = await scene.command(["greet"], env={"PATH": str(tmp_path)}, cwd=str(tmp_path / "found"))
        assert outcome.failure is not None
        assert outcome.failure.message == "greet: No such file or directory"

    async def test_it_has_nothing_open_but_its_input_and_output(self, scene: Scene) -> None:
        _, attempt = await scene.command(["ls", "/proc/self/fd"])
        assert attempt.said() == ["0", "1", "2", "3"], "the last is the folder that ls reads"

    async def test_it_does_not_ignore_signals_that_the_worker_ignores(self) -> None:
        before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # As a shell does to what it starts in the background.
        try:
            async with scene_of() as scene:
                _, attempt = await scene.command(["grep", "SigIgn", "/proc/self/status"])
        finally:
            signal.signal(signal.SIGQUIT, before)
        (line,) = attempt.said()
        ignored = int(line.split()[1], 16) & ~_OF_THE_C_LIBRARY
        assert ignored == 0


class TestExitCodes:
    @pytest.mark.parametrize(
        ("code", "kind", "final"),
        [(0, "succeeded", False), (3, "succeeded", False), (4, "failed", True), (5, "failed", False)],
    )
    async def test_they_mean_what_the_job_says(self, scene: Scene, code: int, kind: str, final: bool) -> None:
        outcome, _ = await scene.command(["sh", "-c", f"exit {code}"], success=[0, 3], final=[4])
        assert (outcome.kind, outcome.final) == (kind, final)

    @pytest.mark.parametrize(("code", "final"), [(75, False), (1, True)])
    async def test_only_some_may_be_worth_a_retry(self, scene: Scene, code: int, final: bool) -> None:
        outcome, _ = await scene.command(["sh", "-c", f"exit {code}"], retried=[75])
        assert outcome.final is final

    async def test_what_it_complained_of_last_is_part_of_the_reason(self, scene: Scene) -> None:
        script = "echo one >&2; echo 'no such customer' >&2; echo; echo done; exit 4"
        outcome, _ = await scene.command(["sh", "-c", script])
        assert outcome.failure.message == "the command exited with code 4: no such customer"
        outcome, _ = await scene.command(["sh", "-c", "head -c 400 /dev/zero | tr '\\0' x >&2; exit 4"])
        assert outcome.failure.message == "the command exited with code 4", "a long line is in the log"

    async def test_a_signal_is_named_and_can_be_mapped(self, scene: Scene) -> None:
        outcome, _ = await scene.command(["sh", "-c", "kill -PIPE $$"])
        assert outcome.failure.message == "the command was killed by SIGPIPE"
        outcome, _ = await scene.command(["sh", "-c", "kill -PIPE $$"], success=[0, -13])
        assert outcome.kind == "succeeded"


class TestResults:
    async def test_the_last_line_can_be_the_result(self, scene: Scene) -> None:
        script = """echo working; echo '{"rows": 3}'; echo; echo done >&2"""
        outcome, _ = await scene.command(["sh", "-c", script], result="line")
        assert json.loads(outcome.result) == {"rows": 3}

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_file_can_be_the_result(self, scene: Scene, level: str) -> None:
        script = """echo '[1, 2]' >"$MAINSPRING_RESULT" """
        outcome, attempt = await scene.command(["sh", "-c", script], {"isolation": level}, result="file")
        assert outcome.result == "[1,2]", attempt.lines

    async def test_a_result_file_cannot_show_what_the_program_may_not_read(self, scene: Scene) -> None:
        script = """ln -s /etc/shadow "$MAINSPRING_RESULT" """
        outcome, _ = await scene.command(["sh", "-c", script], result="file")
        assert (outcome.kind, outcome.result) == ("failed", None)

    @pytest.mark.parametrize("script", ["echo not json", "true"])
    async def test_a_result_that_is_none_is_a_failure_that_stays(self, scene: Scene, script: str) -> None:
        outcome, _ = await scene.command(["sh", "-c", script], result="line")
        assert (outcome.kind, outcome.final) == ("failed", True)
        assert "last line of output is no JSON result" in outcome.failure.message


class TestOutput:
    async def test_lines_can_be_read_while_it_runs(self, scene: Scene) -> None:
        attempt = Attempt("command", {"argv": ["sh", "-c", "echo first; exec sleep 60"]})
        task = scene.begin(attempt)
        await until(lambda: attempt.said() == ["first"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_of_too_much_the_first_and_the_last_part_are_kept_and_the_cut_is_marked(self) -> None:
        async with scene_of(output_limit=4_000) as scene:
            _, attempt = await scene.command(["seq", "100000", "199999"])
        lines = [text for _, _, text in attempt.lines]
        mark = next(index for index, line in enumerate(lines) if line.endswith("of output cut ..."))
        assert lines[:mark][:3] == ["100000", "100001", "100002"]
        assert lines[-2:] == ["199998", "199999"]
        kept = sum(len(line) + 1 for line in lines[:mark] + lines[mark + 1 :])
        assert kept + LINE_COST * (len(lines) - 1) == pytest.approx(4_000, abs=120)
        # The last line before the cut may have lost its end.
        assert lines[mark] in [f"... {format_size(700_000 - kept + end)} of output cut ..." for end in (0, 1)]

    async def test_of_many_tiny_lines_not_more_are_kept_than_of_others(self, scene: Scene) -> None:
        async with asyncio.timeout(20):
            outcome, attempt = await scene.command(["sh", "-c", "yes | head -c 20000000"])
        assert outcome.kind == "succeeded"
        assert len(attempt.lines) < 1_048_576 / LINE_COST + 10

    async def test_a_flood_of_a_gibibyte_does_no_harm(self, scene: Scene) -> None:
        other = asyncio.create_task(scene.command(["echo", "unharmed"]))
        outcome, attempt = await scene.command(["head", "-c", "1G", "/dev/zero"])
        assert outcome.kind == "succeeded"
        assert sum(len(text) for _, _, text in attempt.lines) < 1_100_000
        assert (await other)[1].said() == ["unharmed"]

    async def test_more_than_its_limit_ends_it(self, scene: Scene) -> None:
        words = {"isolation": _limits(output="100kB")}
        outcome, _ = await scene.command(["yes"], words)
        assert outcome.failure.message == "it wrote more than its limit of 100 kB"

    async def test_it_waits_while_the_store_is_behind(self, scene: Scene) -> None:
        attempt = Attempt("command", {"argv": ["seq", "1000000"]})
        is_behind = True
        attempt.behind = lambda: is_behind
        task = scene.begin(attempt)
        await until(lambda: attempt.lines)
        before = len(attempt.lines)
        await asyncio.sleep(0.05)
        assert len(attempt.lines) == before
        is_behind = False
        assert (await task).kind == "succeeded"


def _limits(**words: Any) -> Any:
    from mainspring.core.tasks.isolation import Isolation

    return Isolation("limits", **words)
