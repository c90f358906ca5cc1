"""`mainspring run` and `workers`: submitting, the story of a run, why it is not running, waiting, acting on many."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli_work import FILMS, Served, Terminal
from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import a_worker, another_try, failure, success
from mainspring.core.instants import DAY, HOUR, MINUTE
from mainspring.core.model import Claim, LogLine, NewRun, Progress, Report
from mainspring.process.ids import IdSource
from mainspring.store import Store

TRACEBACK = (
    '{"type":"ValueError","message":"no","traceback":"Traceback (most recent call last):\\n  File x\\nValueError: no"}'
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    yield server
    server.close()


@pytest.fixture(params=["store", "server"])
def cli(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Terminal]:
    """Commands against a database, and the same against a server."""
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    if request.param == "server":
        terminal.connect(request.getfixturevalue("served"))
    yield terminal
    terminal.close()


def submit(cli: Terminal, *options: str, task: str = "encode") -> str:
    """The id of a new run."""
    run_id: str = cli.json("run", "submit", task, *options)["run_id"]
    return run_id


def fail(claim: Claim) -> Report:
    return Report(
        claim.run_id, claim.token, "failed", "failed", "ValueError: no; all retries are used up", error=TRACEBACK
    )


def why(cli: Terminal, run_id: str) -> list[str]:
    sentences: list[str] = cli.json("run", "show", run_id)["why"]
    return sentences


class TestSubmit:
    def test_the_id_alone_is_the_answer(self, cli: Terminal) -> None:
        answer = cli("run", "submit", "encode", "--arg", "video=v1")
        (run,) = cli.json("run", "list")
        assert (answer.code, answer.out) == (0, f"{run['run_id']}\n")
        assert "Submitted encode." in answer.err
        assert (run["task"], run["state"], run["args"]) == ("encode", "pending", {"video": "v1"})

    def test_every_option_is_stored(self, cli: Terminal) -> None:
        first = submit(cli)
        run = cli.json(
            *("run", "submit", "encode", "--priority", "2", "--delay", "1h", "--key", "k", "--queue", "films"),
            *("--region", "eu", "--tag", "x", "--tag", "y", "--after", first[-8:], "--expires", "2h"),
        )
        assert (run["priority"], run["key"], run["queue"], run["region"]) == (2, "k", "films", "eu")
        assert (run["tags"], run["state"]) == (["x", "y"], "blocked")
        assert run["due_at"] > run["created_at"]
        assert run["expires_at"] > run["due_at"]

    def test_a_command_may_be_submitted(self, cli: Terminal) -> None:
        assert cli.json("run", "submit", "--command", "echo 'a b'")["args"] == {"argv": ["echo", "a b"]}

    def test_the_same_key_is_the_same_run(self, cli: Terminal) -> None:
        assert submit(cli, "--idempotency-key", "k") == submit(cli, "--idempotency-key", "k")
        answer = cli("run", "submit", "other", "--idempotency-key", "k")
        assert (answer.code, "was used for another request" in answer.err) == (1, True)

    def test_an_app_gives_its_options_and_checks_arguments(self, cli: Terminal) -> None:
        films = cli.write("films.py", FILMS)
        run = cli.json("run", "submit", "encode", "--app", films, "--arg", "video=v1")
        assert run["priority"] == 1
        answer = cli("run", "submit", "encode", "--app", films, "--arg", "vidoe=v1")
        assert answer.code == 2
        assert "vidoe" in answer.err
        assert len(cli.json("run", "list")) == 1

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--priority", "0"), "priority: 0 is not a priority"),
            (("--delay", "soon"), "delay: 'soon' is not a duration"),
            (("--at", "2020-01-01T00:00:00Z"), "at: '2020-01-01T00:00:00Z' is not in the future"),
            (("--at", "2199-01-01T00:00:00Z", "--delay", "1h"), "is given together with"),
            (("--after", "zzz"), "there is no run 'zzz'"),
            (("--when", "any_finished"), "has no use without after"),
            (("--arg", "=3"), "has no name"),
            (("--tag", ""), "printable"),
        ],
    )
    def test_bad_input_is_named_and_nothing_is_stored(
        self, cli: Terminal, options: tuple[str, ...], words: str
    ) -> None:
        answer = cli("run", "submit", "encode", *options)
        assert answer.code in (1, 2)
        assert answer.out == ""
        assert words in answer.err
        assert "Traceback" not in answer.err
        cli("db", "migrate")
        assert cli.json("run", "list") == []

    @pytest.mark.parametrize("cli", ["store"], indirect=True)
    def test_arguments_that_are_too_large_are_refused(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_PAYLOAD_LIMIT", "100")
        answer = cli("run", "submit", "encode", "--arg", f"text={'x' * 200}")
        assert answer.code == 2
        assert "payload_limit" in answer.err

    def test_nothing_to_do_is_refused(self, cli: Terminal) -> None:
        assert "Say what: a task, --command" in cli("run", "submit").err


class TestList:
    def test_no_runs_is_an_empty_list(self, cli: Terminal) -> None:
        cli("db", "migrate")
        assert cli.json("run", "list") == []
        assert cli("run", "list").out == ""

    def test_runs_are_listed_newest_first_and_filtered(self, cli: Terminal) -> None:
        old, new = submit(cli, "--tag", "x"), submit(cli, task="other")
        cli.execute(failure)
        assert [run["run_id"] for run in cli.json("run", "list")] == [new, old]
        for options, expected in (
            (("--state", "failed"), [old]),
            (("--state", "failed", "--state", "pending"), [new, old]),
            (("--task", "other"), [new]),
            (("--tag", "x"), [old]),
            (("--job", "nobody"), []),
            (("--limit", "1"), [new]),
        ):
            assert [run["run_id"] for run in cli.json("run", "list", *options)] == expected

    def test_waiting_and_running_are_distinguished(self, cli: Terminal) -> None:
        submit(cli)
        cli.execute(fail)
        header, row = cli("run", "list").out.splitlines()
        assert header.split() == ["RUN", "STATE", "WHAT", "DUE", "WAITED", "TOOK", "TRIES", "REASON"]
        assert "failed" in row
        assert "ValueError: no" in row
        assert len(row) <= 100

    def test_a_run_in_json_has_the_promised_names(self, cli: Terminal) -> None:
        submit(cli)
        (run,) = cli.json("run", "list")
        promised = ("run_id", "job", "task", "state", "reason", "fire_at", "due_at", "attempt", "started_at")
        assert {*promised, "finished_at", "worker"} <= run.keys()
        assert run["due_at"].endswith("Z")

    def test_an_unknown_state_is_refused_with_those_there_are(self, cli: Terminal) -> None:
        answer = cli("run", "list", "--state", "odd")
        assert (answer.code, "'succeeded'" in answer.err) == (2, True)


class TestShow:
    def test_a_run_is_shown_attempt_by_attempt(self, cli: Terminal) -> None:
        run_id = submit(cli, "--arg", "video=v1")
        cli.execute(lambda claim: another_try(claim, reason="ValueError: no; retry 1 of 3"))
        cli.execute(fail)
        reported = cli.json("run", "show", run_id)
        assert [(each["attempt"], each["outcome"], each["worker"]) for each in reported["attempts"]] == [
            (1, "failed", "w1"),
            (2, "failed", "w1"),
        ]
        assert (reported["state"], reported["reason"]) == ("failed", "ValueError: no; all retries are used up")
        assert reported["error"]["message"] == "no"
        answer = cli("run", "show", run_id)
        assert "retry 1 of 3" in answer.out
        assert "Traceback (most recent call last):" in answer.out
        assert f"mainspring run retry {run_id[-8:]}" in answer.err

    @pytest.mark.parametrize("length", [60, 61])
    def test_a_long_reason_of_the_run_is_said_once(self, cli: Terminal, length: int) -> None:
        reason = "ValueError: ".ljust(length, "x")
        run_id = submit(cli)
        cli.execute(lambda claim: another_try(claim, reason=f"{reason}; retry 1 of 3"))
        cli.execute(lambda claim: Report(claim.run_id, claim.token, "failed", "failed", reason))
        shown = "".join(cli("run", "show", run_id).out.split())
        spaceless = reason.replace(" ", "")
        is_long = length > 60
        assert shown.count(spaceless) == (2 if is_long else 3)  # The first attempt's reason is another one.
        assert ("seeabove" in shown) is is_long
        reasons = [each["reason"] for each in cli.json("run", "show", run_id)["attempts"]]
        assert reasons == [f"{reason}; retry 1 of 3", reason]  # Programs get all of them.

    def test_of_a_run_that_was_removed_its_firing_is_shown(self, cli: Terminal) -> None:
        cli("job", "add", "nightly", "--task", "encode", "--manual")
        run_id = cli.json("job", "trigger", "nightly")["run_id"]
        cli.execute(fail)
        cli.store(lambda store: store.clean(0, 100 * DAY, DAY, 1_000))
        answer = cli("run", "show", run_id)
        assert answer.code == 1
        assert f"run {run_id} is no longer kept: the firing of job nightly for" in answer.err
        assert "is failed (ValueError: no; all retries are used up)" in answer.err
        assert "there is no run" in cli("run", "show", f"{run_id[:-1]}~").err

    def test_a_success_shows_its_result(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.execute(lambda claim: success(claim, '"v1@4K"'))
        assert cli.json("run", "show", run_id)["result"] == "v1@4K"
        assert '"v1@4K"' in cli("run", "show", run_id).out

    def test_a_running_one_shows_how_far_it_is(self, cli: Terminal) -> None:
        run_id = submit(cli)

        async def begin(store: Store) -> None:
            (claim,) = await store.claim(a_worker("w1"), 1, MINUTE, "strict")
            await store.record([], [Progress(claim.run_id, claim.token, 0.4, "frame 40")])

        cli.store(begin)
        shown = cli("run", "show", run_id).out
        assert "40% frame 40" in shown
        assert "Why" not in shown
        assert why(cli, run_id) == []

    def test_the_attempt_that_runs_counts_as_a_try(self, cli: Terminal) -> None:
        submit(cli)
        cli.execute(lambda claim: another_try(claim, reason="ValueError: no; retry 1 of 3"))

        async def begin(store: Store) -> None:
            await store.claim(a_worker("w1"), 1, MINUTE, "strict")

        cli.store(begin)
        header, row = cli("run", "list").out.splitlines()
        assert row[header.index("TRIES") :].split()[0] == "2"

    def test_an_id_may_be_abbreviated_from_either_end(self, cli: Terminal) -> None:
        run_id = submit(cli)
        for typed in (run_id, run_id[:20], run_id[-6:], run_id.upper()):
            assert cli.json("run", "show", typed)["run_id"] == run_id

    def test_an_abbreviation_of_several_names_them(self, cli: Terminal) -> None:
        runs = [submit(cli), submit(cli)]
        answer = cli("run", "show", runs[0][:4])
        assert answer.code == 2
        assert "fits several runs" in answer.err
        assert all(run in answer.err for run in runs)

    @pytest.mark.parametrize("typed", ["zzzz", "", "%", "ü"])
    def test_an_unknown_id_is_reported(self, cli: Terminal, typed: str) -> None:
        submit(cli)
        answer = cli("run", "show", typed)
        assert (answer.code, f"there is no run '{typed}'" in answer.err) == (1, True)


class TestWhyItIsNotRunning:
    def test_no_worker_at_all(self, cli: Terminal) -> None:
        run_id = submit(cli)
        assert why(cli, run_id) == ["No worker is running. Start one with `mainspring worker APP`, or `mainspring up`."]
        shown = cli("run", "show", run_id).out
        assert "Why it is not running" in shown

    @pytest.mark.parametrize(
        ("options", "changes", "words"),
        [
            (("--queue", "films"), {}, "No worker serves queue films (served: default)"),
            (("--region", "eu"), {}, "serves region eu (served: default)"),
            ((), {"tasks": ("encoded",)}, "knows task encode. Start one with the app that declares it"),
            ((), {"concurrency": 1, "running": 1}, "The only worker that could take it is busy (1 of 1 slots)"),
            ((), {"state": "draining"}, "Every worker that could take it is stopping (w1)"),
            ((), {}, "A worker is free for it"),
            (("--delay", "1h"), {}, "It is not due until"),
        ],
    )
    def test_the_workers_there_are_do_not_take_it(
        self, cli: Terminal, options: tuple[str, ...], changes: dict[str, Any], words: str
    ) -> None:
        run_id = submit(cli, *options)
        cli.announce(**changes)
        (sentence,) = why(cli, run_id)
        assert words in sentence

    def test_it_waits_for_another_run(self, cli: Terminal) -> None:
        first = submit(cli)
        second = submit(cli, "--after", first)
        cli.announce()
        assert why(cli, second) == [f"It waits for run {first} (encode, pending)."]

    def test_it_stands_in_line(self, cli: Terminal) -> None:
        first, second = submit(cli, "--key", "k"), submit(cli, "--key", "k")
        cli.announce()
        assert why(cli, second) == [f"It stands in line for key k, behind run {first} (encode, pending)."]

    def test_its_gate_is_full(self, cli: Terminal) -> None:
        cli("job", "add", "a", "--manual", "--task", "encode", "--limit", "1")
        cli("job", "trigger", "a")
        cli.store(lambda store: store.claim(a_worker("w1"), 1, MINUTE, "strict"))
        second = cli.json("job", "trigger", "a")["run_id"]
        cli.store(lambda store: store.claim(a_worker("w1"), 1, MINUTE, "strict"))
        cli.announce()
        assert "is full: 1 of 1 are in." in why(cli, second)[0]

    def test_it_waits_for_its_retry(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.execute(lambda claim: another_try(claim, HOUR))
        cli.announce()
        assert why(cli, run_id)[0].startswith("Attempt 2 is not due until")

    def test_its_worker_is_silent(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.store(lambda store: store.claim(a_worker("w1"), 1, 1, "strict"))
        (sentence,) = why(cli, run_id)
        assert sentence.startswith("Worker w1 has let its claim run out")
        assert "What holds it up" in cli("run", "show", run_id).out


HOSTILE = "a\u202eb\u2066 \x1b]0;owned\x07 \x1b[2J \x9b2J \x9d0;x\x9c"
"""Titles, clearing, both in one character each, and text that is read from the wrong end."""
STEERING = "\x1b\x07\x9b\x9c\x9d\u202e\u2066"


class TestStrangers:
    """What others wrote never controls the terminal of its reader."""

    def fail(self, cli: Terminal) -> str:
        run_id = submit(cli, "--retries", "0")

        async def end(store: Store) -> None:
            (claim,) = await store.claim(a_worker("w1"), 1, MINUTE, "strict")
            lines = [LogLine(run_id, 1, store.now(), "stdout", text) for text in (HOSTILE, "\x1b[1;31mred\x1b[0m")]
            await store.record(lines, [])
            error = json.dumps({"type": "Broken", "message": HOSTILE, "traceback": f"Traceback\n  {HOSTILE}"})
            await store.report([msgspec.structs.replace(failure(claim, HOSTILE), error=error)])

        cli.store(end)
        return run_id

    @pytest.mark.parametrize("color", ["always", "never"])
    def test_it_is_shown_and_not_obeyed(self, cli: Terminal, color: str) -> None:
        run_id = self.fail(cli)
        for words in (("run", "logs", run_id), ("run", "show", run_id), ("run", "list"), ("run", "wait", run_id)):
            answer = cli(*words, "--color", color)
            text = re.sub("\x1b\\[[0-9;]*m", "", answer.out + answer.err)  # Our own colours.
            assert not set(text) & set(STEERING), words
            assert "\\x1b]0;owned\\x07" in text, words
            assert "a\\u202eb" in text, words

    def test_programs_get_it_exactly_and_a_terminal_that_shows_it_is_safe(self, cli: Terminal) -> None:
        run_id = self.fail(cli)
        for words in (("run", "logs", run_id), ("run", "show", run_id), ("run", "list"), ("run", "logs", run_id, "-f")):
            answer = cli(*words, "--json")
            assert not set(answer.out) & set(STEERING), words
        assert cli.json("run", "logs", run_id)[0]["text"] == HOSTILE
        assert cli.json("run", "show", run_id)["error"]["message"] == HOSTILE

    def test_colours_of_a_program_do_not_hide_its_words(self, cli: Terminal) -> None:
        run_id = self.fail(cli)
        assert cli("run", "logs", run_id).out.splitlines()[1].endswith(" red")

    def test_a_caller_that_asks_for_it_gets_it_raw(self, cli: Terminal) -> None:
        run_id = self.fail(cli)
        assert cli("run", "logs", run_id, "--raw").out == f"{HOSTILE}\n\x1b[1;31mred\x1b[0m\n"
        assert "exclude each other" in cli("run", "logs", run_id, "--raw", "--json").err

    def test_errors_are_harmless_too(self, cli: Terminal) -> None:
        for words in (("run", "show", HOSTILE), ("job", "show", HOSTILE)):
            for flags in ((), ("--json",)):
                assert not set(cli(*words, *flags).err) & set(STEERING)


class TestLogs:
    def write(self, cli: Terminal) -> str:
        run_id = submit(cli)

        async def begin(store: Store) -> None:
            (claim,) = await store.claim(a_worker("w1"), 1, MINUTE, "strict")
            lines = [
                LogLine(run_id, 1, store.now(), stream, text) for stream, text in (("stdout", "one"), ("stderr", "two"))
            ]
            await store.record(lines, [])
            await store.report([success(claim)])

        cli.store(begin)
        return run_id

    def test_what_a_run_wrote_is_printed(self, cli: Terminal) -> None:
        run_id = self.write(cli)
        for options in ((), ("--follow",)):
            answer = cli("run", "logs", run_id, *options)
            assert [line.split()[1] for line in answer.out.splitlines()] == ["one", "two"]
        assert f"mainspring run logs {run_id[-8:]}" in cli("run", "show", run_id).err

    def test_programs_get_a_list_or_a_line_each(self, cli: Terminal) -> None:
        run_id = self.write(cli)
        listed = cli.json("run", "logs", run_id)
        assert [(line["stream"], line["text"], line["attempt"]) for line in listed] == [
            ("stdout", "one", 1),
            ("stderr", "two", 1),
        ]
        assert len(cli("run", "logs", run_id, "-f", "--json").out.splitlines()) == 2

    def test_nothing_written_is_reported(self, cli: Terminal) -> None:
        run_id = submit(cli)
        assert "It wrote nothing" in cli("run", "logs", run_id).err
        assert cli.json("run", "logs", run_id) == []


class TestWait:
    def test_a_success_exits_0_and_prints_the_result(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.execute(lambda claim: success(claim, "42"))
        answer = cli("run", "wait", run_id)
        assert (answer.code, answer.out) == (0, "42\n")
        assert "encode succeeded" in answer.err
        assert cli.json("run", "wait", run_id)["result"] == 42

    def test_a_failure_exits_3(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.execute(fail)
        answer = cli("run", "wait", run_id)
        assert (answer.code, answer.out) == (3, "")
        assert "encode failed" in answer.err
        reported = cli("run", "wait", run_id, "--json")
        assert (reported.code, reported.json["state"]) == (3, "failed")

    def test_a_cancelled_one_exits_3(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli("run", "cancel", run_id)
        assert cli("run", "wait", run_id).code == 3

    def test_patience_ends_and_the_run_goes_on(self, cli: Terminal) -> None:
        run_id = submit(cli)
        answer = cli("run", "wait", run_id, "--timeout", "10ms")
        assert answer.code == 1
        assert f"run {run_id} is still pending after 0.01 s, and goes on" in answer.err
        assert cli("run", "wait", run_id, "--timeout", "x").code == 2


class TestActions:
    def test_runs_are_cancelled_by_id_with_a_reason(self, cli: Terminal) -> None:
        run_id = submit(cli)
        assert cli.json("run", "cancel", run_id[-8:], "--reason", "not needed") == [
            {"run_id": run_id, "state": "cancelled", "note": "", "new_run_id": None}
        ]
        assert cli.json("run", "show", run_id)["reason"] == "not needed"
        answer = cli("run", "cancel", run_id)
        assert (answer.code, "there is nothing to cancel" in answer.err) == (1, True)

    def test_a_running_one_is_asked_to_stop(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.store(lambda store: store.claim(a_worker("w1"), 1, MINUTE, "strict"))
        assert "asked to stop" in cli("run", "cancel", run_id).out
        assert "asked to stop" in why(cli, run_id)[0]

    def test_a_failed_one_is_run_again_as_a_new_run(self, cli: Terminal) -> None:
        run_id = submit(cli, "--arg", "video=v1", "--priority", "2")
        cli.execute(fail)
        (done,) = cli.json("run", "retry", run_id, "--reason", "fixed")
        again = cli.json("run", "show", done["new_run_id"])
        assert (again["retry_of"], again["args"], again["priority"]) == (run_id, {"video": "v1"}, 2)
        assert again["state"] == "pending"

    def test_one_that_cannot_be_helped_does_not_spoil_the_others(self, cli: Terminal) -> None:
        waiting, failed = submit(cli, "--delay", "1h"), submit(cli)
        cli.execute(fail)
        answer = cli("run", "retry", waiting, failed, "--json")
        assert answer.code == 1
        assert [each["state"] for each in answer.json] == ["refused", "retried"]
        assert "is pending" in answer.json[0]["note"]

    def test_a_filter_acts_on_all_that_it_fits(self, cli: Terminal) -> None:
        for _ in range(3):
            submit(cli, "--tag", "x")
        cli.execute(fail)
        submit(cli, "--delay", "1h")
        assert len(cli.json("run", "retry", "--tag", "x", "--dry-run")) == 3
        assert len(cli.json("run", "list")) == 4
        refusal = cli("run", "retry", "--state", "failed")
        assert (refusal.code, "Retry 3 runs? There is no terminal to ask" in refusal.err) == (2, True)
        assert len(cli.json("run", "retry", "--state", "failed", "--yes")) == 3
        assert len(cli.json("run", "cancel", "--task", "encode", "--yes")) == 4
        assert {run["state"] for run in cli.json("run", "list")} == {"failed", "cancelled"}

    def test_more_than_a_page_is_acted_on(self, cli: Terminal) -> None:
        ids = IdSource(SystemClock()).batch(1200)

        async def many(store: Store) -> None:
            await store.submit([NewRun(each, "encode", store.now(), store.now()) for each in ids])

        cli("db", "migrate")
        cli.store(many)
        assert len(cli.json("run", "cancel", "--task", "encode", "--dry-run")) == 1200

    def test_nothing_that_fits_is_no_error(self, cli: Terminal) -> None:
        cli("db", "migrate")
        assert cli.json("run", "retry", "--job", "a", "--yes") == []
        assert "Retry 0 runs: nothing was done." in cli("run", "retry", "--job", "a").err

    def test_ids_or_a_filter_but_not_both_nor_neither(self, cli: Terminal) -> None:
        run_id = submit(cli)
        assert "Name runs, or select them" in cli("run", "cancel").err
        answer = cli("run", "cancel", run_id, "--task", "encode")
        assert (answer.code, "not both" in answer.err) == (2, True)


class TestWorkers:
    def test_no_worker_is_an_empty_list_and_a_hint(self, cli: Terminal) -> None:
        cli("db", "migrate")
        assert cli.json("workers") == []
        assert "mainspring worker APP" in cli("workers").err

    def test_living_workers_are_listed_and_others_on_request(self, cli: Terminal) -> None:
        cli("db", "migrate")
        cli.store(lambda store: store.register(a_worker("old", host="h", pid=1)), ahead=-HOUR)
        cli.store(lambda store: store.register(a_worker("gone", host="h", pid=2, state="stopped")))
        cli.store(lambda store: store.register(a_worker("busy", host="h", pid=3, concurrency=8)))
        (worker,) = cli.json("workers")
        assert (worker["worker"], worker["state"], worker["concurrency"]) == ("busy", "active", 8)
        assert (worker["host"], worker["pid"], worker["queues"]) == ("h", 3, ["default"])
        states = {each["worker"]: each["state"] for each in cli.json("workers", "--all")}
        assert states == {"busy": "active", "gone": "stopped", "old": "dead"}
        assert "h:3" in cli("workers").out


class TestFilters:
    def test_runs_and_firings_are_selected_by_region(self, cli: Terminal) -> None:
        cli("job", "add", "rates", "--manual", "--region", "eu", "--region", "us", "--task", "encode")
        cli("job", "trigger", "rates")
        runs = {run["region"]: run["run_id"] for run in cli.json("run", "list")}
        cli("run", "cancel", runs["eu"])
        assert [run["run_id"] for run in cli.json("run", "list", "--region", "eu")] == [runs["eu"]]
        assert cli.json("run", "list", "--region", "eu", "--state", "pending") == []
        assert [run["run_id"] for run in cli.json("run", "list", "--region", "us", "--state", "pending")] == [
            runs["us"]
        ]
        assert len(cli.json("job", "show", "rates")["firings"]) == 2
        (row,) = cli.json("job", "show", "rates", "--region", "eu")["firings"]
        assert (row["region"], row["outcome"]) == ("eu", "cancelled")

    def test_runs_are_selected_by_queue_worker_and_time(self, cli: Terminal) -> None:
        here, there = submit(cli, "--queue", "films"), submit(cli)

        def found(*words: str) -> set[str]:
            return {run["run_id"] for run in cli.json("run", "list", *words)}

        assert found("--queue", "films") == {here}
        assert found("--queue", "mail") == set()
        assert found("--since", "1h") == {here, there}
        assert found("--since", "2100-01-01T00:00Z") == set()
        assert found("--since", "2020-01-01T00:00Z", "--queue", "films") == {here}
        assert found("--until", "2100-01-01T00:00Z") == {here, there}
        assert found("--until", "1h") == set()
        cli.store(lambda store: store.claim(a_worker("w7", queues=("films",)), 1, HOUR, "strict"))
        assert found("--worker", "w7") == {here}
        assert found("--worker", "w8") == set()
        refused = cli("run", "list", "--since", "yesterday")
        assert (refused.code, "since: 'yesterday'" in refused.err) == (2, True)
        refused = cli("run", "list", "--until", "tomorrow")
        assert (refused.code, "until: 'tomorrow'" in refused.err) == (2, True)

    def test_what_acts_on_many_acts_on_no_others(self, cli: Terminal) -> None:
        here, there = submit(cli, "--queue", "films"), submit(cli)
        cli("run", "cancel", "--queue", "films", "--yes")
        cli("run", "cancel", "--since", "2100-01-01T00:00Z", "--yes")
        cli("run", "act", "cancel", "--until", "1h", "--yes")
        states = {run["run_id"]: run["state"] for run in cli.json("run", "list")}
        assert states == {here: "cancelled", there: "pending"}


class TestDashes:
    def test_what_follows_two_dashes_is_a_command_though_no_task_stands_before_it(self, cli: Terminal) -> None:
        run = cli.json("run", "submit", "--", "sh", "-c", "echo a | wc -l")
        assert (run["task"], run["args"]) == ("command", {"argv": ["sh", "-c", "echo a | wc -l"]})
        both = cli("run", "submit", "encode", "--", "ls")
        assert (both.code, "Give one of a task" in both.err) == (2, True)
        remedy = cli("run", "submit", "--command", "echo a | wc -l").err
        assert "-- sh -c 'echo a | wc -l'" in remedy


class TestOperations:
    """What an operator asks of a scheduler besides jobs and runs."""

    def test_events_are_printed_from_a_position_on(self, cli: Terminal) -> None:
        run_id = submit(cli)
        cli.execute(failure)

        async def number(store: Store) -> None:
            await store.number_events(1000)

        cli.store(number)
        reported = cli("events", "--after", "0", "--limit", "3", "--run", run_id)
        assert [f"[{run_id[-8:]}]" in line for line in reported.out.splitlines()] == [True, True, True]
        events = [json.loads(line) for line in cli("events", "--after", "0", "-n", "3", "--json").out.splitlines()]
        assert [event["kind"] for event in events] == ["run.submitted", "run.running", "run.failed"]
        (failed,) = cli("events", "--after", "0", "-n", "1", "--kind", "run.failed", "--json").out.splitlines()
        assert json.loads(failed)["run_id"] == run_id
        assert "Say --follow" in cli("events").err

    def test_what_failed_for_good_is_listed(self, cli: Terminal) -> None:
        run_id = submit(cli)
        submit(cli)
        assert cli.json("run", "dead-letters") == []
        cli.execute(failure)
        assert run_id in [run["run_id"] for run in cli.json("run", "dead-letters")]
        assert len(cli.json("run", "dead-letters", "--task", "encode")) == 2
        assert cli.json("run", "dead-letters", "--task", "other") == []

    def test_a_namespace_has_its_own_runs(self, cli: Terminal) -> None:
        submitted = cli("run", "submit", "encode", "--arg", "video=v", "--namespace", "staging")
        if cli.owner == "api":  # A token is for a namespace.
            assert (submitted.code, "runs:submit in namespace staging" in submitted.err) == (4, True)
            return
        assert cli.json("run", "list") == []
        (run,) = cli.json("run", "list", "--namespace", "staging")
        assert run["namespace"] == "staging"

    def test_a_live_worker_is_asked_to_drain(self, cli: Terminal) -> None:
        cli("db", "migrate")
        worker = cli.announce(host="here", pid=4711, heartbeat_at=SystemClock().now())
        for name in (worker.id, "here:4711"):
            answer = cli("drain", name)
            assert (answer.code, answer.out) == (0, "Worker w1 is asked to drain.\n")
        assert "asked to drain" in cli("workers").out
        (row,) = cli.json("workers")
        assert row["state"] == "active"
        assert row["drain_requested_at"] is not None

    def test_a_worker_that_is_unknown_or_has_ended_is_not_asked_to_drain(self, cli: Terminal) -> None:
        cli("db", "migrate")
        answer = cli("drain", "nobody")
        assert (answer.code, "there is no worker 'nobody'" in answer.err) == (1, True)
        cli.announce(state="stopped")
        answer = cli("drain", "w1")
        assert answer.code == 1
        assert "worker w1 is stopped (last heard of at" in answer.err

    def test_with_an_app_the_task_must_be_one_of_its_own(self, cli: Terminal) -> None:
        cli.write("films.py", FILMS)
        cli("db", "migrate")
        answer = cli("run", "submit", "encod", "--app", "films.py", "--arg", "video=v")
        assert answer.code == 2
        assert "task: 'encod' is not a task of app films" in answer.err
        assert "did you mean encode?" in answer.err
        assert cli.json("run", "list") == []

    def test_a_task_that_no_worker_knows_is_accepted_with_a_warning(self, cli: Terminal) -> None:
        cli("db", "migrate")
        cli.announce(tasks=("encode",), heartbeat_at=SystemClock().now())
        answer = cli("run", "submit", "encoed")
        assert answer.code == 0
        assert "Warning: No worker" in answer.err
        assert "Warning" not in cli("run", "submit", "encode").err
