"""Terms, as the checker judges them (17)."""

from __future__ import annotations

import pytest
from histories import History

from mainspring.testing.history import Outcome


def test_each_leader_fires_under_its_own_term() -> None:
    history = (
        History()
        .term(1, "n1")
        .at(5)
        .fire("j", 5, term=1, actor="n1")
        .at(6)
        .term(2, "n2")
        .fire("j", 6, term=2, actor="n2")
    )

    assert history.broken() == []


def test_a_stale_leader_cannot_fire() -> None:
    history = History().term(1, "n1").at(6).term(2, "n2").at(7).fire("j", 6, term=1, actor="n1")

    violation = history.found(17)
    assert violation.message == (
        "job j was fired for 2026-03-26T12:00:06Z under term 1, after term 2 had begun at 2026-03-26T12:00:06Z"
    )
    assert [record.what for record in violation.evidence] == ["term", "fire"]


@pytest.mark.parametrize("outcome", ["refused", "unknown"])
def test_it_may_try(outcome: Outcome) -> None:
    history = History().term(1, "n1").at(6).term(2, "n2").at(7).fire("j", 6, term=1, actor="n1", outcome=outcome)

    assert history.broken() == []


def test_an_answer_that_came_late_may_be_to_something_that_came_in_time() -> None:
    history = History().term(1, "n1").at(6).term(2, "n2").at(7).fire("j", 5, term=1, actor="n1", sent=5.5)

    assert history.broken() == []


def test_where_nobody_leads_there_are_no_terms() -> None:
    assert History().term(1, "n1").at(6).term(2, "n2").at(7).fire("j", 6, actor="n1").broken() == []


def test_terms_grow() -> None:
    history = History().term(2, "n1").at(5).term(1, "n2")

    assert history.found(17).message == "term 1 of scheduler began after term 2"


def test_their_answers_may_come_in_another_order() -> None:
    assert History().term(2, "n1").at(5).term(1, "n2", sent=-1).broken() == []


def test_a_term_belongs_to_one() -> None:
    history = History().term(1, "n1").at(5).term(1, "n2")

    assert history.found(17).message == "term 1 of scheduler was given to n1 and to n2"


def test_a_repeated_call_gets_the_same_answer() -> None:
    assert History().term(1, "n1").at(5).term(1, "n1").broken() == []


def test_of_several_leaders_each_has_terms_of_its_own() -> None:
    history = History().term(1, "n1").add("term", name="other", term=7, actor="n2").at(5)
    history.add("fire", job="j", job_id="j", fire_at=history.records[0].store, term=1, actor="n1", name="scheduler")

    assert history.broken() == []


def test_a_stale_one_of_several_leaders_is_found_too() -> None:
    history = History().term(1, "n1").add("term", name="other", term=7, actor="n2").at(5).term(2, "n3").at(6)
    history.add("fire", job="j", job_id="j", fire_at=history.records[0].store, term=1, actor="n1", name="scheduler")

    assert "under term 1, after term 2 had begun" in history.found(17).message
