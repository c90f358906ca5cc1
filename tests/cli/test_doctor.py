"""`mainspring doctor`: what works, what does not, and what to do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis import Redis

from broker_servers import find_server
from mainspring.cli.main import run
from mainspring.testing.chaos.inside.timing import FAKETIME
from store_places import on_server, places


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = run(["doctor", "--json", *args])
    found = json.loads(capsys.readouterr().out)
    return code, {each["part"]: each for each in found}


def test_a_store_alone_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path / 'a.db'}"
    code, found = ask(capsys, "--store", store)
    assert code == 0
    assert "no database yet" in found["store"]["detail"]
    assert not (tmp_path / "a.db").exists()
    run(["db", "migrate", "--store", store])
    capsys.readouterr()
    code, found = ask(capsys, "--store", store)
    assert (code, found["store"]["state"], found["clock"]["state"]) == (0, "good", "good")
    assert found["store"]["version"] == f"SQLite {sqlite3.sqlite_version}"
    assert {found[part]["state"] for part in ("broker", "lease", "cache", "sink")} == {"unused"}


@pytest.mark.parametrize(
    "url",
    ["redis://127.0.0.1:1", "amqp://127.0.0.1:1", "kafka://127.0.0.1:1", "sqs://k:s@r?endpoint=http://127.0.0.1:1"],
)
def test_a_broker_that_is_not_there_fails_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", url)
    assert code == 1
    assert found["broker"]["state"] == "failed"
    assert "127.0.0.1:1" in found["broker"]["where"]
    assert "start the server, or correct the host and port in `broker`" in found["broker"]["remedy"]


def test_a_broker_that_answers_and_may_not_be_written_to_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, user = find_server("REDIS"), f"reader-{secrets.token_hex(4)}"
    with Redis.from_url(url) as admin:
        admin.acl_setuser(user, enabled=True, passwords=["+secret"], keys=["*"], commands=["+ping", "+client"])
        try:
            allowed = url.replace("://", f"://{user}:secret@")
            code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", allowed)
            assert (code, found["broker"]["state"]) == (1, "failed")
            assert "grant the permission that is missing" in found["broker"]["remedy"]
            assert "secret" not in str(found)
            wrong = url.replace("://", f"://{user}:guessed@")
            code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", wrong)
            assert code == 1
            assert "correct the user and password in `broker`" in found["broker"]["remedy"]
        finally:
            admin.acl_deluser(user)


def test_a_broker_that_takes_a_message_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{find_server('RABBITMQ')}?prefix={secrets.token_hex(4)}.&timeout=10s"
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", url)
    assert (code, found["broker"]["state"]) == (0, "good")


def test_an_unknown_scheme_names_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--broker", "carrier-pigeon://coop")
    assert code == 1
    assert "amqp" in found["broker"]["detail"]


@pytest.mark.parametrize(
    ("part", "server", "version"),
    [
        ("broker", "REDIS", r"Redis \d+\.\d+\.\d+"),
        ("broker", "RABBITMQ", r"RabbitMQ \d+\.\d+\.\d+"),
        ("broker", "KAFKA", r"Kafka \d+\.\d+ or newer \(1 broker, cluster .+\)"),
        ("broker", "SQS", "SQS, which has no version"),
        ("cache", "REDIS", r"Redis \d+\.\d+\.\d+"),
        ("lease", "REDIS", r"Redis \d+\.\d+\.\d+"),
        ("lease", "ETCD", r"etcd \d+\.\d+\.\d+"),
        ("lease", "ZOOKEEPER", r"ZooKeeper \d+\.\d+\.\d+"),
        ("sink", "KAFKA", r"Kafka \d+\.\d+ or newer \(1 broker, cluster .+\)"),
    ],
)
def test_each_server_is_named_with_its_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, server: str, version: str
) -> None:
    url, prefix = find_server(server), secrets.token_hex(4)
    own = f"prefix={prefix}.&" if server in ("REDIS", "RABBITMQ", "KAFKA") else ""
    named = f"{url}{'&' if '?' in url else '?'}{own}timeout=10s"
    code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", f"--{part}", named)
    assert (code, found[part]["state"]) == (0, "good"), found[part]
    assert re.fullmatch(version, found[part]["version"]), found[part]
    if server == "REDIS":
        with Redis.from_url(url) as client:
            assert found[part]["version"] == f"Redis {client.info('server')['redis_version']}"
    tells_the_time = server in ("REDIS", "SQS")
    assert (found.get("clock", {}).get("state") == "good") == tells_the_time


def test_a_server_that_does_not_state_its_version_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, user = find_server("REDIS"), f"quiet-{secrets.token_hex(4)}"
    with Redis.from_url(url) as admin:
        commands = ["+@all", "-info"]
        admin.acl_setuser(user, enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], commands=commands)
        try:
            named = f"{url.replace('://', f'://{user}:secret@')}?timeout=10s"
            code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--cache", named)
        finally:
            admin.acl_deluser(user)
    assert (code, found["cache"]["state"], found["cache"]["version"]) == (0, "good", "")
    assert "its version is not known" in found["cache"]["detail"]


def test_a_cache_that_may_not_be_written_to_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, user = find_server("REDIS"), f"reader-{secrets.token_hex(4)}"
    with Redis.from_url(url) as admin:
        admin.acl_setuser(user, enabled=True, passwords=["+secret"], keys=["*"], commands=["+@read"])
        try:
            named = f"{url.replace('://', f'://{user}:secret@')}?timeout=10s"
            code, found = ask(capsys, "--store", f"sqlite:///{tmp_path / 'a.db'}", "--cache", named)
        finally:
            admin.acl_deluser(user)
    assert (code, found["cache"]["state"]) == (1, "failed")
    assert "grant the permission that is missing" in found["cache"]["remedy"]


def test_permissions_that_a_role_lacks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    with places("postgres", tmp_path) as make:
        store = make()
        run(["db", "migrate", "--store", store])
        capsys.readouterr()
        code, found = ask(capsys, "--store", store)
        assert (code, found["store"]["state"]) == (0, "good")
        assert re.fullmatch(r"PostgreSQL \d+\.\d+", found["store"]["version"])
        where = urlsplit(store)
        reader = where._replace(netloc=f"{role}:secret@{where.hostname}:{where.port}").geturl()
        asyncio.run(on_server(f"CREATE ROLE {role} LOGIN PASSWORD 'secret' IN ROLE pg_read_all_data"))
        try:
            code, found = ask(capsys, "--store", reader)
        finally:
            asyncio.run(on_server(f"DROP ROLE {role}"))
    assert (code, found["store"]["state"]) == (1, "failed")
    assert "INSERT on runs" in found["store"]["detail"]
    assert "SELECT" not in found["store"]["detail"]
    assert "grant the permission that is missing" in found["store"]["remedy"]


def test_a_clock_that_is_apart_from_a_servers_is_a_warning(tmp_path: Path) -> None:
    assert FAKETIME is not None, "libfaketime is not installed: `make services` does"
    url = f"{find_server('REDIS')}?prefix={secrets.token_hex(4)}.&timeout=10s"
    ended = subprocess.run(
        [sys.executable, "-m", "mainspring", "doctor", "--store", f"sqlite:///{tmp_path / 'a.db'}", "--lease", url],
        env=os.environ | {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+1h", "DONT_FAKE_MONOTONIC": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"clock +warning +this machine is 3\d{6} ms ahead of the lease", ended.stdout), ended.stdout
    assert "synchronise both machines by NTP" in ended.stdout + ended.stderr
