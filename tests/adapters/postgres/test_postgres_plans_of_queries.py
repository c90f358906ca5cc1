"""The plans of hot queries, as prepared statements after many executions: none reads a table whole. Not on a million
runs; and not on none, since a plan that was made while a table was empty is used when it has filled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from postgres_server import Servers, create_shared, drop_database, in_database, literal

from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR, Instant
from mainspring.stores.postgres.server.connection import Server, connect
from mainspring.stores.sql import load_queries
from mainspring.testing.clock import ManualClock

ROWS = 1_000_000
NOW: Instant = ManualClock().now()
EXECUTIONS = 8
"""After the fifth, the server may settle for a plan that does not know the values."""

_FILL = (
    "ALTER TABLE mainspring.runs SET UNLOGGED",
    # Most are not due for long, some have waited; a few run, wait at gates, or belong to jobs.
    f"""INSERT INTO mainspring.runs (id, task, args, options, state, priority, due_at, created_at, worker,
                                     claimed_until, gates, blocked_on, job_id, fire_at, expires_at)
        SELECT '{encode_time(NOW)}' || lpad(n::text, 16, '0'), 'encode', '{{}}', '{{}}',
               CASE WHEN n % 1000 = 0 THEN 'running' WHEN n % 1000 = 1 THEN 'blocked' ELSE 'pending' END, 1 + n % 10,
               CASE WHEN n % 20 = 0 THEN {NOW} - n ELSE {NOW + HOUR} + n END, {NOW},
               CASE WHEN n % 1000 = 0 THEN 'worker-1' END, CASE WHEN n % 1000 = 0 THEN {NOW} + n END,
               CASE WHEN n % 1000 = 1 THEN ARRAY['task:encode'] END, CASE WHEN n % 1000 = 1 THEN 'task:encode' END,
               CASE WHEN n % 100 = 0 THEN 'job-' || n % 7 END, CASE WHEN n % 100 = 0 THEN {NOW} END,
               CASE WHEN n % 500 = 0 THEN {NOW + DAY} + n END
        FROM generate_series(1, {ROWS}) AS n""",
    f"""INSERT INTO mainspring.history_rest (id, finished_at, namespace, queue, region, task, args, options, state,
                                             outcome, reason, priority, due_at, idx, token, attempt, losses,
                                             cancel_reason, progress_note, created_at)
        SELECT '{encode_time(NOW)}' || lpad(n::text, 16, 'h'), {NOW} + n, 'default', 'default', 'default', 'encode',
               '{{}}', '{{}}', 'succeeded', 'succeeded', '', 5, {NOW}, 0, 1, 1, 0, '', '', {NOW}
        FROM generate_series(1, {ROWS // 10}) AS n""",
    """INSERT INTO mainspring.lines SELECT 'default', 'key:' || n % 1000, n, 'run-' || n, 1, n <= 1000
       FROM generate_series(1, 50000) AS n""",
    """INSERT INTO mainspring.edges SELECT 'run-' || n, 'run-' || n + 1, 'all_succeeded', 'skip'
       FROM generate_series(1, 50000) AS n""",
    f"""INSERT INTO mainspring.firings (job_id, fire_at, kind, outcome, created_at)
        SELECT 'job-' || n % 7, n, 'scheduled', 'fired', {NOW} FROM generate_series(1, 50000) AS n""",
    "INSERT INTO mainspring.gates SELECT 'default', 'firing:' || n, 1, 0 FROM generate_series(1, 20000) AS n",
    f"""INSERT INTO mainspring.jobs (id, name, task, "trigger", next_fire_at, created_at, updated_at)
        SELECT 'job-' || n, 'job-' || n, 'encode', '{{"kind":"manual"}}', {NOW} + n, {NOW}, {NOW}
        FROM generate_series(1, 50000) AS n""",
    "INSERT INTO mainspring.changes SELECT 'job-' || n, n FROM generate_series(1, 50000) AS n",
    f"""INSERT INTO mainspring.outbox (position, count, events, created_at)
        SELECT CASE WHEN n <= 49900 THEN n END, 1, '[]', {NOW} FROM generate_series(1, 50000) AS n""",
    f"""INSERT INTO mainspring.audit (namespace, at, subject, action, target)
        SELECT 'default', {NOW}, 'subject-' || n % 5, 'job.pause', 'job:' || n % 100
        FROM generate_series(1, 100000) AS n""",
    f"""INSERT INTO mainspring.period_tallies
        SELECT 'default', CASE WHEN n % 5 = 0 THEN 'all' ELSE 'job' END, {NOW} - n, 'job-' || n, '{{}}'
        FROM generate_series(1, 50000) AS n""",
    f"""INSERT INTO mainspring.error_groups SELECT 'default', 'e' || n, '', '', '', {NOW}, {NOW} - n, 1, 'r'
        FROM generate_series(1, 20000) AS n""",
    """INSERT INTO mainspring.error_runs SELECT 'default', 'e' || n % 100, 'run-' || n
       FROM generate_series(1, 50000) AS n""",
    "VACUUM ANALYZE",
)

IDS = [encode_time(NOW) + str(number).rjust(16, "0") for number in range(1, 200)]
TOKENS = json.dumps(dict.fromkeys(IDS, 1))
PLACES = (["default"] * 10, ["default"] * 10, list(range(1, 11)), [-1] * 10, [-1] * 10)
LINES = (["default"] * 5, [f"key:{n}" for n in range(5)])
FEW = IDS[:20]
JOBS = [f"job-{number}" for number in range(1, 6)]


def same(value: object) -> list[object]:
    return [value] * len(FEW)


HOT: dict[tuple[str, str], tuple[object, ...]] = {
    ("work", "candidates"): (NOW, *PLACES, "default", NOW, ["encode"], 100, 100, NOW),
    ("work", "claim_plain"): (NOW, *PLACES, "default", NOW, ["encode"], 100, 100, NOW, "worker-1", HOUR, 10**16,
                              '{"at":'),
    ("work", "earliest"): (*PLACES, "default", NOW, ["encode"]),
    ("dispatch", "claim_delivered"): (NOW, IDS, TOKENS, "default", NOW, ["encode"], ["default"], ["default"],
                                      "worker-1", HOUR),
    ("dispatch", "delivered"): (NOW, IDS, "default", NOW, ["encode"], ["default"], ["default"]),
    ("work", "take"): (IDS, "worker-1", NOW, NOW),
    ("work", "renew"): (NOW, "worker-1", 5, IDS, TOKENS, HOUR),
    ("work", "cancels"): (IDS,),
    ("work", "lock_gates"): ("default", ["firing:1", "firing:2"]),
    ("work", "enter_gates"): ("default", ["firing:1"], '{"firing:1":1}'),
    ("work", "block_at_gates"): (FEW, same("g")),
    ("work", "set_progress"): (FEW, same(1), same(0.5), same("")),
    ("endings", "lock_running"): (IDS,),
    ("endings", "lock_unstarted"): (IDS,),
    ("endings", "to_history"): (FEW, same("succeeded"), same("succeeded"), same(""), same(NOW), same(NOW),
                                same(None), same(None), same(1), same(0)),
    ("endings", "end_plain"): (FEW, same("succeeded"), same("succeeded"), same(""), same(NOW), same(NOW), same(None),
                               same(None), NOW, TOKENS),
    ("endings", "back_to_pending"): (FEW, same(""), same(NOW), same(1), same(0), NOW),
    ("endings", "reported"): (FEW, NOW),
    ("endings", "dependants"): (["run-1", "run-2"], 1_000),
    ("endings", "take_edges"): (["run-1", "run-2"], ["run-3", "run-4"]),
    ("endings", "drop_edges"): (["run-1", "run-2"],),
    ("endings", "wait_less"): (FEW, same(1)),
    ("endings", "lock_lines_of"): (["run-1", "run-2"],),
    ("endings", "leave_lines"): (["run-1", "run-2"],),
    ("endings", "grant_lines"): LINES,
    ("endings", "leave_gates"): ("default", ["firing:1"], '{"firing:1":1}'),
    ("endings", "promote_at_gates"): ("default", ["task:encode"], [5]),
    ("endings", "end_firings"): ("succeeded", "", NOW, ["job-1", "job-2"], [1, 2], ["default"] * 2, [0, 0]),
    ("runs", "ended"): (IDS,),
    ("runs", "known"): (IDS,),
    ("runs", "lock_upstreams"): (IDS,),
    ("runs", "mark_upstreams"): (IDS,),
    ("runs", "line_places"): (*LINES, [1] * 5),
    ("runs", "get"): (IDS[0], 0),
    ("runs", "finished"): (IDS, 0),
    ("runs", "active"): ("nobody", "", "~", ["blocked", "pending", "running"], 1_001),
    ("runs", "ids_of_job"): ("default", None, None, 50, ["pending"], "missing", *[None] * 6),
    ("runs", "ids_of_task"): ("default", None, None, 50, ["pending"], None, "missing", *[None] * 5),
    ("runs", "ids_of_tag"): ("default", None, None, 50, ["pending"], *[None] * 3, "missing", *[None] * 3),
    ("runs", "ids_of_submitter"): ("default", None, None, 50, ["pending"], *[None] * 6, "missing"),
    ("runs", "sizes"): ("default", "missing", "missing", "missing", "missing", 5_000),
    ("runs", "count_states"): ("default", 1_000),
    ("runs", "states_of_tags_since"): (),
    ("runs", "list_active_of"): ("default", None, None, 50, ["pending"], *[None] * 7, IDS),
    ("runs", "list_classes"): ("default", None, None, 50, ["default"], ["encode"], ["failed"], 0, None, None),
    ("runs", "count_classes_between"): ("default", IDS[0], None, 10_000, ["default"], ["encode"], ["succeeded"]),
    ("runs", "list_of_job"): ("default", None, None, 50, ["failed"], "missing", *[None] * 4),
    ("runs", "list_of_key"): ("default", None, None, 50, ["failed"], "k", *[None] * 8),
    ("runs", "list_late"): ("default", None, None, 50, ["failed"], [2, 3, 4], *[None] * 7),
    ("runs", "list_long"): ("default", None, None, 50, ["failed"], [2, 3, 4], *[None] * 6),
    ("runs", "list_of_submitter"): ("default", None, None, 50, ["failed"], "missing", *[None] * 5),
    ("runs", "keyed"): ("default", "k"),
    ("runs", "running_late"): ("default", HOUR, 20_000),
    ("runs", "logs_before"): ("run-1", 0, 100, 50),
    ("runs", "logs"): ("run-1", 0, 100),
    ("runs", "count_logs"): ("run-1", 10_000),
    ("runs", "have_written"): (["run-1", "run-2"], [0, 0]),
    ("runs", "attempts"): (IDS[0], NOW),
    ("runs", "upstreams_of"): ("run-1",),
    ("runs", "find_prefix"): ("default", IDS[0], 2),
    ("api", "noted_from"): (NOW,),
    ("runs", "list_of_region"): ("default", None, None, 50, ["failed"], "eu", None, None, None),
    ("firings", "unfinished"): (JOBS,),
    ("firings", "is_recorded"): ("job-1", 5),
    ("firings", "move_on"): (JOBS, [1] * 5, [NOW] * 5, [NOW + HOUR] * 5, [1] * 5, [NOW] * 5),
    ("firings", "fire_plain"): (JOBS, [1] * 5, [NOW] * 5, [NOW + HOUR] * 5, FEW[:5], [NOW] * 5, [NOW] * 5,
                                ["default"] * 5, NOW),
    ("firings", "record"): (JOBS, [NOW] * 5, ["default"] * 5, [0] * 5, ["scheduled"] * 5, ["fired"] * 5, [""] * 5,
                            FEW[:5], ["request"] * 5, [NOW] * 5, [1] * 5, [NOW] * 5, [NOW] * 5),
    ("firings", "list"): ("job-1", 0, NOW, 50, None),
    ("firings", "newest"): (JOBS, 30),
    ("firings", "of_run"): ("default", IDS[0], NOW, NOW + 1_000, 10_000),
    ("firings", "missed"): (NOW - HOUR, 100, "default"),
    ("jobs", "list_next"): ("default", NOW, "", 50),
    ("jobs", "list_paused"): ("default", NOW, "", 50),
    ("jobs", "count"): ("default", 10_001),
    ("jobs", "calendars"): ("default",),
    ("jobs", "due"): (NOW, 100),
    ("jobs", "namespaces_due"): (NOW,),
    ("jobs", "due_in_shares"): (["default", "other"], NOW, 50, 100),
    ("jobs", "changed"): (49_900, 100),
    ("jobs", "hold"): (JOBS,),
    ("jobs", "fired_ahead"): (JOBS, NOW),
    ("events", "since"): (49_000, 100),
    ("api", "notes"): ("default", 0, 10**9, 0, 10**17, 50),
    ("api", "notes_by"): ("default", 0, 10**9, 0, 10**17, 50, "nobody", None),
    ("api", "notes_on"): ("default", 0, 10**9, 0, 10**17, 50, None, "job:nobody", None),
    ("api", "notes_of"): ("default", 0, 10**9, 0, 10**17, 50, None, "job.edit"),
    ("insight", "paused"): ("default",),
    ("insight", "gates"): ("default", 100),
    ("insight", "lines"): ("default", 1_000),
    ("insight", "dependants"): ("run-1", 100),
    ("insight", "lines_of"): ("run-1",),
    ("insight", "relayed_from"): (100,),
    ("insight", "uncounted_since"): (),
    ("insight", "counts"): (["default"], ["job"], [NOW], ["job-1"]),
    ("insight", "tallies"): ("default", "all", NOW - DAY, NOW, 1_000),
    ("insight", "tallies_of"): ("default", "job", "job-1", NOW - DAY, NOW, 1_000),
    ("insight", "newest_tallies"): ("default", "job", JOBS, 0, 24),
    ("insight", "dependent_jobs"): ("job-1", 100),
    ("insight", "error"): ("default", "e1"),
    ("insight", "errors"): ("default", NOW - DAY, NOW, "~", 50),
    ("insight", "runs_of_error"): ("default", "e1", "", "~", 50),
    ("insight", "forget_tallies"): (NOW - DAY, 100),
    ("insight", "forget_error_runs"): (IDS[0], 100),
    ("maintenance", "anything"): (NOW, NOW, HOUR),
    ("maintenance", "expired"): (NOW, 100),
    ("maintenance", "lock_expired"): (IDS, NOW),
    ("maintenance", "too_late"): (NOW, 100),
    ("maintenance", "out_of_time"): (NOW, 100),
    ("maintenance", "waiting_gates"): (),
}  # fmt: skip


@pytest.fixture(scope="module")
def crowded(servers: Servers) -> Iterator[str]:
    """The URL of a database with a million runs."""

    async def fill() -> str:
        name = await create_shared(servers.direct)
        connection = await asyncpg.connect(in_database(servers.direct, name), timeout=60)
        await connection.execute("SET synchronous_commit = off")
        for statement in _FILL:
            await connection.execute(statement, timeout=600)
        await connection.close()
        return name

    name = asyncio.run(fill())
    yield in_database(servers.direct, name)
    asyncio.run(drop_database(servers.direct, name))


@pytest.fixture(scope="module")
def vacant(servers: Servers) -> Iterator[str]:
    """The URL of a database that never had any runs: what other tests leave in statistics would change its plans."""
    name = asyncio.run(create_shared(servers.direct))
    yield in_database(servers.direct, name)
    asyncio.run(drop_database(servers.direct, name))


@pytest.fixture(params=["crowded", "vacant"], ids=["on a million runs", "on none"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    """As the store makes them."""
    connection = await connect(Server(url, pooled=False))
    yield connection
    await connection.close()


@pytest.mark.parametrize(("topic", "name"), HOT, ids=["-".join(key) for key in HOT])
async def test_no_table_is_read_whole(connection: asyncpg.Connection, topic: str, name: str) -> None:
    values = f"({', '.join(map(literal, HOT[topic, name]))})" if HOT[topic, name] else ""
    query = load_queries("postgres", topic)[name].replace(":since", str(NOW))
    await connection.execute(f"PREPARE hot AS {query}")
    for _ in range(EXECUTIONS):
        await connection.execute("BEGIN")
        await connection.execute(f"EXECUTE hot {values}")
        await connection.execute("ROLLBACK")
    # The store plans lists and counts once, without their values.
    for mode in ("auto", "force_generic_plan") if topic == "runs" else ("auto",):
        await connection.execute(f"SET plan_cache_mode = {mode}")
        plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot {values}"))
        assert whole_reads(plan[0]["Plan"]) == [], mode


@pytest.mark.parametrize(
    ("name", "index"),
    [("notes_by", "audit_by_subject"), ("notes_on", "audit_by_target"), ("notes_of", "audit_by_action")],
    ids=["by", "on", "of"],
)
async def test_the_trail_is_read_by_subject_and_target(connection: asyncpg.Connection, name: str, index: str) -> None:
    values = ", ".join(map(literal, HOT["api", name]))
    await connection.execute(f"PREPARE hot AS {load_queries('postgres', 'api')[name]}")
    for _ in range(EXECUTIONS):
        await connection.execute(f"EXECUTE hot ({values})")
    plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot ({values})"))
    assert scans_of("audit", plan[0]["Plan"]) == [("Index Scan", index)]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ids_of_job", "runs_by_job"),
        ("ids_of_task", "runs_waiting_by_task"),
        ("ids_of_submitter", "runs_waiting_by_submitter"),
    ],
    ids=["job", "task", "submitter"],
)
async def test_unfinished_runs_are_found_by_job_task_and_submitter(
    connection: asyncpg.Connection, name: str, index: str
) -> None:
    values = ", ".join(map(literal, HOT["runs", name]))
    await connection.execute(f"PREPARE hot AS {load_queries('postgres', 'runs')[name]}")
    for _ in range(EXECUTIONS):
        await connection.execute(f"EXECUTE hot ({values})")
    plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot ({values})"))
    assert scans_of("runs", plan[0]["Plan"]) == [("Index Scan", index)]


async def test_runs_are_ended_in_order_of_id(connection: asyncpg.Connection) -> None:
    values = ", ".join(map(literal, HOT["endings", "end_plain"]))
    await connection.execute(f"PREPARE hot AS {load_queries('postgres', 'endings')['end_plain']}")
    for _ in range(EXECUTIONS):
        await connection.execute(f"BEGIN; EXECUTE hot ({values}); ROLLBACK")
    plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot ({values})"))
    assert scans_of("runs", plan[0]["Plan"]) == [("Index Scan", "runs_pkey")]


def scans_of(table: str, plan: dict[str, Any]) -> list[tuple[str, str]]:
    """How a plan reads a table."""
    found = [(plan["Node Type"], plan.get("Index Name", ""))] if plan.get("Relation Name") == table else []
    for part in plan.get("Plans", ()):
        found += scans_of(table, part)
    return [scan for scan in found if scan[0] != "ModifyTable"]


SMALL = {"workers"}
"""Tables that never have many rows."""
FEW_ROWS = {"runs_cancelling", "runs_held", "outbox_unpublished", "ended_upstreams_pkey", "stopped_lines_pkey"}
"""Indexes with little in them: runs that run, or that are asked to end right now; events that have no position; runs
that have ended, whose dependants recovery is about to judge."""


def whole_reads(plan: dict[str, Any]) -> list[str]:
    """The tables that a plan reads from end to end, or through an index without saying where to begin."""
    found = []
    table = str(plan.get("Relation Name", ""))
    scan = plan["Node Type"]
    if scan == "Seq Scan" and table not in SMALL and not table.startswith(("attempts", "outbox")):
        found.append(f"{scan} of {table}")
    if scan in ("Index Scan", "Index Only Scan") and "Index Cond" not in plan and plan["Index Name"] not in FEW_ROWS:
        found.append(f"{scan} of {table} without a condition")
    for part in plan.get("Plans", ()):
        found += whole_reads(part)
    return found
