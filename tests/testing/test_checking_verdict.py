"""The verdict: what it says, what it shows, what it refuses to judge, and how it copes with much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from histories import History, instant
from hypothesis import given, settings
from hypothesis import strategies as st
from plenty import Plenty

import mainspring.testing
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.model import Gate, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import AfterTrigger, CronTrigger, EveryTrigger
from mainspring.errors import InvalidInput
from mainspring.testing.checking import INVARIANTS, MOST_VIOLATIONS, check
from mainspring.testing.history import Record, dump, load

GATE: dict[str, Any] = {"gates": (Gate("task:task", 1),)}
KEY: dict[str, Any] = {"key": "k", "lines": (Gate("key:k", 1),)}


def background() -> History:
    """A little of everything, all of it legal, about runs and jobs of its own."""
    history = History().fault("healed").term(1).submit("x", task="x").submit("y", task="x", after=("x",))
    history.job("quiet", EveryTrigger(MINUTE), next_at=180, task="x")
    history.work("x", 1, since=1, until=2, state="pending").work("x", 2, since=20, until=30).work(
        "y", 1, since=31, until=32
    )
    return (
        history.ended("x", "succeeded", "failed", "succeeded")
        .ended("y", "succeeded", "succeeded")
        .fired("quiet", 60, 120)
    )


def minutely(**policy: Any) -> History:
    """A job that is due every minute, after the background."""
    return background().at(0).job("j", EveryTrigger(MINUTE), next_at=180, policy=JobPolicy(**policy))


def fired_at_once() -> History:
    history = (
        minutely(overlap="forbid").at(119).claim("j@60").at(121).claim("j@120").at(122).report("j@60").report("j@120")
    )
    return history.fired("j", 60, 120)


def overtaken() -> History:
    history = (
        background().at(50).submit("a", priority=6, due=50).submit("b", due=50).at(51).claim("a").at(52).claim("b")
    )
    return (
        history.report("a")
        .report("b")
        .ended("a", "succeeded", "succeeded", priority=6)
        .ended("b", "succeeded", "succeeded")
    )


def worked_too_long() -> History:
    history = background().at(100).submit("a", options=RunOptions(timeout=SECOND)).claim("a", ttl=200).start("a")
    return history.at(200).end("a").ended("a", "cancelled", options=RunOptions(timeout=SECOND))


def followed_too_often() -> History:
    history = minutely().fired("j", 60, 120).job("k", AfterTrigger(("j",)))
    for seconds in (61, 121, 122):
        history.firing("k", seconds, kind="after", run=f"k@{seconds}").ended(
            f"k@{seconds}", job_id="k", fire_at=instant(seconds)
        )
    return history


ILLEGAL: dict[int, Callable[[], History]] = {
    1: lambda: minutely().fired("j", 60),
    2: lambda: background().ended("a", "cancelled"),
    3: lambda: background().submit("a"),
    4: lambda: background().claim("a", 1).handback("a", 1).claim("a", 1),
    5: lambda: background().claim("a", 1).at(33).renew("a", 1).at(34).claim("a", 2),
    6: lambda: background().claim("a", 1).at(50).claim("a", 2).at(51).report("a", 1, sent=40).report("a", 2, "pending"),
    7: lambda: background().claim("a", 1).start("a", 1).start("a", 1),
    8: lambda: background().claim("a", 1).report("a", 1).at(34).start("a", 1),
    9: lambda: background().submit("a").ended("a", "failed", "failed", "failed", options=RunOptions(retry=Retry(0))),
    10: lambda: background().submit("a").ended("a", "succeeded", "failed"),
    11: lambda: background().submit("a", due=99).claim("a").ended("a", "cancelled"),
    12: worked_too_long,
    13: overtaken,
    14: fired_at_once,
    15: followed_too_often,
    16: lambda: background().submit("a", **GATE).submit("b", **GATE).claim("a").at(34).claim("b").at(35).report("b")
    .ended("a", "cancelled").ended("b", "succeeded", "succeeded"),
    17: lambda: background().at(40).term(2, "other").at(41).fire("unknown job", 40, term=1),
    18: lambda: background().submit("a").cancel("a").at(40).claim("a").ended("a", "cancelled"),
    19: lambda: background().submit("a", outcome="unknown").at(900).fault("drained").ended("a", "pending"),
    20: lambda: background().add("spend", name="budget", count=11, data='{"amount":10,"period":60000000}'),
    21: lambda: background().at(0).job("c", CronTrigger("* * * * *"), next_at=120).fired("c", 60, 61),
    22: lambda: background().submit("a", **KEY).submit("b", **KEY).claim("a").at(34).claim("b").at(35).report("b")
    .ended("a", "cancelled", key="k").ended("b", "succeeded", "succeeded", key="k"),
    23: lambda: background().submit("a", queue="gpu").add("queue", name="gpu", state="paused").claim("a")
    .ended("a", "cancelled", queue="gpu"),
    24: lambda: background().at(900).fault("drained").add("tally", name="cancelled", count=1),
}  # fmt: skip


def numbers(records: list[Record]) -> set[int]:
    return {violation.number for violation in check(records).violations}


def test_the_background_is_legal() -> None:
    assert background().broken() == []


def test_every_invariant_is_broken_by_one_of_the_histories_here() -> None:
    assert list(ILLEGAL) == [invariant.number for invariant in INVARIANTS]


@pytest.mark.parametrize("number", ILLEGAL)
class TestEvidence:
    def test_it_names_the_invariant(self, number: int) -> None:
        violations = ILLEGAL[number]().check().violations

        assert number in [violation.number for violation in violations]

    def test_it_shows_the_breach_by_itself(self, number: int) -> None:
        for violation in ILLEGAL[number]().check().violations:
            alone = check(violation.evidence).violations

            assert (violation.number, violation.message) in [(each.number, each.message) for each in alone]

    def test_it_leaves_most_of_the_history_out(self, number: int) -> None:
        history = ILLEGAL[number]()

        assert all(len(violation.evidence) <= 12 for violation in history.check().violations)

    def test_whatever_else_is_left_out_the_breach_stays(self, number: int) -> None:
        history = ILLEGAL[number]()
        (violation, *_) = [each for each in history.check().violations if each.number == number]
        kept = {record.seq for record in violation.evidence}
        for left_out in history.records:
            if left_out.seq not in kept:
                assert number in numbers([record for record in history.records if record is not left_out])

    @settings(max_examples=20, deadline=None)
    @given(data=st.data())
    def test_even_if_it_is_much(self, number: int, data: st.DataObject) -> None:
        history = ILLEGAL[number]()
        (violation, *_) = [each for each in history.check().violations if each.number == number]
        kept = {record.seq for record in violation.evidence}
        rest = [record for record in history.records if record.seq not in kept]
        chosen = data.draw(st.lists(st.sampled_from(rest), unique_by=lambda record: record.seq))
        part = sorted([*violation.evidence, *chosen], key=lambda record: record.seq)

        assert number in numbers(part)


class TestVerdict:
    def test_a_legal_history_is_in_order(self) -> None:
        verdict = background().check()

        assert verdict.ok
        assert str(verdict) == f"ok: {verdict.records} records, {len(verdict.judged)} invariants judged"

    def test_a_broken_one_says_what_is_broken_and_shows_it(self) -> None:
        verdict = History().claim("a", 1).at(5).claim("a", 2, worker="w2").check()

        assert not verdict.ok
        assert verdict.violations[0].invariant == "5 (claims never overlap)"
        assert str(verdict) == (
            "broken: 5 (2 records, 12 invariants judged)\n"
            "5 (claims never overlap): run a was claimed with token 2 at 2026-03-26T12:00:05Z, "
            "while token 1 stood until 2026-03-26T12:00:10Z\n"
            "    #1 2026-03-26T12:00:00Z  claim run=a worker=w1 token=1 until=1774526410000000\n"
            "    #2 2026-03-26T12:00:05Z  claim run=a worker=w2 token=2 until=1774526415000000"
        )

    def test_what_the_history_has_no_records_for_is_not_judged(self) -> None:
        assert {7, 8, 12} & set(History().claim("a").check().judged) == set()
        assert {7, 8, 12} <= set(History().claim("a").start("a").end("a").check().judged)

    def test_of_a_breach_that_is_everywhere_only_some_is_reported(self) -> None:
        history = History()
        for number in range(MOST_VIOLATIONS + 10):
            history.claim(f"run {number}").claim(f"run {number}")

        verdict = history.check()
        assert len(verdict.violations) == MOST_VIOLATIONS
        assert str(verdict).endswith(f"… and {MOST_VIOLATIONS - 20} more")

    def test_a_history_may_be_empty(self) -> None:
        assert check([]).ok

    def test_it_may_come_from_a_file(self) -> None:
        records = load(dump(ILLEGAL[4]().records).splitlines(keepends=True))

        assert numbers(list(records)) == {4}


class TestRefusals:
    def test_an_unknown_kind_of_record_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="'rumour' of record 1 is not a kind of record"):
            History().add("rumour").check()

    def test_so_is_one_that_lacks_what_it_must_have(self) -> None:
        with pytest.raises(InvalidInput, match=r"token: None is missing in record 1 \(claim\)"):
            History().add("claim", run="a").check()

    def test_so_is_one_that_carries_nonsense(self) -> None:
        with pytest.raises(InvalidInput, match=r"of record 1 \(run\) cannot be read"):
            History().add("run", run="a", state="succeeded", data="{}").check()


def test_the_checker_is_loaded_when_it_is_asked_for() -> None:
    assert mainspring.testing.check is check
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = mainspring.testing.chek


def test_a_hundred_thousand_records_are_no_trouble() -> None:
    records = Plenty(seed=1).play(runs=9_500)

    assert len(records) > 100_000
    verdict = check(records, lateness_bound=5 * SECOND)
    assert verdict.ok, str(verdict)
    assert len(verdict.judged) == len(INVARIANTS) - 4  # no cancels, budgets, pauses of queues or tallies
