"""Other zone data: which planner goes on from where, and what a step does to jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.core.instants import DAY, HOUR, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning.revision import MOST_LOOKS, begin
from mainspring.core.planning.zone_data import (
    CONFIRM_AFTER,
    CONFIRMED_FOR,
    ZoneRecord,
    encode_record,
    move,
    read_record,
    take_up,
)
from mainspring.core.schedules.calendar_rules import holidays
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger

NOW = parse_instant("2026-03-27T12:00:00Z")
HALF_WAY = ZoneRecord("2026b", NOW, "job-7")
DONE = ZoneRecord("2026b", NOW)
BERLIN = CronTrigger("0 9 * * *", "Europe/Berlin")


class TestAPlanner:
    def test_that_is_the_first_has_nothing_to_plan_anew(self) -> None:
        assert take_up(None, "2026b", NOW) == DONE

    @pytest.mark.parametrize("later", [0, CONFIRMED_FOR, -DAY])
    def test_goes_on_where_another_with_the_same_data_stopped(self, later: Instant) -> None:
        assert take_up(HALF_WAY, "2026b", NOW + later) == HALF_WAY

    def test_confirms_the_record_now_and_then(self) -> None:
        assert take_up(DONE, "2026b", NOW + CONFIRM_AFTER - 1) is None
        assert take_up(DONE, "2026b", NOW + CONFIRM_AFTER) == replace(DONE, at=NOW + CONFIRM_AFTER)

    @pytest.mark.parametrize("known", [HALF_WAY, DONE])
    def test_with_newer_data_begins_at_once_and_from_the_first_job(self, known: ZoneRecord) -> None:
        assert take_up(known, "2026c", NOW) == ZoneRecord("2026c", NOW, "")

    @pytest.mark.parametrize("known", [HALF_WAY, DONE])
    def test_with_older_data_waits_until_none_with_newer_lives(self, known: ZoneRecord) -> None:
        assert take_up(known, "2026a", NOW + CONFIRMED_FOR - 1) is None
        assert take_up(known, "2026a", NOW + CONFIRMED_FOR) == ZoneRecord("2026a", NOW + CONFIRMED_FOR, "")

    def test_whose_clock_was_set_back_is_not_kept_from_planning_for_ever(self) -> None:
        assert take_up(DONE, "2026a", NOW - DAY) == ZoneRecord("2026a", NOW - DAY, "")

    def test_reads_what_was_written_also_by_a_version_that_knew_no_steps(self) -> None:
        for record in (HALF_WAY, DONE, ZoneRecord("2026b", NOW, "")):
            assert read_record(encode_record(record)) == record
        assert read_record("2025b") == ZoneRecord("2025b")
        assert read_record(None) is None


class TestAStep:
    def test_moves_those_that_are_due_at_another_instant(self) -> None:
        right, wrong, overdue = (
            begin(Job(name, name, "t", BERLIN), at, {}) for name, at in (("a", NOW), ("b", NOW), ("c", NOW - DAY))
        )
        wrong = replace(wrong, next_fire_at=(wrong.next_fire_at or 0) + HOUR)
        found = move([right, wrong, overdue], NOW, {"default": {}})
        assert found.jobs == [replace(wrong, next_fire_at=right.next_fire_at, version=wrong.version + 1)]
        assert (found.faults, found.last) == ((), None)

    def test_is_not_stopped_by_a_job_whose_zone_the_data_does_not_have(self) -> None:
        wrong = replace(begin(Job("b", "b", "t", BERLIN), NOW, {}), next_fire_at=NOW + 1)
        lost = replace(wrong, name="lost", trigger=CronTrigger("0 9 * * *", "America/Coyhaique2"))
        found = move([lost, wrong], NOW, {"default": {}})
        assert [job.name for job in found.jobs] == ["b"]
        (fault,) = found.faults
        assert fault.startswith("job lost of namespace default: ")
        assert "America/Coyhaique2" in fault

    def test_ends_early_where_calendars_take_long(self) -> None:
        rules = tuple(holidays(f"{month:02}-{day:02}") for month in range(1, 11) for day in range(1, 11))
        calendars = {"closed": Calendar("closed", rules)}
        policy = JobPolicy(calendars=("closed",))
        jobs = [begin(Job(f"{n:04}", "b", "t", BERLIN, policy=policy), NOW, calendars) for n in range(2_000)]
        found = move(jobs, NOW, {"default": calendars})
        assert found.last is not None
        assert jobs[0].id < found.last < jobs[MOST_LOOKS // 100].id
