"""Whether code and runs fit each other."""

from __future__ import annotations

import msgspec
import pytest

from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Amendment, Claim, Gate, KeptOptions, RunOptions, TaskNotice, Worker
from mainspring.core.runs.fitting import LONGEST, SHORTEST, Twin, accepts, fill_in, find_fit, find_twins, judge_unfit
from mainspring.core.runs.retry import Retry

OLD = TaskNotice(name="encode", signature="encode(film)", names=("film",), required=("film",), module="work")
NEW = msgspec.structs.replace(OLD, signature="encode(film, codec=1)", names=("film", "codec"), code="new")
NOW = 1_000 * HOUR


def claim(options: RunOptions | None = None, args: str = '{"film":1,"codec":2}') -> Claim:
    text = msgspec.json.encode(options or RunOptions()).decode()
    return Claim("run", 3, "encode", args, text, 0, 0, 5, NOW, "default", None, None, 0, NOW)


def worker(notice: TaskNotice, **changes: object) -> Worker:
    return msgspec.structs.replace(Worker(id="w", app="films", heartbeat_at=NOW, notices=(notice,)), **changes)


@pytest.mark.parametrize(
    ("notice", "names", "fits"),
    [
        (OLD, ["film"], True),
        (OLD, ["film", "codec"], False),
        (OLD, [], False),
        (NEW, ["film"], True),
        (NEW, ["film", "codec"], True),
        (msgspec.structs.replace(OLD, rest=True), ["film", "anything"], True),
    ],
)
def test_a_function_takes_the_names_that_it_has(notice: TaskNotice, names: list[str], fits: bool) -> None:
    assert accepts(notice, names) is fits


def test_only_a_live_worker_with_other_code_that_takes_the_arguments_fits() -> None:
    args = claim().args
    assert find_fit([worker(OLD), worker(NEW)], OLD, args, NOW - SECOND)
    assert not find_fit([worker(OLD)], OLD, args, NOW - SECOND)
    assert not find_fit([worker(NEW)], NEW, args, NOW - SECOND), "the same code would find the same fault"
    assert not find_fit([worker(NEW, state="draining")], OLD, args, NOW - SECOND)
    assert not find_fit([worker(NEW, heartbeat_at=NOW - MINUTE)], OLD, args, NOW - SECOND)


def test_a_run_goes_to_a_fitting_worker_at_once_however_long_it_waited() -> None:
    waited = claim(RunOptions(unfit_since=NOW - HOUR))
    verdict = judge_unfit(waited, "problem", NOW, MINUTE, others_fit=True)
    assert verdict.step_aside
    assert verdict.amendment is not None
    assert (verdict.amendment.delay, verdict.amendment.token) == (0, 3)


@pytest.mark.parametrize(
    ("waited", "delay"), [(0, SHORTEST), (10 * SECOND, 5 * SECOND), (5 * MINUTE, LONGEST), (10 * MINUTE, None)]
)
def test_a_run_that_nobody_fits_is_tried_again_ever_later_until_patience_ends(waited: int, delay: int | None) -> None:
    verdict = judge_unfit(claim(RunOptions(unfit_since=NOW - waited)), "p", NOW, 10 * MINUTE, others_fit=False)
    assert (None if verdict.amendment is None else verdict.amendment.delay) == delay
    assert not verdict.step_aside


def test_when_it_was_first_unfit_is_kept_and_its_submitter_too() -> None:
    first = judge_unfit(claim(KeptOptions(submitted_by="ada")), "p", NOW, HOUR, others_fit=False).amendment
    assert first is not None
    kept = msgspec.json.decode(first.options, type=KeptOptions)
    assert (kept.unfit_since, kept.submitted_by) == (NOW, "ada")
    again = judge_unfit(
        msgspec.structs.replace(claim(), options=first.options), "p", NOW + MINUTE, HOUR, others_fit=False
    )
    assert again.amendment is not None
    assert msgspec.json.decode(again.amendment.options, type=KeptOptions).unfit_since == NOW


def test_what_was_not_said_is_as_the_task_declares() -> None:
    declared = msgspec.structs.replace(NEW, options=RunOptions(timeout=HOUR, retry=Retry(7)))
    said = RunOptions(timeout=MINUTE, said=("timeout",))
    filled = fill_in(claim(said), ("timeout",), declared)
    assert filled == RunOptions(timeout=MINUTE, retry=Retry(7))


def test_a_run_of_a_limited_task_goes_back_to_be_claimed_within_the_limit() -> None:
    declared = msgspec.structs.replace(NEW, limit=2, priority=1, options=RunOptions(timeout=HOUR))
    amendment = fill_in(claim(KeptOptions(said=(), submitted_by="ada")), (), declared)
    assert isinstance(amendment, Amendment)
    assert (amendment.gate, amendment.priority, amendment.delay) == (Gate("task:encode", 2), 1, 0)
    kept = msgspec.json.decode(amendment.options, type=KeptOptions)
    assert (kept.timeout, kept.said, kept.submitted_by) == (HOUR, None, "ada")
    spoken = fill_in(claim(RunOptions(said=("priority",))), ("priority",), declared)
    assert isinstance(spoken, Amendment)
    assert spoken.priority is None


def test_twins_are_other_modules_of_an_app_and_other_code_of_other_apps() -> None:
    elsewhere = msgspec.structs.replace(OLD, module="other")
    assert find_twins("films", OLD, [worker(NEW)], NOW) == [], "two versions of one module"
    assert find_twins("films", OLD, [worker(elsewhere)], NOW) == [Twin("films", "other")]
    assert find_twins("books", OLD, [worker(NEW)], NOW) == [Twin("films", "work")]
    assert find_twins("books", OLD, [worker(OLD)], NOW) == [], "the same function, shared by two apps"
    assert find_twins("books", OLD, [worker(NEW, state="stopped")], NOW) == []
