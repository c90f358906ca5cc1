"""Which calendars are refused: rules that could not be evaluated, circles, and nesting without end."""

from __future__ import annotations

import pytest

from mainspring.core.instants import parse_instant
from mainspring.core.schedules.calendar_rules import (
    DEEPEST,
    Blackout,
    CronRule,
    DailyWindow,
    Dates,
    Not,
    Other,
    Rule,
    Weekdays,
    blackout,
    business_hours,
    holidays,
    weekends,
)
from mainspring.core.schedules.calendars import Calendar, check_calendar, excluded
from mainspring.errors import DependencyCycle, InvalidCron, InvalidInput, InvalidZone


def _calendars(*calendars: Calendar) -> dict[str, Calendar]:
    known: dict[str, Calendar] = {}
    for calendar in calendars:
        check_calendar(calendar, known)
        known[calendar.name] = calendar
    return known


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (Dates(("2026-01-01", "2026-02-30")), "rules[1].dates[1]"),
        (Dates(("02-30",)), "rules[1].dates[0]"),
        (Dates(("tomorrow",)), "rules[1].dates[0]"),
        (Dates(("2026-1-1",)), "rules[1].dates[0]"),
        (Dates(("",)), "rules[1].dates[0]"),
        (Dates(("2026-01-01/",)), "rules[1].dates[0]"),
        (Dates(("2026-01-02/2026-01-01",)), "rules[1].dates[0]"),
        (Dates(("2026-01-01/01-05",)), "rules[1].dates[0]"),
        (Dates(("01-05/2026-01-01",)), "rules[1].dates[0]"),
        (Dates(("2026-01-01/2026-01-02/2026-01-03",)), "rules[1].dates[0]"),
        (Weekdays(("mon", "Sunday")), "rules[1].days[1]"),
        (DailyWindow("9:00", "17:00"), "rules[1].start"),
        (DailyWindow("09:00", "24:00"), "rules[1].end"),
        (DailyWindow("09:00", "09:00:00"), "rules[1].end"),
        (Blackout("2026-01-01T00:00Z", "2026-01-02"), "rules[1].start"),
        (Blackout("2026-01-01", "2026-01-32"), "rules[1].end"),
        (Blackout("2026-01-02", "2026-01-02T00:00"), "rules[1].end"),
        (CronRule("61 * * * *"), "rules[1].expression"),
        (Other("nowhere"), "rules[1].calendar"),
        (Not(()), "rules[1].rules"),
        (Not((weekends(), Not((Weekdays(("x",)),)))), "rules[1].rules[1].rules[0].days[0]"),
    ],
    ids=str,
)
def test_a_bad_rule_is_refused_with_its_place(rule: Rule, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_calendar(Calendar("bad", (weekends(), rule)), {})
    assert refusal.value.field == field
    assert refusal.value.remedy


def test_a_calendar_needs_a_name_and_a_zone() -> None:
    with pytest.raises(InvalidInput, match=r"^name: "):
        check_calendar(Calendar("", ()), {})
    with pytest.raises(InvalidZone, match=r"^tz: 'Mars/Olympus'"):
        check_calendar(Calendar("mars", (), "Mars/Olympus"), {})


def test_constructors_refuse_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"^holidays.dates\[0\]: 'xmas' is not a date"):
        holidays("xmas")
    with pytest.raises(InvalidInput, match=r"^business_hours.start: '9' is not a time of day"):
        business_hours("9", "17:00")
    with pytest.raises(InvalidInput, match=r"^blackout.end: '2026-01-01' is not after the start"):
        blackout("2026-01-02", "2026-01-01")
    with pytest.raises(InvalidCron, match=r"^rules\[0\].expression: "):
        check_calendar(Calendar("bad", (CronRule("* * * *"),)), {})


def test_a_calendar_cannot_lead_back_to_itself() -> None:
    known = _calendars(Calendar("a", ()), Calendar("b", (Other("a"),)), Calendar("c", (Not((Other("b"),)),)))
    with pytest.raises(DependencyCycle, match="a -> c -> b -> a"):
        check_calendar(Calendar("a", (Other("c"),)), known)
    with pytest.raises(DependencyCycle, match="d -> d"):
        check_calendar(Calendar("d", (Other("d"),)), known)


def _chain(prefix: str, length: int) -> list[Calendar]:
    """Each refers to the one before it."""
    names = [f"{prefix}{number}" for number in range(length)]
    return [Calendar(name, (Other(names[at - 1]),) if at else (weekends(),)) for at, name in enumerate(names)]


def test_calendars_may_not_be_nested_so_deep_that_reading_them_exhausts_the_stack() -> None:
    known = _calendars(*_chain("c", DEEPEST))
    assert excluded([f"c{DEEPEST - 1}"], parse_instant("2026-03-07T00:00:00Z"), known) is not None
    with pytest.raises(InvalidInput, match=r"^rules: 'top' .* deep"):
        check_calendar(Calendar("top", (Other(f"c{DEEPEST - 1}"),)), known)
    rule: Rule = weekends()
    for _ in range(DEEPEST):
        rule = Not((rule,))
    with pytest.raises(InvalidInput, match=f"nested more than {DEEPEST} deep"):
        check_calendar(Calendar("onion", (rule,)), {})


def test_a_chain_may_not_grow_at_its_lower_end_either() -> None:
    known = _calendars(*_chain("c", DEEPEST), Calendar("below", ()))
    with pytest.raises(InvalidInput, match="deep"):
        check_calendar(Calendar("c0", (Other("below"),)), known)


def test_a_calendar_with_very_many_rules_is_refused_one_with_very_many_days_is_not() -> None:
    crons = tuple(CronRule(f"{number} 3 * * *") for number in range(50))
    known = {"a": Calendar("a", crons), "b": Calendar("b", crons)}
    check_calendar(known["b"], known)
    check_calendar(Calendar("days", (Dates(tuple(f"2026-{1 + n // 28:02}-{1 + n % 28:02}" for n in range(300))),)), {})
    for rules in ((*crons, *crons, crons[0]), (Other("a"), Other("b")), (Dates(("01-01/01-02",) * 100),)):
        with pytest.raises(InvalidInput, match="use at most 100; single days do not count"):
            check_calendar(Calendar("c", rules), known)


def test_a_namespace_has_so_many_calendars_and_no_more() -> None:
    known = {f"c{number}": Calendar(f"c{number}", (weekends(),)) for number in range(1_000)}
    check_calendar(known["c7"], known)
    with pytest.raises(InvalidInput, match="would be more than the 1000 of a namespace"):
        check_calendar(Calendar("new", (weekends(),)), known)
    many = Dates(tuple(f"{2026 + n // 300}-{1 + n % 300 // 28:02}-{1 + n % 28:02}" for n in range(900)))
    large = {f"c{number}": Calendar(f"c{number}", (many,)) for number in range(22)}
    with pytest.raises(InvalidInput, match="more than 20000 rules and days in all calendars"):
        check_calendar(Calendar("new", (many,)), large)
