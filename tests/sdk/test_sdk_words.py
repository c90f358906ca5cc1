"""Settings as typed keywords, calendars as a public module, and when a trigger is due."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from mainspring import after, at, cron, every, fire_times, manual
from mainspring.calendars import Calendar, holidays, weekends
from mainspring.sdk.setting_words import SettingWords
from mainspring.settings import knobs

NAMED = {"store", "namespace", "broker"}
TYPED = """
from mainspring import Mainspring

Mainspring("sqlite:///a.db", concurrency=4, durable=False, claim_ttl="30s", pools={1: 3}, queues=["a"], shards=None)
Mainspring(concurency=4)
Mainspring(concurrency="four")
Mainspring(coordination="committee")
"""


def test_every_setting_is_a_keyword_that_type_checkers_know() -> None:
    assert set(SettingWords.__annotations__) == set(knobs()) - NAMED


def test_a_type_checker_finds_what_is_misspelt_or_wrong(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", str(file)]
    root = Path(__file__).parents[2]
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    first = TYPED.splitlines().index("Mainspring(concurency=4)") + 1
    assert sorted({int(each) for each in re.findall(r"typed\.py:(\d+): error", shown)}) == [first, first + 1, first + 2]


def test_fire_times_are_those_of_the_trigger_in_its_zone() -> None:
    new_year = "2026-01-01T00:00:00Z"
    times = fire_times(cron("0 9 * * *", tz="America/New_York"), 2, after=new_year)
    assert [each.isoformat() for each in times] == ["2026-01-01T09:00:00-05:00", "2026-01-02T09:00:00-05:00"]
    assert len(fire_times(every("90s"), 3)) == 3
    assert fire_times(at("2026-05-01T00:00:00Z"), after=new_year) == [datetime(2026, 5, 1, tzinfo=UTC)]
    assert fire_times(manual()) == fire_times(after("other")) == []


def test_fire_times_leave_out_what_calendars_exclude() -> None:
    free = Calendar("free", (weekends(), holidays("2026-01-02")))
    times = fire_times(cron("0 12 * * *"), 2, after="2026-01-01T00:00:00Z", calendars=[free])
    assert [each.day for each in times] == [1, 5]
