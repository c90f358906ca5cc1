"""The Quartz spelling against Quartz itself.

`quartz_table.tsv` was made by Quartz 2.3.2: expressions, and their first six fire times after noon of 1 January 2026 in
UTC, or that it refuses them. Left out is what Quartz accepts without heeding it (text after a value, `MON-FRI/2`,
`FRI#3,MON`), and lists of days with `L` or `W`, which its versions read differently.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.core.instants import format_instant, parse_instant
from mainspring.core.schedules.cron import check_cron, parse_cron
from mainspring.core.schedules.triggers import cron
from mainspring.errors import InvalidCron

TABLE = [
    line.split("\t") for line in (Path(__file__).parent / "quartz_table.tsv").read_text().splitlines() if "\t" in line
]


def fire_times(expression: str) -> str:
    try:
        check_cron(expression, "quartz")
    except InvalidCron:
        return "REFUSED"
    times: list[str] = []
    instant = parse_instant("2026-01-01T12:00:00Z")
    for _ in range(6):
        following = parse_cron(expression, "quartz").next_after(instant, "UTC")
        if following is None:
            return " ".join([*times, "-"])
        times.append(format_instant(following))
        instant = following
    return " ".join(times)


@pytest.mark.parametrize(("expression", "expected"), TABLE, ids=lambda text: text[:25])
def test_it_is_read_as_quartz_reads_it(expression: str, expected: str) -> None:
    assert fire_times(expression) == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("0 0 12 * * 2", "day of week '2' and day of month '*' are both given"),
        ("0 0 12 ? * SAT,SUN,L", "day of week 'L' cannot be in a list"),
        ("0 0 12 ? * MON,FRI#3", "day of week 'FRI#3' cannot be in a list"),
        ("0 0 12 ? * MON-FRI/2", "day of week 'MON-FRI/2' has a step, which Quartz ignores"),
        ("0 0 12 1 NOV-FEB/2 ?", "month 'NOV-FEB/2' has a step, which Quartz ignores"),
    ],
)
def test_what_quartz_refuses_or_does_not_heed_is_refused_but_goes_on_where_it_is_stored(
    expression: str, problem: str
) -> None:
    with pytest.raises(InvalidCron) as caught:
        cron(expression, dialect="quartz")
    assert problem in caught.value.problem
    assert caught.value.remedy
    assert parse_cron(expression, "quartz").next_after(0, "UTC")


def test_a_step_without_a_start_is_a_star_also_where_the_clock_changes() -> None:
    assert not parse_cron("0 0 /6 * * ?").follows_wall_clock
    with pytest.raises(InvalidCron, match="minute '/15' cannot be read"):
        cron("/15 * * * *")
