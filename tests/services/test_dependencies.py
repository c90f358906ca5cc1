"""Jobs with a schedule of their own that also depend on other jobs: at each instant their runs wait for the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stage import JumpingClock, add_job, at_home, ledger, let_pass, make_planner, turning

from mainspring import Mainspring, manual
from mainspring.conformance.store.samples import a_worker, failure, success
from mainspring.core.instants import SECOND
from mainspring.core.model import Job
from mainspring.errors import InvalidInput
from mainspring.store import RunFilter


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


async def runs(store: Any, job: Job) -> list[tuple[str, str]]:
    """The runs of a job, oldest first: state and reason."""
    found = await store.list_runs(RunFilter(job=job.name))
    return [(run.state, run.reason) for run in reversed(found)]


async def do_all(store: Any, report: Any = success) -> list[str]:
    """Do what is due; whose it was."""
    claims = await store.claim(a_worker(tasks=("work",)), 100, 10 * SECOND, "strict")
    await store.report([report(claim) for claim in claims])
    return sorted(claim.job for claim in claims)


async def test_a_run_waits_for_the_dependencies_that_fire_at_the_same_instant(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    a = await add_job(app, "a", dependencies=["b", "c"])  # Declared, and due in order of name, before those.
    for name in ("b", "c"):
        await add_job(app, name)
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
        assert await runs(store, a) == [("blocked", "")]
        assert await do_all(store) == ["b", "c"]
        assert await do_all(store) == ["a"]
        await let_pass(clock, "10s")
        assert await do_all(store) == ["b", "c"]
    assert [row.outcome for row in await ledger(store, a)] == ["succeeded", "fired"]
    assert [row.fire_at % (10 * SECOND) for row in await ledger(store, a)] == [0, 0]


async def test_chains_of_one_instant_run_in_order(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    await add_job(app, "a", dependencies=["b"])
    await add_job(app, "b", dependencies=["c"])
    await add_job(app, "c")
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
    assert [await do_all(store) for _ in range(4)] == [["c"], ["b"], ["a"], []]


async def test_what_has_succeeded_is_not_waited_for(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    a = await add_job(app, "a", dependencies=["b"])
    await app.jobs.add("b", manual(), task="work")
    await app.jobs.trigger("b")
    assert await do_all(store) == ["b"]
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
    assert await runs(store, a) == [("pending", "")]


async def test_a_dependency_that_has_not_run_or_is_gone_leaves_a_skipped_record_that_names_it(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    a, d = await add_job(app, "a", dependencies=["b"]), await add_job(app, "d", dependencies=["nowhere"])
    await app.jobs.add("b", manual(), task="work")
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
    (row,) = await ledger(store, a)
    assert (row.outcome, row.reason) == ("skipped", "job b, which it depends on, has not run yet")
    assert [each.reason for each in await ledger(store, d)] == ["job nowhere, which it depends on, does not exist"]


@pytest.mark.parametrize(
    ("choice", "states"), [("skip", ["skipped"]), ("fail", ["failed"]), ("run", ["pending"])], ids=str
)
async def test_what_a_failed_dependency_means_is_chosen_by_the_job(
    store: Any, app: Mainspring, clock: JumpingClock, choice: Any, states: list[str]
) -> None:
    a = await add_job(app, "a", dependencies=["b"], on_dependency_failure=choice)
    await add_job(app, "b")
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
        assert await do_all(store, failure) == ["b"]
        assert [state for state, _ in await runs(store, a)] == states


@pytest.mark.parametrize(("choice", "outcome"), [("skip", "skipped"), ("fail", "failed"), ("run", "fired")], ids=str)
async def test_a_dependency_that_failed_before_counts_as_one_that_fails(
    store: Any, app: Mainspring, clock: JumpingClock, choice: Any, outcome: str
) -> None:
    a = await add_job(app, "a", dependencies=["b"], on_dependency_failure=choice)
    await app.jobs.add("b", manual(), task="work")
    await app.jobs.trigger("b")
    assert await do_all(store, failure) == ["b"]
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
    assert [row.outcome for row in await ledger(store, a)] == [outcome]


async def test_a_paused_dependency_is_judged_by_its_last_firing(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    a = await add_job(app, "a", "20s", dependencies=["b"])
    await add_job(app, "b")
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "11s")
        await do_all(store)
        await app.jobs.pause("b")
        await let_pass(clock, "11s")
    assert await runs(store, a) == [("pending", "")]


async def test_dependencies_of_each_other_wait_for_a_bounded_time(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    jobs = [await add_job(app, "a", dependencies=["b"]), await add_job(app, "b", dependencies=["a"])]
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "15s")
    assert [len(await ledger(store, job)) for job in jobs] == [1, 1]


async def test_several_planners_agree(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    a = await add_job(app, "a", dependencies=["b"])
    b = await add_job(app, "b")
    async with turning(make_planner(store, clock), make_planner(store, clock)):
        await let_pass(clock, "11s")
    assert [len(await ledger(store, job)) for job in (a, b)] == [1, 1]
    assert await runs(store, a) == [("blocked", "")]


async def test_a_job_that_replaces_its_runs_cannot_have_dependencies(app: Mainspring) -> None:
    with pytest.raises(InvalidInput, match="does not go with dependencies"):
        await add_job(app, "a", dependencies=["b"], overlap="replace")
