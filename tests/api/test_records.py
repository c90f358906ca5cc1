"""The public records on the wire: what the API encodes is what a client decodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.calendars import Calendar, weekends
from mainspring.core.instants import SECOND, parse_instant
from mainspring.core.model import Attempt, Claim, Event, Firing, Job, LogLine, NewRun, Worker
from mainspring.core.schedules.triggers import every, manual
from mainspring.operations.submission import accepted
from mainspring.operations.values import from_rows
from mainspring.store import Change

NOON = parse_instant("2026-03-01T12:00:00Z")
RUN = accepted(NewRun("r", "t", NOON, NOON, args='{"size":1e400,"n":123456789012345678901234567890}'))
CHANGE = Change(namespace="n", subject="s", action="a", target="t", after='{"state":"paused"}')

RECORDS: list[Any] = [
    from_rows.job_record(Job("j", "n", "t", manual())),
    from_rows.run_record(accepted(NewRun("r", "t", NOON, NOON, args='{"n":[1,2]}'))),
    from_rows.firing_record(Firing(job_id="j", fire_at=NOON, finished_at=NOON + 1)),
    from_rows.attempt_record(Attempt("r", 1, 1, "w", "succeeded", NOON, NOON + SECOND)),
    *from_rows.line_records([(7, LogLine("r", 1, NOON, "stdout", "hello"))]),
    from_rows.worker_record(Worker(id="w"), "active"),
    from_rows.claim_record(Claim("r", 1, "t", "{}", "{}", 0, 0, 5, 0, "default", None, None, 0, NOON)),
    from_rows.event_record(1, Event("run.failed", NOON, duration=90 * SECOND)),
    from_rows.calendar_record(Calendar("c", (weekends(),))),
    from_rows.change_record(1, CHANGE),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_the_same_on_both_ends_of_the_wire(record: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_instants_are_written_in_utc_as_short_as_exactness_allows() -> None:
    firing = from_rows.firing_record(Firing(job_id="j", fire_at=NOON, finished_at=NOON + 1_500))
    shown = msgspec.to_builtins(firing)
    assert (shown["fire_at"], shown["finished_at"], shown["last_at"]) == (
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00.001500Z",
        None,
    )


def test_durations_are_written_as_text() -> None:
    job = from_rows.job_record(Job("j", "n", "t", every("90m")))
    assert (job.trigger["every"], job.policy["grace"], job.timeout) == ("1h30m", "10s", None)
    assert from_rows.event_record(1, Event("run.failed", NOON, duration=90 * SECOND)).duration == "1m30s"


def test_stored_json_goes_over_the_wire_unchanged() -> None:
    """Numbers that no encoder writes again are kept as their author wrote them."""
    record = from_rows.run_record(RUN, from_rows.as_stored)
    assert b'"args":{"size":1e400,"n":123456789012345678901234567890}' in msgspec.json.encode(record)
