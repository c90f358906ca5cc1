"""Schedules as a person says them."""

from __future__ import annotations

import pytest

from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger
from mainspring.core.schedules.words import in_words


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("30 2 * * *", "every day at 02:30 (UTC)"),
        ("0 9 * * 1-5", "every weekday at 09:00 (UTC)"),
        ("*/20 8-18 * * 1-5", "every 20 minutes from 08:00 to 18:59, every weekday (UTC)"),
        ("* 9-17 * * *", "every minute from 09:00 to 17:59 (UTC)"),
        ("15 8-18 * * *", "every hour from 08:15 to 18:15 (UTC)"),
        ("0 0 1 1 *", "every year on 1 January at 00:00 (UTC)"),
        ("*/7 8-18 * * *", "cron */7 8-18 * * * in UTC"),
        ("0 18-8 * * *", "cron 0 18-8 * * * in UTC"),
        ("0 0 1 1 1", "cron 0 0 1 1 1 in UTC"),
        ("0 0 * 13 *", "cron 0 0 * 13 * in UTC"),
    ],
)
def test_a_cron_expression_is_said_in_words_where_it_is_a_usual_one(expression: str, said: str) -> None:
    assert in_words(CronTrigger(expression, "UTC")) == said


@pytest.mark.parametrize(
    ("period", "said"),
    [
        (SECOND, "every second"),
        (30 * SECOND, "every 30 seconds"),
        (MINUTE, "every minute"),
        (HOUR, "every hour"),
        (6 * HOUR, "every 6 hours"),
        (HOUR + 30 * MINUTE, "every 1h30m"),
    ],
)
def test_a_period_is_said_in_words_where_it_has_one_unit(period: int, said: str) -> None:
    assert in_words(EveryTrigger(period)) == said
