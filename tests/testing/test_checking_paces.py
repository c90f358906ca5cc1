"""Rate limits, as the checker judges them (20)."""

from __future__ import annotations

from histories import History

PACE = '{"amount":10,"period":60000000}'
"""Ten a minute: all of them at once, then one every six seconds."""


def spend(history: History, count: int, outcome: str = "ok", name: str = "budget") -> History:
    return history.add("spend", name=name, count=count, data=PACE, outcome=outcome)


def test_a_whole_burst_and_what_the_pace_gives_after_it() -> None:
    history = spend(History(), 10)
    for number in range(1, 20):
        spend(history.at(6 * number), 1)
    spend(history.at(1_000), 10)

    assert history.broken() == []


def test_more_than_the_burst_at_once() -> None:
    history = spend(spend(History(), 6).at(1), 5)

    violation = history.found(20)
    assert violation.message == "budget was granted 11 within 1 s, though its pace is 10 in 60 s"
    assert [record.count for record in violation.evidence] == [6, 5]


def test_one_too_many_long_after_the_burst() -> None:
    history = spend(History(), 10)
    for number in range(1, 6):
        spend(history.at(6 * number), 1)

    assert spend(history.at(35.9), 1).found(20).message.startswith("budget was granted 16 within 35.9 s")


def test_a_reply_that_was_lost_does_not_undo_the_grant() -> None:
    assert spend(spend(History(), 10, "unknown"), 1).found(20).number == 20


def test_what_was_refused_costs_nothing_and_budgets_are_apart() -> None:
    history = spend(spend(spend(History(), 10), 5, "refused"), 10, name="another")

    assert history.broken() == []


def test_an_instant_that_is_not_known_is_not_judged() -> None:
    history = spend(History(), 10).at(2).add("spend", name="budget", count=5, data=PACE, sent=-100)

    assert history.broken() == []
