"""`mainspring up` and `mainspring worker`: real processes, real signals, bounded ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_work import FILMS, Terminal
from mainspring.cli.output.event_lines import describe_event
from mainspring.clock import SystemClock
from mainspring.core.instants import DAY
from mainspring.core.model import Event
from mainspring.operations.values.from_rows import event_record

PATIENCE_S = 20.0
TASKS = """
import asyncio, time
from mainspring import Mainspring, Retry

app = Mainspring(name="tasks")

@app.task
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"

@app.task
async def blocks() -> None:
    time.sleep(600)

@app.task(retry=Retry(1, delay="1h"))
def fails() -> None:
    raise ValueError("not today")

@app.task
async def stubborn() -> None:
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
"""
SLOW_START = """
from mainspring.services.node import Node

begin = Node.start

async def start(node):
    await begin(node)
    await asyncio.sleep(600)

Node.start = start
"""
"""The window between the registration of a worker and the end of its start, held open."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    yield terminal
    terminal.close()


def until(happened: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def state_of(cli: Terminal, run_id: str) -> str:
    state: str = cli.json("run", "show", run_id)["state"]
    return state


def up_with_running(cli: Terminal, *args: str) -> tuple[subprocess.Popen[str], str]:
    """A process in which a run is under way, and its id."""
    cli.write("tasks.py", TASKS)
    run_id: str = cli.json("run", "submit", *args)["run_id"]
    process = cli.start("up", "tasks.py")
    until(lambda: state_of(cli, run_id) == "running")
    return process, run_id


class TestUp:
    def test_it_stores_the_jobs_fires_them_and_stops_by_itself(self, cli: Terminal) -> None:
        cli.write("films.py", FILMS + "\n@app.job(every('200ms'))\nasync def tick(): ...\n")
        answer = cli.finish("up", "films.py", "--for", "1500ms", "--log-level", "info")
        assert answer.code == 0
        assert "3 created (report, notify, tick)" in answer.err
        assert f"store  sqlite:///test.db ({cli.folder}/test.db)" in answer.err
        assert "next   " in answer.err
        assert answer.err.rstrip().endswith("Stopped.")
        lines = answer.out.splitlines()
        assert any("fired" in line and "tick" in line for line in lines)
        assert any("succeeded" in line and "tick" in line for line in lines)
        assert "\x1b" not in answer.out

    def test_what_the_host_can_confine_is_printed_where_something_asks_for_it(self, cli: Terminal) -> None:
        cli.write("films.py", FILMS)
        assert "confined runs" not in cli.finish("up", "films.py", "--no-api", "--for", "100ms").err
        cli.write("confined.py", FILMS + "\n@app.task(isolation='limits')\ndef strict(): ...\n")
        assert "host   confined runs are executed as" in cli.finish("worker", "confined.py", "--for", "100ms").err

    def test_events_are_printed_for_programs_a_line_each(self, cli: Terminal) -> None:
        cli("job", "add", "hello", "--every", "200ms", "--command", "echo hello")
        answer = cli.finish("up", "--for", "1500ms", "--json")
        assert (answer.code, answer.err) == (0, "")
        events = [json.loads(line) for line in answer.out.splitlines()]
        kinds = {event["kind"] for event in events if event["job"] == "hello"}
        assert {"firing.fired", "run.running", "run.succeeded"} <= kinds
        assert {event["position"] for event in events} == {None}, "only `mainspring events` knows positions"
        (first, *_) = cli.json("run", "list", "--job", "hello", "--state", "succeeded")
        assert [line["text"] for line in cli.json("run", "logs", first["run_id"])] == ["hello"]

    def test_a_command_is_shown_as_it_was_typed(self, cli: Terminal) -> None:
        run_id = cli.json("run", "submit", "--command", "echo 'a b'")["run_id"]
        answer = cli.finish("up", "--for", "1500ms", "--log-level", "info")
        lines = [line for line in answer.out.splitlines() if run_id[-8:] in line]
        assert [line.partition(" [")[0].split(maxsplit=3)[3].partition(" in ")[0] for line in lines] == [
            "$ echo 'a b'",
            "$ echo 'a b'",
        ]

    def test_one_task_is_one_task(self, cli: Terminal) -> None:
        cli.write("one.py", "from mainspring import Mainspring\napp = Mainspring()\n@app.task\ndef a(): ...\n")
        assert ", 1 task ·" in cli.finish("up", "one.py", "--for", "100ms").err

    def test_a_due_instant_of_another_day_has_its_date(self) -> None:
        now = SystemClock().now()
        shown = describe_event(event_record(None, Event("firing.fired", now, job="a", fire_at=now - 40 * DAY)))
        assert re.search(r"due [A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)
        today = describe_event(event_record(None, Event("firing.fired", now, job="a", fire_at=now)))
        assert re.search(r"due \d\d:", today)

    def test_quiet_shows_nothing_but_trouble(self, cli: Terminal) -> None:
        cli("job", "add", "hello", "--every", "200ms", "--command", "true")
        answer = cli.finish("up", "--for", "700ms", "--quiet")
        assert (answer.code, answer.out) == (0, "")

    def test_jobs_no_longer_declared_are_treated_as_asked(self, cli: Terminal) -> None:
        cli("job", "sync", cli.write("films.py", FILMS))
        cli.write("empty.py", "from mainspring import Mainspring\napp = Mainspring(name='films')\n")
        reported = cli("up", "empty.py", "--for", "100ms", "--undeclared", "report")
        assert "2 no longer declared, left as they are" in reported.err
        assert "2 no longer declared, paused" in cli("up", "empty.py", "--for", "100ms").err
        assert all(job["paused_at"] for job in cli.json("job", "list"))

    def test_the_queues_that_the_app_names_are_served_unless_others_are_asked_for(self, cli: Terminal) -> None:
        cli.write("slow.py", FILMS + '\n@app.task(queue="slow")\ndef trim(): ...\n')
        assert "queue default, slow ·" in cli("up", "slow.py", "--for", "100ms").err
        assert "queue mail ·" in cli("up", "slow.py", "--for", "100ms", "--queue", "mail").err

    def test_bad_options_are_refused_before_anything_is_made(self, cli: Terminal) -> None:
        for options, words in (
            (("--for", "long"), "for: 'long' is not a duration"),
            (("--concurrency", "0"), "concurrency: 0 is not a count"),
            (("--coordination", "chaos"), "'chaos' is not one of 'leader', 'cluster'"),
            (("--undeclared", "burn"), "'burn' is not one of"),
        ):
            answer = cli("up", *options)
            assert answer.code == 2
            assert words in answer.err
        assert list(cli.folder.iterdir()) == []

    def test_a_reader_that_leaves_ends_it(self, cli: Terminal) -> None:
        cli("job", "add", "hello", "--every", "50ms", "--command", "true")
        process = cli.start("up", "--log-level", "info")
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_the_first_signal_lets_running_work_finish(self, cli: Terminal, number: signal.Signals) -> None:
        process, run_id = up_with_running(cli, "nap", "--arg", "seconds=0.5")
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "Finishing 1 running job; Ctrl-C again to stop at once." in err
        assert state_of(cli, run_id) == "succeeded"

    def test_the_second_signal_stops_at_once_and_hands_work_back(self, cli: Terminal) -> None:
        process, run_id = up_with_running(cli, "nap", "--arg", "seconds=600")
        process.send_signal(signal.SIGINT)
        until(lambda: cli.json("workers")[0]["state"] == "draining")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert "Stopped at once" in err
        run = cli.json("run", "show", run_id)
        assert (run["state"], run["attempt"]) == ("pending", 0)

    def test_a_task_that_ignores_its_cancellation_cannot_keep_the_process(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAINSPRING_DRAIN_GRACE", "100ms")
        process, run_id = up_with_running(cli, "stubborn")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert state_of(cli, run_id) == "pending"

    def test_the_third_signal_is_heard_even_where_a_task_blocks_the_loop(self, cli: Terminal) -> None:
        process, _ = up_with_running(cli, "blocks")

        def ended() -> bool:  # Signals that arrive together count once, so more than three may be needed.
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        until(ended)
        assert process.returncode == 130


class TestWorker:
    def test_it_works_but_does_not_schedule(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        cli("job", "add", "hello", "--every", "100ms", "--command", "true")
        run_id = cli.json("run", "submit", "nap", "--arg", "seconds=0")["run_id"]
        process = cli.start("worker", "tasks.py", "--concurrency", "3")
        assert cli.finish("run", "wait", run_id, "--timeout", "15s").out == '"rested"\n'
        (worker,) = cli.json("workers")
        assert worker["concurrency"] == 3
        assert worker["tasks"] == ["command", "http", "blocks", "fails", "nap", "stubborn"]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "app tasks (tasks.py), 4 tasks" in err
        assert cli.json("job", "show", "hello")["firings"] == []

    def test_asked_for_it_shows_each_start_and_end(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        run_id = cli.json("run", "submit", "nap", "--arg", "seconds=0")["run_id"]
        worker = cli.start("worker", "tasks.py", "--log-level", "info")
        cli.finish("run", "wait", run_id, "--timeout", "15s")
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=PATIENCE_S)
        assert [line.split()[1:4] for line in out.splitlines() if run_id[-8:] in line] == [
            ["▶", "running", "nap"],
            ["✓", "succeeded", "nap"],
        ]

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_where_no_person_reads_it_prints_failures_and_a_summary(self, cli: Terminal, form: str) -> None:
        cli.write("tasks.py", TASKS + "\n@app.task(retry=Retry(0))\nasync def bad(): raise ValueError('no')\n")
        good = [cli.json("run", "submit", "nap", "--arg", "seconds=0")["run_id"] for _ in range(2)]
        bad = cli.json("run", "submit", "bad")["run_id"]
        worker = cli.start("worker", "tasks.py", "--log-format", form)
        for run_id in (*good, bad):
            cli.finish("run", "wait", run_id, "--timeout", "15s")
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=PATIENCE_S)
        failure, summary = out.splitlines()
        if form == "json":
            assert (json.loads(failure)["kind"], json.loads(failure)["run_id"]) == ("run.failed", bad)
            counts = [json.loads(summary)[name] for name in ("claimed", "succeeded", "failed", "retried", "in_hand")]
            assert counts == [3, 2, 1, 0, 0]
        else:
            assert "✗ failed     bad" in failure
            assert summary.endswith("claimed 3, succeeded 2, failed 1, retried 0, in hand 0")

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_what_a_task_logs_cannot_steer_the_terminal(self, cli: Terminal, form: str) -> None:
        cli.write("tasks.py", f"import logging\n{TASKS}\n@app.task\ndef write(text: str): logging.warning(text)\n")
        cli("run", "submit", "write", "--arg", "text=a\x1b]0;owned\x07\x9bb\u202e")
        written = cli.finish("worker", "tasks.py", "--burst", "--log-format", form).err
        assert "]0;owned" in written
        assert not set(written) & set("\x1b\x07\x9b\u202e")

    def test_it_prints_its_own_events_only_for_programs(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        run_id = cli.json("run", "submit", "nap", "--arg", "seconds=0")["run_id"]
        worker = cli.start("worker", "tasks.py", "--json")
        cli.finish("run", "wait", run_id, "--timeout", "15s")
        cli("run", "submit", "unknown")
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=PATIENCE_S)
        events = [json.loads(line) for line in out.splitlines()]
        assert [(event["kind"], event["run_id"], event["position"]) for event in events] == [
            ("run.running", run_id, None),
            ("run.succeeded", run_id, None),
        ]
        (names,) = {event["worker"] for event in events}
        assert names

    def test_it_warns_where_stored_jobs_differ_from_declared_ones_and_stores_nothing(self, cli: Terminal) -> None:
        cli.write("films.py", FILMS)
        cli("db", "migrate")
        answer = cli("worker", "films.py", "--for", "100ms")
        assert answer.code == 0
        assert "Warning: job report is declared but not stored: `mainspring job sync films.py`" in answer.err
        assert cli.json("job", "list") == []
        cli("job", "sync", "films.py")
        assert "Warning" not in cli("worker", "films.py", "--for", "100ms").err
        cli("job", "edit", "report", "--priority", "1")
        assert "job report is stored otherwise than declared" in cli("worker", "films.py", "--for", "100ms").err

    def test_it_waits_for_its_database_and_makes_none(self, cli: Terminal) -> None:
        answer = cli("worker", "--for", "100ms")
        assert answer.code == 1
        assert f"there is no database {cli.folder}/test.db" in answer.err
        assert list(cli.folder.iterdir()) == []
        process = cli.start("worker")
        assert process.stderr is not None
        assert "trying again" in process.stderr.readline()
        cli("db", "migrate")
        until(lambda: len(cli.json("workers")) == 1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0

    @pytest.mark.parametrize(
        ("flags", "queues", "regions"),
        [
            (["--queue", "films", "--queue", "mail", "--region", "eu"], ["films", "mail"], ["eu"]),
            ([], ["default", "slow"], ["default"]),
        ],
        ids=["named", "of the app"],
    )
    def test_it_serves_the_queues_and_regions_that_are_named_or_the_queues_of_its_app(
        self, cli: Terminal, flags: list[str], queues: list[str], regions: list[str]
    ) -> None:
        cli.write("slow.py", FILMS + '\n@app.task(queue="slow")\ndef trim(): ...\n')
        cli("db", "migrate")
        process = cli.start("worker", "slow.py", *flags)
        until(lambda: len(cli.json("workers")) == 1)
        (worker,) = cli.json("workers")
        assert (worker["queues"], worker["regions"]) == (queues, regions)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert cli.json("workers") == []

    def test_a_signal_between_registering_and_working_takes_the_worker_off_the_list(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS + SLOW_START)
        process = cli.start("up", "tasks.py", "--no-api", "--quiet")
        until(lambda: (cli.folder / "test.db").exists() and len(cli.json("workers")) == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert cli.json("workers") == []


class TestReload:
    def test_changed_code_is_run_by_a_new_process_and_a_signal_ends_both(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        process = cli.start("up", "tasks.py", "--reload", "--no-api", "--quiet")
        until(lambda: (cli.folder / "test.db").exists() and len(cli.json("workers")) == 1)
        (first,) = cli.json("workers")
        cli.write("tasks.py", TASKS + "\n@app.task\ndef more(): ...\n")

        def others() -> list[dict[str, Any]]:
            return [each for each in cli.json("workers") if each["worker"] != first["worker"]]

        until(lambda: any("more" in each["tasks"] for each in others()))
        cli.write("tasks.py", "this is no Python")
        until(lambda: cli.json("workers") == [])
        cli.write("tasks.py", TASKS)
        until(lambda: len(cli.json("workers")) == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert cli.json("workers") == []

    def test_a_signal_between_two_processes_ends_it(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        process = cli.start("up", "tasks.py", "--reload", "--no-api", "--quiet")
        until(lambda: (cli.folder / "test.db").exists() and len(cli.json("workers")) == 1)
        run_id = cli.json("run", "submit", "nap", "--arg", "seconds=600")["run_id"]
        until(lambda: state_of(cli, run_id) == "running")
        cli.write("tasks.py", TASKS + "\n")
        until(lambda: [each["state"] for each in cli.json("workers")] == ["draining"])
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        assert not [each for each in cli.json("workers") if each["state"] == "active"]

    def test_a_wrong_option_ends_it(self, cli: Terminal) -> None:
        answer = cli.finish("up", "--reload", "--concurrency", "0")
        assert answer.code == 2
        assert "concurrency: 0 is not a count" in answer.err


class TestBurst:
    def test_a_worker_stops_when_nothing_is_due_or_running(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        first = cli.json("run", "submit", "nap", "--arg", "seconds=0.5")["run_id"]
        then = cli.json("run", "submit", "nap", "--arg", "seconds=0", "--after", first)["run_id"]
        retried = cli.json("run", "submit", "fails", "--app", "tasks.py")["run_id"]
        later = cli.json("run", "submit", "nap", "--arg", "seconds=0", "--delay", "1h")["run_id"]
        unknown = cli.json("run", "submit", "elsewhere")["run_id"]
        answer = cli.finish("worker", "tasks.py", "--burst")
        assert answer.code == 0, answer.err
        states = [state_of(cli, run_id) for run_id in (first, then, retried, later, unknown)]
        assert states == ["succeeded", "succeeded", "pending", "pending", "pending"]

    def test_it_waits_for_what_other_workers_run_in_its_queues(self, cli: Terminal) -> None:
        process, run_id = up_with_running(cli, "nap", "--arg", "seconds=3")
        assert cli.finish("worker", "tasks.py", "--burst").code == 0
        assert state_of(cli, run_id) == "succeeded"
        process.terminate()
        process.wait(PATIENCE_S)

    def test_a_paused_queue_counts_as_empty(self, cli: Terminal) -> None:
        cli.write("tasks.py", TASKS)
        run_id = cli.json("run", "submit", "nap", "--arg", "seconds=0")["run_id"]
        cli.json("queues", "--pause", "default")
        assert cli.finish("worker", "tasks.py", "--burst").code == 0
        assert state_of(cli, run_id) == "pending"

    def test_it_fails_if_it_is_stopped_before(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_DRAIN_GRACE", "100ms")
        cli.write("tasks.py", TASKS)
        run_id = cli.json("run", "submit", "nap", "--arg", "seconds=600")["run_id"]
        answer = cli.finish("worker", "tasks.py", "--burst", "--for", "2s")
        assert answer.code == 1
        assert "stopped before its queues were empty" in answer.err
        assert state_of(cli, run_id) == "pending"
