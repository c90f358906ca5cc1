"""Advice: every leaf of the decision tree, queues and electors by need, counts, what would change it, the command."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_work import Terminal
from mainspring.ops.advice.advise import INFRASTRUCTURE, Situation, advise, choose_pattern
from mainspring.settings import describe_settings

TREE = [
    (Situation(500), "single"),
    (Situation(90_000), "single"),
    (Situation(999, instances=3), "lock"),
    (Situation(999, instances=21), "cluster"),
    (Situation(1_000, instances=3), "cluster"),
    (Situation(99_999, instances=3, complex_schedules=True, have=("kubernetes",)), "cluster"),
    (Situation(99_999, instances=3, have=("kubernetes",)), "kubernetes"),
    (Situation(100_001, instances=3, latency_ms=1_000), "queue"),
    (Situation(100_001, instances=3, latency_ms=60_000), "wheel"),
    (Situation(10_000_001, instances=3), "fleet"),
    (Situation(10_000_001, instances=1), "fleet"),
]
situations = st.builds(
    Situation,
    st.integers(0, 10**9),
    instances=st.integers(1, 200),
    latency_ms=st.integers(1, 10**6),
    run_s=st.floats(0.001, 3600),
    peak=st.floats(1, 100),
    complex_schedules=st.booleans(),
    priorities=st.booleans(),
    have=st.lists(st.sampled_from(INFRASTRUCTURE), unique=True).map(tuple),
)


@pytest.mark.parametrize(("situation", "pattern"), TREE)
def test_the_tree_leads_to_its_leaves(situation: Situation, pattern: str) -> None:
    assert choose_pattern(situation)[0] == pattern


def queue_of(situation: Situation) -> str | None:
    queue = advise(situation).queue
    return None if queue is None else queue.name


def test_queues_are_chosen_by_volume_priorities_and_what_is_there() -> None:
    many = Situation(1_000_000, instances=5, latency_ms=500)
    assert queue_of(many) == "kafka"
    assert queue_of(Situation(1_000_000, instances=5, latency_ms=500, have=("aws",))) == "sqs"
    assert queue_of(Situation(1_000_000, instances=5, latency_ms=50, have=("aws",))) == "kafka"  # SQS is too slow.
    assert queue_of(Situation(100_000_000, instances=5, latency_ms=500, have=("aws",))) == "kafka"  # And too small.
    assert queue_of(Situation(1_000_000, instances=5, latency_ms=500, priorities=True)) == "rabbitmq"
    assert queue_of(Situation(1_000_000, instances=5, latency_ms=500, have=("redis",))) == "redis"
    assert queue_of(Situation(50_000, instances=5)) is None


def test_workers_carry_the_peak_at_80_percent() -> None:
    advice = advise(Situation(86_400, instances=3, run_s=2.0, peak=10, concurrency=10))
    assert advice.places == 25  # 1 a second, 10 in the peak, 2 s each, of 80 %.
    assert advice.workers == 3


def test_what_would_change_the_answer_is_shown() -> None:
    changes = {change.if_: change.then for change in advise(Situation(500)).changes}
    assert "distributed lock around each job" in changes["several instances"]
    assert "redis is there" not in changes
    changes = {change.if_: change.then for change in advise(Situation(500, instances=3)).changes}
    assert changes["redis is there"] == "elected by redis"


@given(situations)
def test_every_advice_can_be_followed(situation: Situation) -> None:
    advice = advise(situation)
    known = {row.variable for row in describe_settings()}
    assert set(advice.settings) <= known
    assert advice.workers * situation.concurrency >= advice.places >= 1
    assert len(advice.reasons) == 5
    assert advice.queue is None or advice.queue.latency_ms <= situation.latency_ms
    assert (advice.store == "sqlite") == (advice.approach.pattern == "single")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_the_command_takes_flags(cli: Terminal) -> None:
    words = ("advise", "--runs-per-day", "50000", "--instances", "3", "--have", "kubernetes")
    answer = cli(*words, "--json").json
    assert answer["advice"]["approach"]["pattern"] == "kubernetes"
    assert answer["advice"]["settings"]["MAINSPRING_LEASE"].startswith("kubernetes://")
    shown = cli(*words).out
    assert "What would change it" in shown
    assert "MAINSPRING_LEASE=kubernetes://" in shown


def test_the_command_reads_the_running_system(cli: Terminal) -> None:
    cli("job", "add", "midweek", "--cron", "0 0 * JUL WED", "--tz", "Europe/London", "--command", "true")
    for priority in ("1", "2"):
        cli("run", "submit", "--priority", priority, "--command", "true")
    situation = cli("advise", "--measured", "--json").json["situation"]
    assert (situation["runs_per_day"], situation["priorities"], situation["complex_schedules"]) == (2, True, False)
    cli("job", "add", "last-day", "--cron", "0 0 L * *", "--command", "true")
    assert cli("advise", "--measured", "--json").json["situation"]["complex_schedules"]


def test_the_settings_of_the_running_system_say_what_is_there_and_how_late_runs_may_start(
    cli: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("db", "migrate")
    monkeypatch.setenv("MAINSPRING_BROKER", "amqp://me@127.0.0.1:1/")
    monkeypatch.setenv("MAINSPRING_LEASE", "etcd://127.0.0.1:1")
    monkeypatch.setenv("MAINSPRING_SERVICE_LEVELS", "1=1m,2=500ms")
    situation = cli("advise", "--measured", "--have", "kafka", "--json").json["situation"]
    assert (situation["have"], situation["latency_ms"]) == (["kafka", "rabbitmq", "etcd"], 500)
    assert cli("advise", "--measured", "--latency", "2s", "--json").json["situation"]["latency_ms"] == 2_000


def test_the_command_asks_for_what_the_flags_do_not_say(cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.cli.admin.advise.is_attended", lambda: True)
    answers = "500000\n4\nsoon\n800ms\ny\nn\nKafka\nkafka redis\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    situation = cli("advise", "--json").json["situation"]
    assert (situation["runs_per_day"], situation["instances"], situation["latency_ms"]) == (500_000, 4, 800)
    assert (situation["complex_schedules"], situation["priorities"]) == (True, False)
    assert situation["have"] == ["redis", "kafka"]  # What is none of them was asked for again.
    monkeypatch.setattr("sys.stdin", io.StringIO("5\n"))
    words = ("--instances", "1", "--latency", "1s", "--complex", "--priorities", "--have", "redis", "--json")
    assert cli("advise", *words).json["situation"]["runs_per_day"] == 5


def test_the_command_asks_nothing_without_a_terminal(cli: Terminal) -> None:
    refused = cli("advise")
    assert refused.code == 2
    assert "--runs-per-day" in refused.err


def test_the_comparisons_are_shown(cli: Terminal) -> None:
    tables = cli("advise", "--matrices", "--json").json
    assert {name: len(rows) for name, rows in tables.items()} == {
        "tree": 7,
        "approaches": 7,
        "queues": 4,
        "electors": 5,
        "questions": 4,
    }
    assert "rabbitmq" in cli("advise", "--matrices").out
