"""Ids as people meet them: siblings differ in what is shown, already where it begins."""

from mainspring.clock import SystemClock
from mainspring.core.ids import TAIL
from mainspring.process.ids import IdSource


def test_ids_of_one_batch_differ_where_their_shown_part_begins() -> None:
    ids = IdSource(SystemClock()).batch(100)
    assert len({run_id[-TAIL:][:4] for run_id in ids}) > 95


def test_ids_sort_in_the_order_in_which_they_were_made_and_never_repeat() -> None:
    source = IdSource(SystemClock())
    ids = [*source.batch(3_000), *(source.new() for _ in range(3_000)), *source.batch(10)]
    assert ids == sorted(set(ids))


def test_two_sources_never_make_the_same_id() -> None:
    ids = [run_id for _ in range(50) for run_id in IdSource(SystemClock()).batch(200)]
    assert len(set(ids)) == len(ids)
