"""The command line as a whole: start-up, help, errors, exit codes, colours, the database, completion."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
import pytest

from cli_work import FILMS, Terminal
from mainspring.cli.lazy import LazyGroup, RemoteVerb
from mainspring.cli.main import cli as root
from mainspring.cli.output.errors import explain
from mainspring.cli.session import LOCAL, Session
from mainspring.errors import RunFailed, StoreFull, StoreReadOnly, WaitTimeout
from mainspring.stores.sql import load_migrations
from mainspring.version import VERSION

READERS = (
    ("job", "list"),
    ("job", "show", "a"),
    ("job", "next", "a"),
    ("job", "edit", "a", "--priority", "1"),
    ("job", "pause", "a"),
    ("job", "trigger", "a"),
    ("run", "list"),
    ("run", "show", "a"),
    ("run", "logs", "a"),
    ("run", "wait", "a"),
    ("run", "cancel", "a"),
    ("run", "retry", "a"),
    ("workers",),
    ("cluster",),
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    yield terminal
    terminal.close()


@contextmanager
def without_root() -> Iterator[None]:
    """Permissions mean nothing to root: act as another user meanwhile."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def every_command(group: LazyGroup = root, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, entry in group.entries.items():
        if isinstance(entry, LazyGroup):
            yield from every_command(entry, (*path, name))
        else:
            yield (*path, name)


class TestHelp:
    def test_it_imports_nothing_that_only_commands_need(self, cli: Terminal) -> None:
        heavy = ["rich", "asyncio", "msgspec", "sqlite3", "mainspring.sdk.app", "mainspring.core.schedules.cron"]
        script = (
            "import sys; from mainspring.cli.main import run; run(['--help']); run(['job', '--help']); "
            f"print(sorted(set({heavy}) & set(sys.modules)))"
        )
        seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert seen.stdout.splitlines()[-1] == "[]"

    @pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
    def test_every_command_has_it_and_takes_what_every_command_takes(
        self, cli: Terminal, path: tuple[str, ...]
    ) -> None:
        answer = cli(*path, "--help")
        assert answer.code == 0
        for option in ("--json", "--store", "--color", "--debug"):
            assert option in answer.out

    def test_it_says_in_one_line_what_each_command_does(self, cli: Terminal) -> None:
        for path in (("job",), ("run",), ("db",)):
            lines = cli(*path, "--help").out.partition("Commands:")[2].strip().splitlines()
            assert all(len(line.split(maxsplit=1)) == 2 and line.endswith(".") for line in lines), lines

    def test_the_commands_of_the_program_are_listed_by_purpose(self, cli: Terminal) -> None:
        text = cli("--help").out.partition("Run it:")[2]
        parts = [part.strip().splitlines() for part in text.split("\n\n")]
        assert [part[0] for part in parts[1:]] == ["Jobs and runs:", "See what happens:", "Plan ahead:", "Operate it:"]
        listed = [line.split()[0] for part in [parts[0], *(part[1:] for part in parts[1:])] for line in part]
        assert listed == list(root.entries)

    def test_the_version_is_printed(self, cli: Terminal) -> None:
        assert cli("--version").out == f"mainspring {VERSION}\n"

    def test_a_misspelt_command_is_answered_with_the_nearest(self, cli: Terminal) -> None:
        answer = cli("job", "lst")
        assert answer.code == 2
        assert "There is no command 'lst'. Did you mean 'list'?" in answer.err


class TestErrors:
    @pytest.mark.parametrize("args", READERS, ids=lambda args: " ".join(args[:2]))
    def test_a_command_that_only_reads_makes_no_database(self, cli: Terminal, args: tuple[str, ...]) -> None:
        answer = cli(*args)
        assert answer.code == 1
        assert f"there is no database at sqlite:///test.db ({cli.folder}/test.db) yet" in answer.err
        assert "mainspring db migrate" in answer.err
        assert list(cli.folder.iterdir()) == []

    def test_an_error_names_the_field_the_value_and_the_remedy(self, cli: Terminal) -> None:
        answer = cli("job", "add", "a", "--every", "5 parsecs", "--command", "true")
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.splitlines()[0] == "Error: every: '5 parsecs' is not a duration"
        assert answer.err.splitlines()[1].startswith('Try:   write it like "30s"')

    def test_programs_get_errors_as_json_on_stderr(self, cli: Terminal) -> None:
        answer = cli("job", "add", "a", "--every", "5 parsecs", "--command", "true", "--json")
        assert (answer.code, answer.out) == (2, "")
        reported = json.loads(answer.err)
        assert (reported["field"], reported["value"]) == ("every", "5 parsecs")
        assert "30s" in reported["remedy"]
        reported = json.loads(cli("job", "add", "a", "--overlap", "maybe", "--json").err)
        assert "'maybe' is not one of" in reported["error"]

    def test_a_traceback_is_shown_only_on_request(self, cli: Terminal) -> None:
        cli("db", "migrate")
        assert "Traceback" not in cli("run", "show", "abc").err
        assert "Traceback" in cli("run", "show", "abc", "--debug").err

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (StoreFull("the disk that holds a.db is full: nothing was written"), 1, "full"),
            (StoreReadOnly("a.db cannot be written"), 4, "cannot be written"),
            (RunFailed("r1", "failed", "no"), 3, "run r1 failed: no"),
            (WaitTimeout("run r1 has not ended"), 1, "has not ended"),
            (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero"),
            (click.exceptions.Abort(), 130, "Stopped"),
        ],
    )
    def test_every_kind_of_trouble_has_its_exit_code(
        self, error: Exception, code: int, words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert explain(error, Session()) == code
        reported = capsys.readouterr().err
        assert words in reported
        assert "Traceback" not in reported

    def test_a_reader_that_has_seen_enough_is_no_trouble(self, cli: Terminal) -> None:
        cli("db", "migrate")
        reader, writer = os.pipe()
        os.close(reader)
        process = cli.start("run", "list", "--json", stdout=writer)
        os.close(writer)
        assert process.communicate(timeout=30)[1] == ""


class TestDatabase:
    def test_it_is_created_by_migrate_and_described_by_status(self, cli: Terminal) -> None:
        assert cli.json("db", "status")["exists"] is False
        assert "there is no database yet" in cli("db", "status").out
        assert cli.json("db", "migrate") == {
            "store": "sqlite:///test.db", "path": "test.db", "from_version": 0,
            "version": load_migrations("sqlite")[-1].version,
        }  # fmt: skip
        cli("run", "submit", "encode")
        status = cli.json("db", "status")
        assert (status["exists"], status["usable"], status["version"]) == (True, True, status["latest"])
        assert (status["jobs"], status["runs"]["pending"], status["runs"]["failed"]) == (0, 1, 0)
        assert "up to date" in cli("db", "status").out
        assert "is up to date" in cli("db", "migrate").out

    def test_a_file_that_is_no_database_is_left_alone(self, cli: Terminal) -> None:
        cli.write("test.db", "Dear diary, today I was a text file.\n" * 100)
        before = (cli.folder / "test.db").read_text()
        for args in (("job", "list"), ("db", "migrate"), ("up", "--for", "1s"), ("run", "submit", "encode")):
            answer = cli(*args)
            assert answer.code == 1
            assert "test.db is not a database" in answer.err
        assert (cli.folder / "test.db").read_text() == before

    def test_the_database_of_another_program_is_left_alone(self, cli: Terminal) -> None:
        with closing(sqlite3.connect(cli.folder / "test.db", isolation_level=None)) as connection:
            connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.close()
        answer = cli("job", "add", "a", "--every", "1h", "--command", "true")
        assert answer.code == 1
        assert "test.db is a SQLite database, but not one of Mainspring's: name another file" in answer.err

    def test_one_that_needs_a_newer_program_is_refused(self, cli: Terminal) -> None:
        cli("db", "migrate")
        with closing(sqlite3.connect(cli.folder / "test.db", isolation_level=None)) as connection:
            connection.execute("UPDATE migrations SET oldest = 99")
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        answer = cli("job", "list")
        assert answer.code == 1
        assert "needs a program that knows at least version 99" in answer.err
        assert "Install a newer mainspring" in answer.err
        status = cli("db", "status")
        assert (status.code, "Install a newer mainspring" in status.out) == (1, True)

    def test_one_that_cannot_be_written_is_refused_with_what_to_check(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with tempfile.TemporaryDirectory() as name:  # Not the test's own folder: no other user may enter that.
            folder = Path(name)
            monkeypatch.chdir(folder)
            assert cli("run", "submit", "encode").code == 0
            (folder / "test.db").chmod(0o444)
            folder.chmod(0o555)
            with without_root():
                answer = cli("run", "submit", "encode")
            folder.chmod(0o755)
        assert answer.code == 4
        assert "cannot be written: check the permissions" in answer.err

    def test_a_folder_that_does_not_exist_is_named(self, cli: Terminal) -> None:
        answer = cli("db", "migrate", "--store", f"sqlite:///{cli.folder}/nowhere/test.db")
        assert answer.code == 1
        assert f"the folder {cli.folder}/nowhere does not exist" in answer.err

    @pytest.mark.parametrize("url", ["test.db", "redis://localhost", "postgresql://:::/db", "sqlite://", ""])
    def test_a_store_that_is_none_is_refused(self, cli: Terminal, url: str) -> None:
        answer = cli("job", "list", "--store", url)
        assert answer.code == 2
        assert answer.err.startswith("Error: store: ")
        assert "Try:" in answer.err

    def test_it_is_chosen_by_flag_before_environment_before_file(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cli.write("mainspring.toml", 'store = "sqlite:///by-file.db"')
        assert cli.json("db", "status", "--store", "sqlite:///by-flag.db")["path"] == "by-flag.db"
        assert cli.json("db", "status")["path"] == "test.db"
        monkeypatch.delenv("MAINSPRING_STORE")
        assert cli.json("db", "status")["path"] == "by-file.db"


class TestColours:
    def test_they_are_for_terminals_unless_asked_for(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        cli("job", "add", "a", "--every", "1h", "--command", "true")
        assert "\x1b[" not in cli("job", "show", "a").out
        assert "\x1b[32mactive" in cli("job", "show", "a", "--color", "always").out
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b[" not in cli("job", "show", "a", "--color", "auto").out

    def test_a_narrow_terminal_gets_fewer_columns_not_narrower_ones(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_id = cli.json("run", "submit", "encode-the-film-of-the-day", "--delay", "1h")["run_id"]
        for columns in (40, 50, 60, 79):
            monkeypatch.setenv("COLUMNS", str(columns))
            answer = cli("run", "list")
            header, row = answer.out.splitlines()
            assert len(header) <= columns
            assert header.split()[:2] == ["RUN", "STATE"]
            assert row.split()[:2] == [run_id[-8:], "pending"], "what identifies it is whole"
            assert ("Not shown, for want of room: WAITED" in answer.err) == ("WAITED" not in header)

    def test_text_of_strangers_cannot_steer_the_terminal(self, cli: Terminal) -> None:
        cli("run", "submit", "encode", "--arg", "video=x", "--tag", "[red]bold")
        (run,) = cli.json("run", "list")
        cli("run", "cancel", run["run_id"], "--reason", "\x1b]0;owned\x07 [blink]no")
        shown = cli("run", "show", run["run_id"]).out
        assert "[red]bold" in shown
        assert "[blink]no" in shown
        assert "\x1b" not in shown
        assert "\x07" not in shown


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_script_is_printed_for_each_shell(self, cli: Terminal, shell: str) -> None:
        script = cli("completion", shell).out
        assert "_MAINSPRING_COMPLETE" in script
        assert cli.json("completion", shell) == {"shell": shell, "script": script.removesuffix("\n")}

    def test_commands_options_jobs_and_runs_are_completed(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        cli("job", "add", "nightly", "--every", "1h", "--command", "true")
        cli("run", "submit", "encode")
        (run,) = cli.json("run", "list")
        for typed, offered in (
            ("job sh", "show"),
            ("job add x --overlap ", "forbid"),
            ("job show ni", "nightly"),
            ("run show ", run["run_id"][-8:]),
        ):
            words = ["mainspring", *typed.split(" ")]
            monkeypatch.setenv("_MAINSPRING_COMPLETE", "bash_complete")
            monkeypatch.setenv("COMP_WORDS", " ".join(words))
            monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
            assert f"plain,{offered}" in cli.finish().out.splitlines()

    def test_without_a_database_no_names_are_offered(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("_MAINSPRING_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "mainspring job show ")
        monkeypatch.setenv("COMP_CWORD", "3")
        answer = cli.finish()
        assert (answer.code, answer.out.strip(), answer.err) == (0, "", "")


class TestApps:
    def test_an_app_that_cannot_be_imported_shows_its_own_traceback_only(self, cli: Terminal) -> None:
        cli.write("broken.py", FILMS + "\ndef fail():\n    return 1 / 0\n\nfail()\n")
        for command in (("up",), ("worker",), ("job", "sync")):
            answer = cli(*command, "broken.py")
            assert answer.code == 1
            assert answer.err.count("Traceback") == 1
            assert 'broken.py", line' in answer.err
            assert "mainspring/" not in answer.err
            assert answer.err.rstrip().splitlines()[-1].startswith("Error: broken.py could not be imported")
        assert not (cli.folder / "test.db").exists()

    def test_a_wrong_value_in_an_app_is_named_with_its_line(self, cli: Terminal) -> None:
        cli.write("typo.py", FILMS + '\nfrom mainspring import cron\napp.job(cron("0 25 * * *"))(print)\n')
        answer = cli("up", "typo.py")
        assert answer.code == 2
        line = FILMS.count("\n") + 3
        assert answer.err.startswith(f"Error: typo.py, line {line}: cron: '0 25 * * *' cannot be used: hour '25'")
        assert "use 0 to 23" in answer.err
        assert "Traceback" not in answer.err

    @pytest.mark.parametrize(
        ("ref", "words"),
        [
            ("missing.py", "there is no file missing.py"),
            ("no_such_module:app", "there is no module no_such_module"),
            ("films.py:spp", "has no 'spp'. The apps in it: app"),
        ],
    )
    def test_an_app_that_is_not_there_is_named(self, cli: Terminal, ref: str, words: str) -> None:
        cli.write("films.py", FILMS)
        answer = cli("job", "sync", ref)
        assert answer.code == 2
        assert words in answer.err
        assert "Traceback" not in answer.err


class TestHints:
    def test_commands_in_hints_and_errors_reach_what_the_command_line_named(self, cli: Terminal) -> None:
        place = ("--store", "sqlite:///other.db", "--namespace", "shop")
        told = cli("run", "submit", "--command", "true", *place)
        hint, warning = told.err.splitlines()
        assert hint.endswith("--store sqlite:///other.db --namespace shop")
        assert "`mainspring up --store sqlite:///other.db --namespace shop`" in warning
        wrong = cli("run", "show", "nothing", *place)
        assert "`mainspring run list --store sqlite:///other.db --namespace shop`" in wrong.err

    def test_a_remedy_names_the_namespace_also_where_no_command_line_does(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = cli("run", "submit", "--command", "true", "--namespace", "shop").out.strip()
        monkeypatch.setenv("MAINSPRING_NAMESPACE", "shop")
        (cause,) = json.loads(cli("run", "show", run, "--json").out)["causes"]
        assert "`mainspring worker APP --namespace shop`" in cause["remedy"]
        attention = json.loads(cli("top", "--once", "--json").out)["attention"]
        assert any("`mainspring worker APP --namespace shop`" in each["remedy"] for each in attention)
        assert "APP --namespace shop`" in cli("run", "show", run, "--namespace", "shop").out

    def test_a_command_ends_before_the_program_that_it_starts(self) -> None:
        session = Session(namespace="a b")
        completed = session.complete("Say `mainspring scale --max 2 -- worker APP`.")
        assert completed == "Say `mainspring scale --max 2 --namespace 'a b' -- worker APP`."

    def test_a_password_is_not_repeated(self) -> None:
        session = Session(store="postgresql://ann:secret@db/shop")
        assert session.complete("Watch it: mainspring run wait 3f8k") == (
            "Watch it: mainspring run wait 3f8k --store URL"
        )

    def test_a_server_is_named_where_a_server_can_answer(self) -> None:
        session = Session(server="http://a:8321")
        assert session.complete("`mainspring run list`") == "`mainspring run list --server http://a:8321`"
        assert session.complete("`mainspring worker APP`") == "`mainspring worker APP`"

    def test_the_commands_that_only_a_store_can_answer_are_known(self) -> None:
        takes_server = set()
        for path in every_command():
            command: click.Command | None = root
            for name in path:
                assert isinstance(command, LazyGroup)
                command = command.get_command(click.Context(root), name)
            if isinstance(command, RemoteVerb):
                takes_server.add(path[0])
        assert takes_server == set(root.entries) - LOCAL
