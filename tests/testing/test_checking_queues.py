"""Paused queues (23) and tallies (24), as the checker judges them."""

from __future__ import annotations

from histories import History


def test_no_run_of_a_paused_queue_is_claimed() -> None:
    history = History().submit("a", queue="gpu").submit("b")
    history.at(1).add("queue", name="gpu", state="paused").at(2).claim("b")
    history.at(3).add("queue", name="gpu", state="active").at(4).claim("a")
    assert 23 not in history.broken()


def test_a_claim_between_the_pause_and_its_end_is_found() -> None:
    history = History().submit("a", queue="gpu").at(1).add("queue", name="gpu", state="paused").at(2).claim("a")
    assert history.found(23).message == "worker w1 claimed run a of queue gpu, which was paused"
    elsewhere = History().submit("a", queue="gpu").at(1).add("queue", name="gpu", state="paused", sent=0.5).at(2)
    assert 23 not in elsewhere.claim("a").broken()


def test_tallies_that_count_another_number_than_ended_are_found() -> None:
    history = History().submit("a").at(1).work("a", since=1, until=2).at(3).ended("a", "succeeded").fault("drained")
    assert 24 not in history.add("tally", name="succeeded", count=1).add("tally", name="missed", count=7).broken()
    assert history.add("tally", name="succeeded", count=2).found(24).message == (
        "the tallies count 2 that succeeded: more than there are"
    )
    queue = History().submit("a", queue="gpu").ended("a", "succeeded", queue="gpu").fault("drained")
    assert 24 not in queue.add("tally", key="gpu", name="succeeded", count=1).add("tally", key="b", count=0).broken()
    assert queue.add("tally", key="gpu", name="accepted", count=2).found(24).message == (
        "the tallies count 2 of queue gpu that were accepted: more than there are"
    )
    fewer = History().submit("a").ended("a", "failed", "failed").fault("drained").add("tally", name="failed", count=0)
    assert fewer.found(24).message == "the tallies count 0 that failed: fewer than there are"
