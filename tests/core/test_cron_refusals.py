"""Which cron expressions are refused: at once, by name of the field, and with a way out."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.core.schedules.cron import parse_cron
from mainspring.errors import InvalidCron


def refusal(expression: str, dialect: str | None = None) -> InvalidCron:
    with pytest.raises(InvalidCron) as caught:
        parse_cron(expression, dialect)
    assert caught.value.problem
    assert caught.value.remedy
    return caught.value


BAD_PARTS = [
    ("60 * * * *", "minute '60'", "0 to 59"),
    ("-5 * * * *", "minute '-5'", "0 to 59"),
    ("1- * * * *", "minute '1-'", "0 to 59"),
    ("1-2-3 * * * *", "minute '1-2-3'", "0 to 59"),
    ("1.5 * * * *", "minute '1.5'", "0 to 59"),
    ("+5 * * * *", "minute '+5'", "0 to 59"),
    ("0x5 * * * *", "minute '0x5'", "0 to 59"),
    ("1e1 * * * *", "minute '1e1'", "0 to 59"),
    ("٣ * * * *", "minute '٣'", "0 to 59"),
    ("² * * * *", "minute '²'", "0 to 59"),
    ("** * * * *", "minute '**'", "0 to 59"),
    ("*5 * * * *", "minute '*5'", "0 to 59"),
    ("*-5 * * * *", "minute '*-5'", "0 to 59"),
    ("? * * * *", "minute '?'", "write *"),
    ("MON * * * *", "minute 'MON'", "0 to 59"),
    ("L * * * *", "minute 'L'", "0 to 59"),
    (", * * * *", "minute ','", "comma"),
    ("1,,2 * * * *", "minute '1,,2'", "comma"),
    ("1, * * * *", "minute '1,'", "comma"),
    ("*/0 * * * *", "minute '*/0'", "1 to 60"),
    ("*/61 * * * *", "minute '*/61'", "every"),
    ("*/-5 * * * *", "minute '*/-5'", "*/2"),
    ("*/ * * * *", "minute '*/'", "*/2"),
    ("/5 * * * *", "minute '/5'", "*/2"),
    ("*/5/5 * * * *", "minute '*/5/5'", "*/2"),
    ("10-5 * * * *", "minute '10-5'", "10-59,0-5"),
    ("99999999999999999999 * * * *", "minute '99999999999999999999'", "0 to 59"),
    ("60 * * * * *", "second '60'", "0 to 59"),
    ("* 24 * * *", "hour '24'", "0 to 23"),
    ("* */25 * * *", "hour '*/25'", "1 to 24"),
    ("* 22-2 * * *", "hour '22-2'", "22-23,0-2"),
    ("* * 0 * *", "day of month '0'", "1 to 31"),
    ("* * 32 * *", "day of month '32'", "1 to 31"),
    ("* * 28-3 * *", "day of month '28-3'", "28-31,1-3"),
    ("* * 0W * *", "day of month '0W'", "1 to 31"),
    ("* * 32W * *", "day of month '32W'", "1 to 31"),
    ("* * W * *", "day of month 'W'", "15W"),
    ("* * 1-5W * *", "day of month '1-5W'", "15W"),
    ("* * L- * *", "day of month 'L-'", "L-3"),
    ("* * L+3 * *", "day of month 'L+3'", "L-3"),
    ("* * L-31 * *", "day of month 'L-31'", "L-30"),
    ("* * 5L * *", "day of month '5L'", "L-3"),
    ("* * 1#2 * *", "day of month '1#2'", "1 to 31"),
    ("* * * 0 *", "month '0'", "1 to 12"),
    ("* * * 13 *", "month '13'", "1 to 12"),
    ("* * * FOO *", "month 'FOO'", "JAN to DEC"),
    ("* * * JANUARY *", "month 'JANUARY'", "JAN to DEC"),
    ("* * * NOV-FEB *", "month 'NOV-FEB'", "11-12,1-2"),
    ("* * * * 8", "day of week '8'", "0 to 7"),
    ("* * * * ſun", "day of week 'ſun'", "SUN to SAT"),
    ("* * * * L", "day of week 'L'", "5L"),
    ("* * * * LW", "day of week 'LW'", "5L"),
    ("* * * * 15W", "day of week '15W'", "5L"),
    ("* * * * 8L", "day of week '8L'", "0 to 7"),
    ("* * * * MON#0", "day of week 'MON#0'", "#1 to #5"),
    ("* * * * MON#6", "day of week 'MON#6'", "#1 to #5"),
    ("* * * * MON#", "day of week 'MON#'", "MON#2"),
    ("* * * * #2", "day of week '#2'", "MON#2"),
    ("* * * * 8#1", "day of week '8#1'", "0 to 7"),
    ("* * * * MON-FRI#2", "day of week 'MON-FRI#2'", "MON#2"),
    ("* * * * *\n", "day of week '*\\n'", "*/2"),
    ("* * * * *\0", "day of week '*\\x00'", "*/2"),
    ("0 0 ? * *", "day of month '?'", "write *"),
    ("0 0 * * ?", "day of week '?'", "write *"),
    ("0 0 12 ? * 0", "day of week '0'", "1 to 7"),
    ("0 0 12 ? * ?", "day of week '?'", "write *"),
    ("0 ? 12 ? * 2", "minute '?'", "write *"),
    ("0 0 12 ? * 2 1969", "year '1969'", "1970 to 2199"),
    ("0 0 12 ? * 2 2200", "year '2200'", "1970 to 2199"),
    ("0 0 12 ? * 2 ?", "year '?'", "write *"),
    ("0 0 12 ? * 2 2030-2026", "year '2030-2026'", "2030-2199"),
]


@pytest.mark.parametrize(("expression", "named", "remedy"), BAD_PARTS)
def test_a_bad_part_is_named_with_its_field_and_a_remedy(expression: str, named: str, remedy: str) -> None:
    error = refusal(expression)
    assert error.field == "cron"
    assert error.value == expression
    assert named in error.problem
    assert remedy in error.remedy


WRONG_AS_A_WHOLE = [
    ("", None, "empty", "0 2 * * *"),
    (" \t ", None, "empty", "0 2 * * *"),
    ("\0", None, "1 field", "minute"),
    ("* * * *", None, "4 fields", "minute"),
    ("* * * *\n*", None, "4 fields", "minute"),
    ("*\u00a0*\u2003* * *", None, "3 fields", "minute"),
    ("* * * * * * *", None, "7 fields", 'dialect="quartz"'),
    ("* * * * * * * *", None, "8 fields", "minute"),
    ("0 0 12 ? *", "quartz", "5 fields", "second"),
    ("0 0 12 ? * 2", "unix", "day of month '?'", "*"),
    ("0 0 12 1 * 2", "quartz", "day of month '1'", "?"),
    ("0 0 12 */2 * 2", "quartz", "day of month '*/2'", "?"),
    ("@reboot", None, "not supported", "trigger"),
    ("@REBOOT", None, "not supported", "trigger"),
    ("@fortnightly", None, "not a macro", "@weekly"),
    ("@", None, "not a macro", "@weekly"),
    ("@daily 5", None, "not a macro", "@daily"),
    ("@daily", "quartz", "macro", "dialect"),
]


@pytest.mark.parametrize(("expression", "dialect", "problem", "remedy"), WRONG_AS_A_WHOLE)
def test_an_expression_of_the_wrong_form_is_refused(
    expression: str, dialect: str | None, problem: str, remedy: str
) -> None:
    error = refusal(expression, dialect)
    assert error.field == "cron"
    assert problem in error.problem
    assert remedy in error.remedy


NEVER = [
    ("0 0 30 2 *", "day of month '30', month '2'"),
    ("0 0 31 4 *", "day of month '31', month '4'"),
    ("0 0 31 APR,JUN,SEP,NOV *", "month 'APR,JUN,SEP,NOV'"),
    ("0 0 30,31 2 *", "day of month '30,31'"),
    ("0 0 30-31/1 FEB *", "month 'FEB'"),
    ("0 0 31W 4,6 *", "day of month '31W'"),
    ("0 0 L-29 2 *", "day of month 'L-29'"),
    ("0 0 30 2 */2", "day of week '*/2'"),
    ("0 0 0 29 2 ? 2027", "year '2027'"),
    ("0 0 0 29 2 ? 2100", "year '2100'"),
    ("0 0 0 29 2 ? 2097-2103", "year '2097-2103'"),
    ("0 0 0 ? 2 MON#5 2026-2043", "day of week 'MON#5'"),
]


@pytest.mark.parametrize(("expression", "named"), NEVER)
def test_a_date_that_never_comes_is_refused(expression: str, named: str) -> None:
    error = refusal(expression)
    assert "never fires" in error.problem
    assert named in error.problem
    assert "exists" in error.remedy


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 0 30 2,3 *", "0 0 31 2 1", "0 0 28,30 2 *", "0 0 L-28 2 *"])
def test_a_date_that_seldom_comes_is_not_refused(expression: str) -> None:
    assert parse_cron(expression).next_after(0, "UTC") is not None


@pytest.mark.parametrize("value", [None, 5, 1.5, b"* * * * *", ["*"] * 5, {}])
def test_what_is_not_a_text_is_refused(value: Any) -> None:
    error = refusal(value)  # the type checker would stop this; data from outside is not checked
    assert error.field == "cron"


def test_an_unknown_dialect_is_refused_by_its_own_name() -> None:
    error = refusal("* * * * *", "jenkins")
    assert error.field == "dialect"
    assert "quartz" in error.remedy


def test_the_length_of_an_expression_is_bounded() -> None:
    longest = "0" * 248 + " * * * *"
    assert parse_cron(longest).minutes == 1
    error = refusal("0" + longest)
    assert "256 characters" in error.problem
    assert len(str(refusal("1," * 5_000_000))) < 1_000


HOSTILE = [
    "*" * 256,
    "," * 256,
    "-" * 256,
    "9" * 248 + " * * * *",
    "*/" * 124 + " * * * *",
    "0/1," * 61 + "0 * * * *",
    "* * " + "LW," * 80 + "L * *",
    "* * * * " + "1#1," * 60 + "L",
    "0 0 0 29 2 ? " + ",".join(str(year) for year in range(2001, 2200, 4))[:240],
    "0 0 30 " + "2," * 100 + "2 *",
    "\ud800 * * * *",
    "1\u20602 * * * *",
    "%s %d {} ${x} `x`",
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_hostile_expressions_are_judged_in_milliseconds(expression: str) -> None:
    started = time.thread_time()
    for dialect in (None, "unix", "quartz"):
        with pytest.raises(InvalidCron):
            parse_cron(expression + "\n", dialect)
    # Of the processor's time, whatever else the machine does. Three readings take about half a millisecond; a search
    # over centuries would take seconds.
    assert time.thread_time() - started < 0.1


@given(st.text(alphabet="0123456789*,-/?#LWJANMONFRI@ \t\n\0٣", max_size=40), st.sampled_from([None, "unix", "quartz"]))
@example("0" * 4400, None)
def test_any_text_is_read_or_refused_and_what_is_read_can_be_asked(text: str, dialect: str | None) -> None:
    try:
        cron = parse_cron(text, dialect)
    except InvalidCron:
        return
    fire = cron.next_after(0, "Europe/Berlin")
    assert fire is None or fire > 0
