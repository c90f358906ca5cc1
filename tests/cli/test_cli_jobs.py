"""`mainspring job`: adding, previewing, looking, changing, acting on many, and what code declares."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_work import FILMS, Served, Terminal
from mainspring.conformance.store.samples import failure, success
from mainspring.core.instants import HOUR, MINUTE, SECOND, Duration
from mainspring.core.model import Job, Worker
from mainspring.core.planning.plans import plan
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.calendar_rules import weekends
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.store import Store

ECHO = ("--command", "echo hello")
HOURLY = ("--every", "1h")


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


def fire(cli: Terminal, name: str, ahead: Duration) -> None:
    """What a node does with a job that comes due, some time from now."""

    async def work(store: Store) -> None:
        await store.fire([plan(await store.get_job("default", name), store.now(), {})], None)

    cli.store(work, ahead)


class TestAdd:
    def test_a_command_is_split_as_a_shell_would_and_needs_none(self, cli: Terminal) -> None:
        job = cli.json("job", "add", "backup", *HOURLY, "--command", "tar czf 'my backup.tgz' /etc '$HOME'")
        assert (job["task"], job["args"]) == ("command", {"argv": ["tar", "czf", "my backup.tgz", "/etc", "$HOME"]})

    def test_a_command_may_be_given_as_words(self, cli: Terminal) -> None:
        job = cli.json("job", "add", "backup", *HOURLY, "--", "sh", "-c", "echo --json")
        assert job["args"] == {"argv": ["sh", "-c", "echo --json"]}

    def test_arguments_of_a_task_are_json_or_else_text(self, cli: Terminal) -> None:
        pairs = ["n=3", "on=true", "ids=[1,2]", "name=v1", 'quoted="3"', "empty=", "formula=a=b", "nothing=null"]
        options = [word for pair in pairs for word in ("--arg", pair)]
        job = cli.json("job", "add", "a", *HOURLY, "--task", "encode", *options)
        assert job["args"] == {
            "n": 3, "on": True, "ids": [1, 2], "name": "v1",
            "quoted": "3", "empty": "", "formula": "a=b", "nothing": None,
        }  # fmt: skip

    def test_the_next_three_fire_times_are_shown(self, cli: Terminal) -> None:
        answer = cli("job", "add", "report", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", *ECHO)
        assert answer.code == 0
        assert answer.out.startswith("Added job report: cron 0 2 * * * in Europe/Berlin, $ echo hello")
        assert answer.out.count(" 02:00:00 +0") == 3
        assert "No worker is running" in answer.err

    @pytest.mark.parametrize(
        ("options", "kind", "schedule"),
        [
            (("--cron", "@daily"), "cron", "cron @daily in UTC"),
            (("--every", "90s"), "every", "every 1m30s"),
            (("--at", "2199-01-01T09:00:00+01:00"), "at", "at 2199-01-01T08:00:00Z"),
            (("--at", "2199-01-01T09:00", "--tz", "Europe/Berlin"), "at", "at 2199-01-01T08:00:00Z"),
            (("--after", "a", "--after", "b"), "after", "after a, b"),
            (("--after", "a", "--when", "any_finished"), "after", "after any of a"),
            (("--manual",), "manual", "manual"),
        ],
    )
    def test_every_kind_of_trigger(self, cli: Terminal, options: tuple[str, ...], kind: str, schedule: str) -> None:
        for name in ("a", "b"):
            cli("job", "add", name, "--manual", *ECHO)
        job = cli.json("job", "add", "c", *options, *ECHO)
        assert (job["trigger"]["kind"], job["schedule"]) == (kind, schedule)

    def test_every_policy_is_stored_as_given(self, cli: Terminal) -> None:
        cli.store(lambda store: store.save_calendar("default", Calendar("off", (weekends(),))))
        job = cli.json(
            *("job", "add", "a", "--cron", "0 12 * * *", "--task", "encode", "--timeout", "10m", "--retries", "1"),
            *("--priority", "2", "--overlap", "forbid", "--misfire", "all", "--jitter", "30s", "--calendar", "off"),
            *("--queue", "films", "--region", "eu", "--region", "us", "--key", "k", "--limit", "4", "--tag", "x"),
            *("--start", "2199-01-01T00:00:00Z", "--end", "2199-06-01T00:00", "--tz", "Europe/Berlin"),
            *("--max-firings", "9", "--keep-succeeded", "5", "--keep-failed", "0", "--start-deadline", "1h"),
        )
        assert (job["timeout"], job["retries"], job["priority"], job["queue"]) == ("10m", 1, 2, "films")
        assert (job["key"], job["limit"], job["tags"], job["app"]) == ("k", 4, ["x"], cli.owner)
        expected = {
            "overlap": "forbid", "misfire": "all", "jitter": "30s", "calendars": ["off"], "regions": ["eu", "us"],
            "start_at": "2199-01-01T00:00:00Z", "end_at": "2199-05-31T22:00:00Z", "max_firings": 9,
            "keep_succeeded": 5, "keep_failed": 0, "start_deadline": "1h",
        }  # fmt: skip
        assert job["policy"] | expected == job["policy"]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--cron", "61 * * * *"), ("cron", "61 * * * *", "0 to 59")),
            (("--cron", "0 0 30 2 *"), ("cron", "0 0 30 2 *")),
            (("--cron", "@daily", "--tz", "Mars/Base"), ("tz", "Mars/Base", "Europe/Berlin")),
            (("--every", "soon"), ("every", "soon", "30s")),
            (("--every", "1us"), ("every", "1us", "10ms or longer")),
            (("--at", "2020-01-01T00:00:00Z"), ("at", "2020-01-01T00:00:00Z", "not in the future", "later instant")),
            (("--at", "2199-01-01T00:00:00"), ("at", "2199-01-01T00:00:00", "no time zone", "--tz")),
            (("--at", "tomorrow"), ("at", "tomorrow", "2026-03-01T09:00:00+01:00")),
            (("--after", "nobody"), ("after", "nobody", "is not a job")),
            ((*HOURLY, "--timeout", "long"), ("timeout", "long", "30s")),
            ((*HOURLY, "--timeout", "0s"), ("timeout", "0s", "above zero")),
            ((*HOURLY, "--priority", "11"), ("priority", "11", "1 (highest) to 10")),
            ((*HOURLY, "--priority", "high"), ("--priority", "high", "whole number")),
            ((*HOURLY, "--retries", "-1"), ("retries", "-1", "0 up")),
            ((*HOURLY, "--limit", "0"), ("limit", "0", "1 up")),
            ((*HOURLY, "--limit", "few"), ("--limit", "few", "whole number")),
            ((*HOURLY, "--overlap", "maybe"), ("--overlap", "maybe", "'forbid'")),
            ((*HOURLY, "--misfire", "never"), ("--misfire", "never", "'once'")),
            ((*HOURLY, "--end", "2020-01-01T00:00:00Z"), ("end", "2020-01-01", "not in the future")),
            ((*HOURLY, "--calendar", "nope"), ("calendar", "nope", "is not a calendar")),
            ((*HOURLY, "--tz", "Europe/Berlin"), ("tz", "Europe/Berlin", "every 1h", "leave it out")),
            ((*HOURLY, "--on-failure", "run"), ("on-failure", "run", "--after")),
            ((*HOURLY, "--queue", ""), ("queue", "printable")),
            ((*HOURLY, "--cron", "@daily"), ("--cron and --every cannot be combined",)),
            ((), ("Say when: --cron, --every, --at",)),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
    )
    def test_bad_input_is_named_and_nothing_is_stored(
        self, cli: Terminal, options: tuple[str, ...], words: tuple[str, ...]
    ) -> None:
        cli("db", "migrate")
        answer = cli("job", "add", "a", *options, *ECHO)
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" not in answer.err
        for word in words:
            assert word in answer.err
        assert cli.json("job", "list") == []

    @pytest.mark.parametrize(
        ("work", "words"),
        [
            ((), "Say what: --task"),
            (("--task", "a", "--command", "b"), "Give one of"),
            (("--command", "echo 'open"), "no closing quotation"),
            (("--command", " "), "is empty"),
            (("--command", "echo a | wc -l"), "let a shell run it: -- sh -c 'echo a | wc -l'"),
            (("--task", "encode", "--arg", "x"), "has no name"),
            (("--task", "encode", "--arg", "x=1", "--arg", "x=2"), "a second value"),
            (("--command", "true", "--arg", "x=1"), "is for tasks"),
        ],
    )
    def test_bad_work_is_named(self, cli: Terminal, work: tuple[str, ...], words: str) -> None:
        answer = cli("job", "add", "a", *HOURLY, *work)
        assert answer.code == 2
        assert words in answer.err

    def test_a_name_is_used_once(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO)
        answer = cli("job", "add", "a", "--every", "2h", *ECHO)
        assert answer.code == 1
        assert "there is a job 'a'" in answer.err
        assert "choose another name, or edit that one" in answer.err
        assert cli.json("job", "list")[0]["schedule"] == "every 1h"

    @pytest.mark.parametrize("cli", ["store"], indirect=True)
    def test_arguments_that_are_too_large_are_refused(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_PAYLOAD_LIMIT", "100")
        big = ("--task", "encode", "--arg", f"text={'x' * 200}")
        cli("job", "add", "small", *HOURLY, *ECHO)
        for command in (("job", "add", "a", *HOURLY, *big), ("job", "edit", "small", *big)):
            answer = cli(*command)
            assert answer.code == 2
            assert "more than the 100 of payload_limit" in answer.err
            assert "pass where it is" in answer.err
        assert [job["task"] for job in cli.json("job", "list")] == ["command"]


class TestNext:
    def test_a_job_shows_its_regions_and_a_run_why_it_moved(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, "--region", "eu", "--region", "us", "--region-failover", "5s", *ECHO)
        fire(cli, "a", HOUR + SECOND)

        async def lose(store: Store) -> None:
            await store.register(Worker(id="w", regions=("us",), tasks=("command",)))
            await store.recover(10 * SECOND, 100)

        cli.store(lose, HOUR + 20 * SECOND)
        shown = cli("job", "show", "a").out
        assert "region failover 5s" in shown
        assert [line.split()[4] for line in shown.splitlines()[-2:]] == ["eu", "us"]
        [moved] = [run for run in cli.json("run", "list", "--job", "a") if run["home_region"] != run["region"]]
        assert (moved["home_region"], moved["region"]) == ("eu", "us")
        said = cli("run", "show", moved["run_id"]).out
        assert "from region eu, which has no live worker for it within 5s, to us" in said

    def test_fire_times_are_shown_in_the_zone_from_now_and_in_utc(self, cli: Terminal) -> None:
        cli("job", "add", "report", "--cron", "0 2 * * *", "--tz", "Asia/Tokyo", *ECHO)
        answer = cli("job", "next", "report", "-n", "4")
        assert answer.out.startswith("report: cron 0 2 * * * in Asia/Tokyo. It fires next on ")
        rows = answer.out.splitlines()[-4:]
        assert all(" 02:00:00 +09:00  in " in row and row.endswith("T17:00:00Z") for row in rows)
        times = cli.json("job", "next", "report", "-n", "4")
        assert [time["local"][10:] for time in times] == ["T02:00:00+09:00"] * 4
        assert len({time["fire_at"] for time in times}) == 4

    def test_changes_of_daylight_saving_are_marked_where_they_happen(self, cli: Terminal) -> None:
        times = cli.json("job", "next", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "400")
        noted = {time["note"]: time["local"][11:] for time in times if time["note"]}
        assert noted["clocks went forward 1h at 02:00, now UTC+02:00"] == "03:00:00+02:00"
        back = {note[10:]: local for note, local in noted.items() if "went back" in note}
        assert back == {": clocks went back 1h at 03:00, now UTC+01:00": "02:30:00+01:00"}
        shown = cli("job", "next", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "400").out
        assert "CLOCKS" in shown

    def test_nothing_is_saved_by_a_preview(self, cli: Terminal) -> None:
        answer = cli("job", "next", "--every", "90s", "-n", "2")
        assert (answer.code, answer.out.count("UTC")) == (0, 2)
        assert list(cli.folder.iterdir()) == []

    def test_a_preview_of_nothing_or_of_both_is_refused(self, cli: Terminal) -> None:
        cli("db", "migrate")
        assert "Name a job, or say when" in cli("job", "next").err
        assert "Name a job or say when, not both" in cli("job", "next", "a", "--every", "1h").err
        assert cli("job", "next", "--cron", "bad").code == 2
        assert cli("job", "next", "--at", "2020-01-01T00:00:00Z").code == 2

    def test_a_job_that_is_limited_shows_no_more_than_it_has(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, "--max-firings", "2", *ECHO)
        assert len(cli.json("job", "next", "a")) == 2

    def test_calendars_are_respected(self, cli: Terminal) -> None:
        cli.store(lambda store: store.save_calendar("default", Calendar("off", (weekends(),))))
        cli("job", "add", "a", "--cron", "0 12 * * *", "--calendar", "off", *ECHO)
        shown = cli("job", "next", "a", "-n", "14").out
        assert "Fri" in shown
        assert "Sat" not in shown
        assert "Sun" not in shown

    def test_a_paused_or_manual_job_says_so(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO)
        cli("job", "pause", "a")
        assert "none of these fires before `mainspring job resume a`" in cli("job", "next", "a").out
        cli("job", "add", "b", "--manual", *ECHO)
        assert "no instant that is known in advance" in cli("job", "next", "b").err
        assert cli.json("job", "next", "b") == []


class TestLook:
    def test_no_jobs_is_an_empty_list_and_a_hint(self, cli: Terminal) -> None:
        cli("db", "migrate")
        assert cli.json("job", "list") == []
        answer = cli("job", "list")
        assert answer.out == ""
        assert "mainspring job add" in answer.err

    def test_the_list_shows_what_is_next_and_what_was_last(self, cli: Terminal) -> None:
        cli("job", "add", "good", *HOURLY, "--task", "encode", "--tag", "x")
        cli("job", "add", "never", "--manual", *ECHO)
        cli("job", "add", "resting", *HOURLY, *ECHO)
        cli("job", "pause", "resting")
        cli("job", "trigger", "good")
        cli.execute(success)
        rows = {line.split()[0]: line for line in cli("job", "list").out.splitlines()}
        assert "in 59m" in rows["good"] or "in 1h" in rows["good"]
        assert "succeeded" in rows["good"]
        assert "—" in rows["never"]
        assert "paused" in rows["resting"]
        assert all(len(row) <= 100 for row in rows.values())
        assert [job["name"] for job in cli.json("job", "list", "--tag", "x")] == ["good"]
        assert [job["name"] for job in cli.json("job", "list", "--app", "films")] == []

    def test_the_ledger_says_what_became_of_each_instant(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, "--task", "encode")
        cli("job", "trigger", "a")
        cli.execute(lambda claim: failure(claim, "ValueError: no"))
        fire(cli, "a", 3 * HOUR + MINUTE)
        reported = cli.json("job", "show", "a")
        outcomes = [(firing["outcome"], firing["kind"]) for firing in reported["firings"]]
        assert outcomes == [("fired", "scheduled"), *[("missed", "scheduled")] * 2, ("failed", "manual")]
        shown = " ".join(cli("job", "show", "a").out.split())
        assert "pending" in shown
        assert "ValueError: no (manual)" in shown
        assert "misfire=once: a later instant stands for it" in shown

    def test_it_says_why_a_job_does_not_fire(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO)
        cli("job", "add", "b", "--after", "a", *ECHO)
        cli.announce(tasks=("command",))
        (why,) = cli.json("job", "show", "a")["why"]
        assert why.startswith("No scheduler runs, so it will not fire.")
        cli("job", "pause", "a", "--reason", "audit")
        (why,) = cli.json("job", "show", "a")["why"]
        assert why.startswith("It is paused since")
        assert "(audit)" in why
        (why,) = cli.json("job", "show", "b")["why"]
        assert why.startswith("It waits for job a")
        assert "What is in its way" in cli("job", "show", "b").out

    def test_a_name_that_was_mistyped_is_answered_with_the_one_that_was_meant(self, cli: Terminal) -> None:
        cli("job", "add", "nightly-report", "--manual", "--task", "encode")
        answer = cli("job", "show", "nightly-reprot")
        assert answer.code == 1
        assert "there is no job 'nightly-reprot': did you mean nightly-report?" in answer.err

    def test_an_unknown_job_is_named(self, cli: Terminal) -> None:
        cli("db", "migrate")
        for verb in ("show", "edit", "pause", "remove", "trigger", "next"):
            options = ("--priority", "1") if verb == "edit" else ()
            answer = cli("job", verb, "nobody", *options)
            assert answer.code == 1
            assert "there is no job 'nobody'" in answer.err
            assert "mainspring job list" in answer.err


class TestEdit:
    def test_what_is_not_named_stays(self, cli: Terminal) -> None:
        before = cli.json("job", "add", "a", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--timeout", "5m", *ECHO)
        after = cli.json("job", "edit", "a", "--priority", "1", "--overlap", "queue")
        assert (after["priority"], after["policy"]["overlap"], after["version"]) == (1, "queue", 2)
        for field in ("trigger", "timeout", "args", "next_fire_at", "job_id", "retries"):
            assert after[field] == before[field]

    def test_a_trigger_may_change_in_whole_or_only_in_its_zone(self, cli: Terminal) -> None:
        cli("job", "add", "a", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", *ECHO)
        assert cli.json("job", "edit", "a", "--tz", "Asia/Tokyo")["schedule"] == "cron 0 2 * * * in Asia/Tokyo"
        assert cli.json("job", "edit", "a", "--cron", "0 3 * * *")["schedule"] == "cron 0 3 * * * in Asia/Tokyo"
        assert cli.json("job", "edit", "a", "--every", "5m")["schedule"] == "every 5m"
        answer = cli("job", "edit", "a", "--tz", "Asia/Tokyo")
        assert (answer.code, "tz: 'Asia/Tokyo' has no use" in answer.err) == (2, True)

    def test_none_takes_a_value_away(self, cli: Terminal) -> None:
        given = (
            "--timeout",
            "5m",
            "--key",
            "k",
            "--limit",
            "2",
            "--tag",
            "x",
            "--max-firings",
            "3",
            "--keep-failed",
            "1",
        )
        cli("job", "add", "a", *HOURLY, *given, "--task", "encode")
        cleared = [word if word.startswith("--") else "none" for word in given]
        job = cli.json("job", "edit", "a", *cleared)
        assert (job["timeout"], job["key"], job["limit"], job["tags"]) == (None, None, None, [])
        assert (job["policy"]["max_firings"], job["policy"]["keep_failed"]) == (None, None)

    def test_only_the_number_of_retries_changes(self, cli: Terminal) -> None:
        cli(
            "job",
            "sync",
            cli.write("films.py", FILMS + "\napp.job(every('1h'), name='encodes', args={'video': 'v'})(encode)\n"),
        )
        cli("job", "edit", "encodes", "--retries", "7")
        job = cli.store(lambda store: store.get_job("default", "encodes"))
        assert (job.options.retry.retries, job.options.retry.delays) == (7, (SECOND,))
        cli("job", "edit", "encodes", "--retry-policy", "doubling-2m")
        job = cli.store(lambda store: store.get_job("default", "encodes"))
        assert job.options.retry == Retry(7, policy="doubling-2m")

    def test_a_retry_policy_has_a_name(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO, "--retry-policy", "fixed-5m")
        job = cli.store(lambda store: store.get_job("default", "a"))
        assert job.options.retry == Retry(3, policy="fixed-5m")

    def test_work_may_change(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO)
        job = cli.json("job", "edit", "a", "--task", "encode", "--arg", "video=v1")
        assert (job["task"], job["args"]) == ("encode", {"video": "v1"})
        assert cli.json("job", "edit", "a", "--", "ls", "-l")["args"] == {"argv": ["ls", "-l"]}

    def test_an_edit_without_change_or_with_a_bad_one_is_refused(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO)
        assert "Say what to change" in cli("job", "edit", "a").err
        for options in (("--priority", "0"), ("--every", "x"), ("--at", "2020-01-01T00:00:00Z"), ("--after", "a")):
            assert cli("job", "edit", "a", *options).code == 2
        assert cli.json("job", "show", "a")["version"] == 1

    def test_a_job_that_code_declares_comes_with_a_warning(self, cli: Terminal) -> None:
        cli("job", "sync", cli.write("films.py", FILMS))
        assert "App films declares this job" in cli("job", "edit", "report", "--priority", "1").err


class TestActions:
    def add(self, cli: Terminal) -> None:
        for name, tag in (("a", "x"), ("b", "x"), ("c", "y")):
            cli("job", "add", name, *HOURLY, "--tag", tag, *ECHO)

    def paused(self, cli: Terminal) -> dict[str, str]:
        return {job["name"]: job["paused_why"] for job in cli.json("job", "list") if job["paused_at"]}

    def test_jobs_are_paused_and_resumed_by_name(self, cli: Terminal) -> None:
        self.add(cli)
        answer = cli("job", "pause", "a", "c", "--reason", "audit")
        assert (answer.code, answer.err) == (0, "Paused 2 jobs.\n")
        assert self.paused(cli) == {"a": "audit", "c": "audit"}
        assert [job["name"] for job in cli.json("job", "resume", "a")] == ["a"]
        assert self.paused(cli) == {"c": "audit"}

    def test_one_unknown_name_spoils_all(self, cli: Terminal) -> None:
        self.add(cli)
        assert cli("job", "pause", "a", "nobody").code == 1
        assert self.paused(cli) == {}

    def test_a_dry_run_shows_what_would_be_affected(self, cli: Terminal) -> None:
        self.add(cli)
        answer = cli("job", "remove", "--tag", "x", "--dry-run")
        assert [line.split()[0] for line in answer.out.splitlines()] == ["NAME", "a", "b"]
        assert "nothing was done, for this was a dry run" in answer.err
        assert len(cli.json("job", "list")) == 3

    def test_a_selection_needs_a_yes_without_a_terminal(self, cli: Terminal) -> None:
        self.add(cli)
        answer = cli("job", "remove", "--all")
        assert answer.code == 2
        assert "Remove 3 jobs? There is no terminal to ask: say --yes" in answer.err
        assert len(cli.json("job", "list")) == 3

    def test_at_a_terminal_the_user_is_asked(self, cli: Terminal) -> None:
        self.add(cli)
        for typed, code, left in ((b"n\n", 1, 3), (b"y\n", 0, 0)):
            ours, theirs = os.openpty()
            process = cli.start("job", "remove", "--all", stdin=theirs, stderr=theirs)
            os.write(ours, typed)
            process.communicate(timeout=30)
            shown = ""
            while select.select([ours], [], [], 0)[0]:  # A terminal gives what was written in pieces.
                shown += os.read(ours, 10_000).decode()
            os.close(theirs)
            os.close(ours)
            assert "Remove 3 jobs? [y/N]:" in shown
            assert process.returncode == code
            assert len(cli.json("job", "list")) == left

    def test_a_selection_is_acted_on(self, cli: Terminal) -> None:
        self.add(cli)
        assert len(cli.json("job", "pause", "--tag", "x", "--yes")) == 2
        assert sorted(self.paused(cli)) == ["a", "b"]
        assert [job["name"] for job in cli.json("job", "remove", "--app", cli.owner, "--yes")] == ["a", "b", "c"]
        assert cli.json("job", "list") == []
        assert cli.json("job", "remove", "--all", "--yes") == []

    def test_names_or_a_selection_but_not_both_nor_neither(self, cli: Terminal) -> None:
        self.add(cli)
        assert "not both" in cli("job", "pause", "a", "--all").err
        assert "Name jobs, or select them" in cli("job", "pause").err

    def test_a_job_that_others_need_goes_only_with_them(self, cli: Terminal) -> None:
        cli("job", "add", "a", *HOURLY, *ECHO)
        cli("job", "add", "b", "--after", "a", *ECHO)
        answer = cli("job", "remove", "a")
        assert (answer.code, "others fire after it: 'b'" in answer.err) == (1, True)
        assert cli("job", "remove", "a", "b").code == 0
        assert cli.json("job", "list") == []

    def test_a_reason_that_has_no_other_place_is_kept_as_an_event(self, cli: Terminal) -> None:
        self.add(cli)
        cli("job", "remove", "a", "--reason", "no longer needed")

        async def reported(store: Store) -> list[str]:
            await store.number_events(1000)
            return [event.reason for batch in await store.events_since(1, 1000) for event in batch.events]

        assert "no longer needed" in cli.store(reported)

    def test_a_job_is_fired_by_hand(self, cli: Terminal) -> None:
        cli("job", "add", "a", "--manual", "--overlap", "forbid", "--task", "encode")
        first = cli("job", "trigger", "a", "--request-id", "1")
        (run,) = cli.json("run", "list")
        assert (first.code, first.out.strip(), run["job"]) == (0, run["run_id"], "a")
        assert cli.json("job", "trigger", "a", "--request-id", "1")["run_id"] == run["run_id"]
        refused = cli("job", "trigger", "a", "--request-id", "2")
        assert refused.code == 3
        assert "a was not run: overlap=forbid" in refused.err

    def test_several_jobs_are_fired_by_hand(self, cli: Terminal) -> None:
        for name in ("a", "b"):
            cli("job", "add", name, "--manual", "--overlap", "forbid", "--task", "encode")
        fired = cli.json("job", "trigger", "a", "b")
        assert {run["run_id"]: run["job"] for run in cli.json("run", "list")} == {
            fired[0]["run_id"]: "a", fired[1]["run_id"]: "b",
        }  # fmt: skip
        refused = cli("job", "trigger", "b", "a")
        assert (refused.code, "b was not run" in refused.err, "a was not run" in refused.err) == (3, True, True)

    def test_a_past_interval_is_fired_once_page_by_page(self, cli: Terminal) -> None:
        cli("job", "add", "a", "--cron", "0 * * * *", "--task", "encode")
        days = ("--from", "2024-03-01T00:00", "--to", "2024-03-05T23:00", "--tz", "Europe/Berlin")
        seen = cli.json("job", "backfill", "a", *days, "--dry-run")
        assert (len(seen), seen[0]["fire_at"], seen[-1]["fire_at"]) == (
            120, "2024-02-29T23:00:00Z", "2024-03-05T22:00:00Z",
        )  # fmt: skip
        assert cli.json("run", "list") == []
        asked = cli("job", "backfill", "a", *days)
        assert (asked.code, "Fire 120 instants of a? There is no terminal to ask" in asked.err) == (2, True)
        done = cli("job", "backfill", "a", *days, "--yes", "--reason", "an outage")
        assert (done.code, "Fired 120 instants of a." in done.err) == (0, True)
        runs = cli.json("run", "list", "--job", "a", "-n", "200")
        assert sorted(run["run_id"] for run in runs) == sorted(each["run_ids"][0] for each in seen)
        again = cli("job", "backfill", "a", *days)
        assert (again.code, "has a run that has not ended" in again.out, "nothing was done" in again.err) == (
            0,
            True,
            True,
        )
        assert "never by its schedule" in cli("job", "show", "a").out
        assert len(cli.json("run", "list", "-n", "200")) == 120

    def test_a_future_interval_is_refused(self, cli: Terminal) -> None:
        self.add(cli)
        refused = cli("job", "backfill", "a", "--from", "2024-03-01T00:00Z", "--to", "2190-03-01T00:00Z")
        assert (refused.code, "is not past" in refused.err) == (2, True)


class TestSync:
    def test_declared_jobs_are_stored_and_changes_are_reported(self, cli: Terminal) -> None:
        assert cli.json("job", "sync", cli.write("films.py", FILMS))["created"] == ["report", "notify"]
        assert cli.json("job", "sync", "films.py")["unchanged"] == ["report", "notify"]
        changed = FILMS.replace("0 2 * * *", "0 3 * * *")
        assert cli.json("job", "sync", cli.write("films2.py", changed))["updated"] == ["report"]
        assert "updated" in cli("job", "sync", cli.write("films3.py", FILMS)).out

    @pytest.mark.parametrize(
        ("choice", "left"),
        [("report", {"report": False, "notify": False}), ("pause", {"report": True, "notify": True}), ("remove", {})],
    )
    def test_jobs_no_longer_declared_are_treated_as_asked(
        self, cli: Terminal, choice: str, left: dict[str, bool]
    ) -> None:
        cli("job", "add", "by-hand", *HOURLY, *ECHO)
        cli("job", "sync", cli.write("films.py", FILMS))
        empty = cli.write("empty.py", "from mainspring import Mainspring\napp = Mainspring(name='films')\n")
        answer = cli("job", "sync", empty, "--undeclared", choice)
        assert (answer.code, "report" in answer.out) == (0, True)
        assert ("still fire" in answer.err) == (choice == "report")
        stored = {job["name"]: job["paused_at"] is not None for job in cli.json("job", "list")}
        assert stored == {"by-hand": False, **left}

    def test_what_was_done_is_said_truly(self, cli: Terminal) -> None:
        cli("job", "sync", cli.write("films.py", FILMS))
        empty = cli.write("empty.py", "from mainspring import Mainspring\napp = Mainspring(name='films')\n")
        removed = cli.json("job", "sync", empty, "--undeclared", "remove")
        assert (sorted(removed["removed"]), removed["paused"]) == (["notify", "report"], [])
        cli("job", "sync", "films.py")
        answer = cli("job", "sync", empty, "--undeclared", "remove")
        assert ("removed" in answer.out, "undeclared" in answer.out) == (True, False)

    def test_jobs_added_by_a_call_are_not_given_up(self, cli: Terminal) -> None:
        cli("job", "sync", cli.write("films.py", FILMS))
        added = Job("added", "by-call", "encode", EveryTrigger(HOUR), app="films", origin="call")
        cli.store(lambda store: store.create_job(added))
        empty = cli.write("empty.py", "from mainspring import Mainspring\napp = Mainspring(name='films')\n")
        assert sorted(cli.json("job", "sync", empty, "--undeclared", "remove")["removed"]) == ["notify", "report"]
        assert [job["name"] for job in cli.json("job", "list")] == ["by-call"]

    def test_programs_without_names_do_not_give_up_each_others_jobs(self, cli: Terminal) -> None:
        nameless = FILMS.replace('Mainspring(name="films")', "Mainspring()")
        cli("job", "sync", cli.write("one.py", nameless))
        empty = cli.write("two.py", "from mainspring import Mainspring\napp = Mainspring()\n")
        assert cli.json("job", "sync", empty)["undeclared"] == []
        refused = cli("job", "sync", empty, "--undeclared", "remove")
        assert (refused.code, "name it: Mainspring(name=" in refused.err) == (2, True)
        assert all(job["state"] == "active" for job in cli.json("job", "list"))
        cli.write("one.py", "from mainspring import Mainspring\napp = Mainspring()\n")
        answer = cli.finish("job", "sync", "one.py", "--json")
        assert sorted(json.loads(answer.out)["paused"]) == ["notify", "report"]

    def test_a_job_that_is_declared_again_goes_on(self, cli: Terminal) -> None:
        cli("job", "sync", cli.write("films.py", FILMS))
        empty = cli.write("empty.py", "from mainspring import Mainspring\napp = Mainspring(name='films')\n")
        assert sorted(cli.json("job", "sync", empty)["paused"]) == ["notify", "report"]
        cli("job", "resume", "notify")
        cli("job", "pause", "notify", "--reason", "audit")
        assert cli.json("job", "sync", "films.py")["resumed"] == ["report"]
        assert {job["name"]: job["state"] for job in cli.json("job", "list")} == {
            "notify": "paused",
            "report": "active",
        }

    def test_older_code_that_starts_last_does_not_pause_what_newer_code_declared(self, cli: Terminal) -> None:
        again = '@app.job(every("1h"), name="again")\n@app.task\ndef more(): ...\n'
        newer = FILMS + '\n@app.job(every("1h"))\ndef added(): ...\n' + again
        cli("job", "sync", cli.write("newer.py", newer))
        cli.announce(app="films", tasks=("encode", "report", "notify", "added", "more"))
        older = cli.write("older.py", FILMS + "\n@app.task\ndef more(): ...\n")
        answer = cli("job", "sync", older)
        assert (answer.code, "are left as they are" in answer.err) == (0, True)
        assert all(job["state"] == "active" for job in cli.json("job", "list"))

    def test_all_or_nothing_is_stored(self, cli: Terminal) -> None:
        cli("job", "add", "notify", "--manual", *ECHO)
        answer = cli("job", "sync", cli.write("films.py", FILMS))
        assert answer.code == 1
        assert f"'notify' (of app '{cli.owner}')" in answer.err
        assert [job["name"] for job in cli.json("job", "list")] == ["notify"]
