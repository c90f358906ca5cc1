"""The plans of hot queries: each finds its rows by an index, whatever the size of the tables."""

import sqlite3
from collections.abc import Iterator

import pytest

from mainspring.stores.sql import Numbered, load_queries
from mainspring.stores.sqlite.file.connection import connect, migrate

HOT = {
    "work": [
        "candidates",
        "earliest",
        "look_closer",
        "take",
        "renew",
        "cancels",
        "running",
        "was_reported",
        "set_progress",
    ],
    "runs": ["known", "state_of", "gate_room", "recall", "get", "finished", "attempts", "logs"],
    "endings": [
        "unstarted",
        "forget_runs",
        "back_to_pending",
        "take_edges",
        "leave_lines",
        "next_in_line",
    ],
    "api": ["noted_from", "notes", "notes_by", "notes_on", "notes_of"],
    "maintenance": ["expired", "too_late", "out_of_time", "limited_jobs", "beyond_limit"],
    "events": ["unpublished", "since"],
    "jobs": ["due", "due_in_namespace", "changed", "calendars", "list_next", "list_paused", "count"],
    "firings": ["move_on", "unfinished", "is_recorded", "list", "newest"],
    "insight": [
        "paused",
        "gates",
        "lines",
        "dependants",
        "lines_of",
        "dependent_jobs",
        "relayed_from",
        "uncounted_since",
        "counts",
        "tallies",
        "tallies_of",
        "newest_tallies",
        "errors",
        "error",
        "runs_of_error",
        "forget_tallies",
        "forget_error_runs",
    ],
}


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    connection = connect(":memory:")
    migrate(connection, 0)
    yield connection
    connection.close()


def test_delivered_runs_are_found_by_their_ids(database: sqlite3.Connection) -> None:
    query = load_queries("sqlite", "dispatch")["delivered"]
    assert isinstance(query, Numbered)
    (first, *_) = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {query.plain}", query.arrange([1] * 6))]
    assert first == "SEARCH runs USING INDEX sqlite_autoindex_runs_1 (id=?)"


def test_the_firing_of_a_run_is_found_by_the_key_of_each_job(database: sqlite3.Connection) -> None:
    query = load_queries("sqlite", "firings")["of_run"]
    assert isinstance(query, Numbered)
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {query.plain}", query.arrange([1] * 5))]
    assert "SEARCH jobs USING INDEX sqlite_autoindex_jobs_2 (namespace=?)" in steps
    assert "SEARCH f USING PRIMARY KEY (job_id=? AND fire_at>? AND fire_at<?)" in steps


@pytest.mark.parametrize(("topic", "name"), [(topic, name) for topic, names in HOT.items() for name in names])
def test_a_hot_query_scans_no_table(database: sqlite3.Connection, topic: str, name: str) -> None:
    query = load_queries("sqlite", topic)[name]
    query = query.plain if isinstance(query, Numbered) else query
    values = [1] * query.count("?")
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    scans = [
        step for step in steps if step.startswith("SCAN") and "VIRTUAL TABLE" not in step and "USING INDEX" not in step
    ]
    assert [step for step in scans if not step.startswith(("SCAN (subquery", "SCAN CONSTANT"))] == []
    assert not [
        step
        for step in steps
        if "TEMP B-TREE FOR ORDER BY" in step
        and name in ("candidates", "due", "due_in_namespace", "notes", "notes_by", "notes_on", "notes_of")
    ]
