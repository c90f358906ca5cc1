"""Commands over HTTP: each of them, the same answers as from a database, and the many ways of not being a server."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from test_cli import every_command

from cli_work import FILMS, Answer, Served, Terminal
from mainspring.conformance.store.samples import a_worker, success
from mainspring.core.instants import HOUR

ERRANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("job", "list"): (),
    ("job", "show"): ("a",),
    ("job", "next"): ("a",),
    ("job", "add"): ("a", "--every", "1h", "--task", "encode"),
    ("job", "edit"): ("a", "--priority", "1"),
    ("job", "sync"): ("films.py",),
    ("job", "pause"): ("a",),
    ("job", "resume"): ("a",),
    ("job", "remove"): ("a",),
    ("job", "trigger"): ("a",),
    ("job", "simulate"): ("a", "--overlap", "forbid"),
    ("job", "backfill"): ("a", "--from", "2024-03-01T00:00Z", "--to", "2024-03-03T00:00Z"),
    ("run", "submit"): ("encode",),
    ("run", "list"): (),
    ("run", "show"): ("a",),
    ("run", "logs"): ("a",),
    ("run", "wait"): ("a",),
    ("run", "cancel"): ("a",),
    ("run", "retry"): ("a",),
    ("run", "dead-letters"): (),
    ("workers",): (),
    ("drain",): ("w1",),
    ("calendar", "list"): (),
    ("calendar", "show"): ("a",),
    ("calendar", "save"): ("a", "--weekends"),
    ("calendar", "remove"): ("a",),
    ("events",): ("--limit", "1"),
    ("audit",): (),
    ("cluster",): (),
    ("regions",): (),
    ("versions",): (),
    ("settings",): (),
    ("queues",): (),
    ("errors",): (),
    ("service-levels",): (),
    ("load",): (),
    ("run", "act"): ("retry", "--state", "failed", "--dry-run"),
    ("cost",): (),
    ("advise",): ("--measured",),
    ("forecast",): (),
    ("top",): ("--once",),
}
"""Every command that works against a server, and what it takes."""
NOT_SENT = (
    *("up", "server", "worker", "token", "db", "simulate", "completion"),
    *("scale", "export", "import", "backup", "doctor", "ui", "drill"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    yield server
    server.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.write("films.py", FILMS)
    yield terminal
    terminal.close()


@pytest.fixture(scope="module")
def nowhere() -> str:
    """The URL of a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


class Impostor:
    """A web server that is not Mainspring, or not of this version."""

    def __init__(self, answers: dict[str, tuple[int, str, str]], context: ssl.SSLContext | None = None) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = answers.get(self.path.partition("?")[0]) or answers["*"]
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def problem(kind: str, status: int, detail: str) -> tuple[int, str, str]:
    words = {"type": f"urn:mainspring:problem:{kind}", "title": "", "status": status, "detail": detail}
    return status, "application/problem+json", json.dumps({**words, "request_id": "r"})


def reported(answer: Answer, code: int, *words: str) -> None:
    """An error in one or two lines, without a traceback."""
    assert (answer.code, answer.out) == (code, ""), answer
    assert "Traceback" not in answer.err
    assert answer.err.startswith("Error: ")
    for word in words:
        assert word in answer.err


class TestEveryCommand:
    def test_the_table_has_all_that_is_about_jobs_runs_and_workers(self) -> None:
        assert {path for path in every_command() if path[0] not in NOT_SENT} == set(ERRANDS)

    @pytest.mark.parametrize("path", ERRANDS, ids=" ".join)
    def test_each_asks_the_server_alone(self, cli: Terminal, path: tuple[str, ...], nowhere: str) -> None:
        answer = cli(*path, *ERRANDS[path], "--server", nowhere, "--token", "t")
        reported(answer, 1, f"there is no server at {nowhere}", "mainspring server")
        assert [each.name for each in cli.folder.iterdir() if each.suffix == ".db"] == []

    @pytest.mark.parametrize("path", ERRANDS, ids=" ".join)
    def test_each_is_refused_without_a_token(self, cli: Terminal, path: tuple[str, ...], served: Served) -> None:
        answer = cli(*path, *ERRANDS[path], "--server", served.url)
        reported(answer, 4, "there is no token", "MAINSPRING_TOKEN", "mainspring token create")

    def test_the_others_have_no_server_to_ask(self, cli: Terminal) -> None:
        for path in every_command():
            if path != ("drill", "run"):  # Its servers are those of the site that it drills.
                assert ("--server" in cli(*path, "--help").out) == (path in ERRANDS), path


JOURNEY: tuple[tuple[str, ...], ...] = (
    ("workers",),
    ("job", "list"),
    ("job", "add", "b", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--task", "encode", "--timeout", "5m"),
    ("job", "add", "a", "--every", "1h", "--command", "echo 'a b'", "--tag", "x", "--isolation", "limits,memory=1GB"),
    (
        "job",
        "add",
        "c",
        "--after",
        "a",
        "--after",
        "b",
        "--http",
        "https://example.org/",
        "--arg",
        "method=PUT",
        "--under-pressure",
        "run",
    ),
    ("job", "add", "a", "--manual", "--task", "encode"),
    ("job", "edit", "b", "--retries", "7", "--alert", "tell", "--grace", "20s", "--tag", "y"),
    ("job", "edit", "b", "--timeout", "none", "--tag", "none", "--retry-policy", "fixed-5m"),
    ("job", "edit", "a", "--isolation", "none", "--start", "2190-01-01T00:00", "--tz", "Europe/Berlin"),
    ("job", "pause", "a", "c", "--reason", "audit"),
    ("job", "show", "a"),
    ("job", "show", "b"),
    ("job", "show", "c"),
    ("job", "resume", "c", "--reason", "done"),
    ("job", "next", "b", "-n", "3"),
    ("job", "next", "b", "-n", "2", "--tz", "Asia/Tokyo"),
    ("job", "next", "c"),
    ("job", "trigger", "b", "--request-id", "r1"),
    ("job", "trigger", "b", "--request-id", "r1"),
    ("job", "backfill", "b", "--from", "2024-03-01T00:00Z", "--to", "2024-03-03T00:00Z", "--dry-run"),
    ("job", "backfill", "b", "--from", "2024-03-01T00:00", "--to", "2024-03-03T00:00", "--tz", "Asia/Tokyo", "--yes"),
    ("job", "backfill", "b", "--from", "2024-03-02T00:00Z", "--to", "2024-03-01T00:00Z"),
    ("job", "backfill", "c", "--from", "2024-03-01T00:00Z", "--to", "2024-03-03T00:00Z"),
    ("job", "list", "--tag", "x"),
    ("job", "list"),
    ("run", "list", "--job", "b"),
    ("run", "submit", "encode", "--arg", "video=v1", "--key", "k", "--tag", "z", "--delay", "1h", "--expires", "2h"),
    ("run", "submit", "encode", "--arg", "video=v2", "--key", "k", "--priority", "2", "--soft-timeout", "9s"),
    ("run", "submit", "encode", "--arg", "video=v2", "--timeout", "9s", "--total-timeout", "1m", "--json"),
    ("run", "submit", "encode", "--arg", "video=v2", "--timeout", "9s", "--total-timeout", "8s"),
    ("run", "submit", "encode", "--priority", "11"),
    ("run", "submit", "--command", "sleep 1", "--timeout", "5s", "--retries", "0"),
    ("run", "submit", "encode", "--app", "films.py", "--arg", "video=v3"),
    ("run", "submit", "encode", "--app", "films.py", "--arg", "vidoe=v3"),
    ("run", "list"),
    ("run", "list", "--state", "blocked", "--state", "running", "-n", "1"),
    ("run", "show", "zzz"),
    ("run", "logs", "zzz"),
    ("run", "cancel", "--task", "encode"),
    ("run", "cancel", "--task", "encode", "--yes", "--reason", "no more"),
    ("run", "retry", "--state", "cancelled", "--yes"),
    ("run", "list"),
    ("job", "sync", "films.py"),
    ("job", "sync", "films.py", "--undeclared", "pause"),
    ("calendar", "list"),
    ("calendar", "save", "free", "--tz", "Europe/Berlin", "--weekends", "--date", "12-25", "--only", "09:00/17:00"),
    ("calendar", "save", "free", "--date", "13-25"),
    ("calendar", "save", "wide", "--calendar", "free", "--daily", "22:00/06:00", "--blackout", "2190-01-01/2190-01-02"),
    ("calendar", "list"),
    ("calendar", "show", "free"),
    ("calendar", "show", "none"),
    ("run", "dead-letters"),
    ("drain", "nobody"),
    ("job", "remove", "a"),
    ("job", "remove", "a", "b", "c"),
    ("job", "show", "a"),
    ("job", "list"),
)


def without_what_differs(text: str) -> str:
    """Ids, instants, times from now, the owner of a job and the submitter of a run differ each time, and with their
    lengths where lines end."""
    text = re.sub(r"(?m)^Page: .*\n", "", text)  # Only a server has pages.
    text = re.sub(r"\b[0-9a-z]{26}\b", "ID", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d\d:\d\d|Z)?", "INSTANT", text)
    text = re.sub(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "DAY", text)
    text = re.sub(r"\b((\d+h)?(\d+m)?\d+(\.\d+)?m?s|\d+d(\d+h)?|\d+h(\d+m)?|\d+m|now)\b", "SPAN", text)
    text = re.sub(r"\bin SPAN\b|\bSPAN ago\b", "SPAN", text)
    text = re.sub(r"\bSPAN(\s+SPAN)+\b", "SPAN", text)  # What was due a moment ago may not have waited yet.
    text = re.sub(r"\b[0-9a-z]{8}\b", "SHORT", text)
    text = re.sub(r'"(api|cli)"|\b(api|cli)(?= · version)', "OWNER", text)
    text = re.sub(r'"submitted_by": (null|"ann")', "SUBMITTER", text).replace("SPAN) by ann", "SPAN)")
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["for people", "for programs"])
def test_a_server_gives_the_same_answers_as_a_database(
    cli: Terminal, served: Served, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # Tables leave out columns by what fits, and spans of time differ in length.

    def travel() -> list[Answer]:
        return [cli(*words, *flags) for words in JOURNEY]

    cli("db", "migrate")
    stored = travel()
    cli.connect(served)
    for words, here, there in zip(JOURNEY, stored, travel(), strict=True):
        assert there.code == here.code, (words, here, there)
        assert without_what_differs(there.out) == without_what_differs(here.out), words
        assert without_what_differs(there.err) == without_what_differs(here.err), words


def test_a_run_is_seen_through_over_a_server(cli: Terminal, served: Served) -> None:
    cli.connect(served)
    run_id = cli.json("run", "submit", "encode", "--arg", "video=v1")["run_id"]
    cli.announce()
    reported(cli("run", "wait", run_id, "--timeout", "10ms"), 1, f"run {run_id} is still pending after 0.01 s")
    cli.execute(lambda claim: success(claim, '"v1@4K"'))
    answer = cli("run", "wait", run_id[-8:])
    assert (answer.code, answer.out) == (0, '"v1@4K"\n')
    assert cli("run", "logs", run_id, "-f").err == "It wrote nothing.\n"
    assert [worker["worker"] for worker in cli.json("workers")] == ["w1"]


class TestWhoIsAsked:
    def test_a_flag_overrules_the_environment(self, cli: Terminal, served: Served, nowhere: str) -> None:
        cli("db", "migrate")
        cli.connect(served)
        cli("job", "add", "there", "--manual", "--task", "encode")
        assert [job["name"] for job in cli.json("job", "list")] == ["there"]
        assert cli.json("job", "list", "--store", "sqlite:///test.db") == []
        assert cli("job", "list", "--server", nowhere).code == 1
        both = cli("job", "list", "--server", nowhere, "--store", "sqlite:///test.db")
        assert (both.code, "not both" in both.err) == (2, True)

    def test_the_file_of_settings_may_name_it(
        self, cli: Terminal, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        served.reset()
        cli.write("mainspring.toml", f'server = "{served.url}"\ntoken = "{served.token("viewer")}"')
        assert cli.json("job", "list") == []
        reported(cli("run", "submit", "encode"), 4, "runs:submit", "ask for a token with that permission")

    def test_a_caller_that_may_only_submit_still_gets_the_id(self, cli: Terminal, served: Served) -> None:
        cli.connect(served)
        token = served.token("runs:submit")
        answer = cli("run", "submit", "encode", "--token", token)
        assert (answer.code, len(answer.out)) == (0, 27)
        reported(cli("run", "submit", "--command", "true", "--token", token), 4, "run:command")

    def test_names_are_completed_by_what_the_server_knows(
        self, cli: Terminal, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cli.connect(served)
        cli("job", "add", "nightly", "--every", "1h", "--command", "true")
        monkeypatch.setenv("_MAINSPRING_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "mainspring job show ni")
        monkeypatch.setenv("COMP_CWORD", "3")
        assert cli.finish().out.splitlines() == ["plain,nightly"]


def test_a_command_on_a_database_needs_no_client(cli: Terminal) -> None:
    script = (
        "import sys; from mainspring.cli.main import run; run(['db', 'migrate']); run(['job', 'list']); "
        "print({'httpx', 'litestar', 'mainspring.client'} & set(sys.modules))"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert seen.stdout.splitlines()[-1] == "set()"


class TestTrouble:
    @pytest.mark.parametrize(
        "url", ["127.0.0.1:8321", "ftp://host", "http://", "http://h:port", "http://h/?x=1", "https://u:p@host", "x"]
    )
    def test_what_is_no_url_is_named(self, cli: Terminal, url: str) -> None:
        reported(cli("job", "list", "--server", url), 2, "server: ", "Try:")
        assert "u:p" not in cli("job", "list", "--server", url).err

    def test_a_host_name_that_does_not_exist(self, cli: Terminal) -> None:
        reported(
            cli("job", "list", "--server", "http://nobody.invalid:1"),
            1,
            "there is no server at http://nobody.invalid:1",
        )

    @pytest.mark.parametrize(
        ("spoil", "words"),
        [
            (lambda served: "nonsense", "the token is not valid"),
            (lambda served: served.token("admin")[:-4] + "AAAA", "the token is not valid"),
            (lambda served: served.token("admin", lifetime=-HOUR), "expired"),
        ],
        ids=["nonsense", "forged", "expired"],
    )
    def test_a_token_that_is_not_good(self, cli: Terminal, served: Served, spoil: Any, words: str) -> None:
        reported(cli("job", "list", "--server", served.url, "--token", spoil(served)), 4, words, "MAINSPRING_TOKEN")

    def test_a_server_that_speaks_no_tls(self, cli: Terminal, served: Served) -> None:
        answer = cli("job", "list", "--server", served.url.replace("http:", "https:"))
        reported(answer, 1, "does not speak TLS", f"did you mean {served.url}?")

    def test_an_untrusted_certificate(self, cli: Terminal, certificate: ssl.SSLContext) -> None:
        with Impostor({"*": (200, "text/html", "")}, certificate) as server:
            https = f"https://127.0.0.1:{server.port}"
            reported(cli("job", "list", "--server", https), 1, "the certificate of", "self-signed", "SSL_CERT_FILE")
            reported(cli("job", "list", "--server", server.url), 1, server.url)

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ((404, "text/html", "<h1>nginx</h1>"), "is not Mainspring's API (it said 404 Not Found, text/html)"),
            ((200, "text/html", "<h1>welcome</h1>"), "is not Mainspring's API (it said 200 OK, text/html)"),
            ((401, "application/json", '{"error": "who?"}'), "is not Mainspring's API"),
            ((502, "text/html", "<h1>bad gateway</h1>"), "the server itself may be down"),
            ((301, "text/html", ""), "sends its callers on"),
        ],
    )
    def test_what_answers_is_something_else(self, cli: Terminal, answer: tuple[int, str, str], words: str) -> None:
        with Impostor({"*": answer}) as server:
            reported(cli("job", "list", "--server", server.url), 1, words)

    def test_what_answers_does_not_speak_http(self, cli: Terminal) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def greet() -> None:
                while True:
                    try:
                        connection = listener.accept()[0]
                    except OSError:
                        return
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

            threading.Thread(target=greet, daemon=True).start()
            answer = cli("job", "list", "--server", f"http://127.0.0.1:{listener.getsockname()[1]}")
            listener.shutdown(socket.SHUT_RDWR)
        reported(answer, 1, "does not speak HTTP")

    @pytest.mark.parametrize(
        "answer",
        [
            (200, "application/json", '{"items": [{"name": "a job of another age"}], "next": null}'),
            problem("not-found", 404, "nothing is served at this path"),
            problem("bad-request", 400, "last is not a parameter of this request"),
        ],
        ids=["other answers", "other paths", "other words"],
    )
    @pytest.mark.parametrize("version", ["0.0.9", "99.0"])
    def test_a_server_of_another_version(self, cli: Terminal, answer: tuple[int, str, str], version: str) -> None:
        document = (200, "application/json", json.dumps({"info": {"version": version}}))
        with Impostor({"*": answer, "/openapi.json": document}) as server:
            words = f"is mainspring {version}, this program is mainspring", "use the same version on both sides"
            reported(cli("job", "list", "--server", server.url), 1, *words)

    def test_programs_get_all_that_is_wrong_as_json(self, cli: Terminal, served: Served) -> None:
        cli.connect(served)
        words = ("job", "add", "a", "--cron", "0 2 * * *", "--task", "encode", "--calendar", "one", "--calendar", "two")
        answer = cli(*words, "--json")
        assert answer.code == 2
        assert json.loads(answer.err)["field"] == "calendar"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """One that its owner signed."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_a_worker_that_is_silent_is_dead_on_both_sides(cli: Terminal, served: Served) -> None:
    cli.connect(served)
    cli.store(lambda store: store.register(a_worker("old")), ahead=-HOUR)
    assert cli.json("workers") == []
    assert [worker["state"] for worker in cli.json("workers", "--all")] == ["dead"]
