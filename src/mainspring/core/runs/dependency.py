"""What waits for what: runs for runs, `after` jobs for jobs, and runs of a job for those of its dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Edge, Firing, FiringOutcome, NewRun
from mainspring.core.runs.outcome import Next
from mainspring.core.schedules.triggers import OnFailure, When
from mainspring.core.states import FAILED, FINAL, SKIPPED, SUCCEEDED, State
from mainspring.errors import InvalidInput

JUDGED_AT_ONCE: Final = 1_000
"""How many dependencies one transaction judges, and how many runs that wait in lines it ends. What ended is recorded
with it; recovery judges and ends the rest, in as many transactions as that takes: nobody else waits for a long chain, a
wide fan-out or a long line to end."""
GENERATION_COST: Final = 10
"""For how many dependencies the statements of one generation of dependants count. A chain has many generations."""


class OneLess(msgspec.Struct, frozen=True):
    """The dependency is met; others are left."""


class Free(msgspec.Struct, frozen=True):
    """All dependencies are met."""


class Wait(msgspec.Struct, frozen=True):
    """The upstreams have nothing new yet."""


class Fire(msgspec.Struct, frozen=True):
    """Every upstream has something new."""


def after_upstream(when: When, on_failure: OnFailure, upstream_id: str, upstream_state: State) -> OneLess | Free | Next:
    """A run that another waits for has ended in `upstream_state`. Next: the waiting run ends with it."""
    if when == "any_finished":
        return Free()
    if upstream_state == SUCCEEDED or on_failure == "run":
        return OneLess()
    state: State = FAILED if on_failure == "fail" else SKIPPED
    return Next(state, _upstream_ended(upstream_id, upstream_state))


def _upstream_ended(upstream_id: str, state: State) -> str:
    return f"upstream run {upstream_id} {state}"


def unmet_dependencies(run: NewRun, state_of: Callable[[str], State | None]) -> tuple[list[str], Next | None]:
    """The runs that a new run must still wait for; and its end, if one that has already ended decides it.

    `state_of` returns None for what is not a run of the same namespace.
    """
    waiting = []
    for upstream in dict.fromkeys(run.after):
        state = state_of(upstream)
        if state is None:
            raise InvalidInput("after", upstream, "is not a run", "name a run that was submitted before")
        if state not in FINAL:
            waiting.append(upstream)
            continue
        verdict = after_upstream(run.when, run.on_failure, upstream, state)
        if isinstance(verdict, Free):
            return [], None
        if isinstance(verdict, Next):
            return [], verdict
    return waiting, None


class Dependants(NamedTuple):
    """What the end of runs means for those that wait for them."""

    met: Counter[str]
    """How many dependencies of each run are met."""
    freed: set[str]
    """Runs that wait for nothing else."""
    ends: dict[str, Next]
    """Runs that end because of it, and how."""
    reasons: dict[str, str]
    """The reason of the last dependency that counted, by run."""


def judge_dependants(edges: Iterable[tuple[str, str, When, OnFailure]], ended: Mapping[str, State]) -> Dependants:
    """Judge edges (upstream, dependant, when, on failure) by the states in which their upstreams ended."""
    found = Dependants(Counter(), set(), {}, {})
    for upstream, dependant, when, on_failure in edges:
        verdict = after_upstream(when, on_failure, upstream, ended[upstream])
        found.met[dependant] += 1
        found.reasons[dependant] = _upstream_ended(upstream, ended[upstream])
        if isinstance(verdict, Free):
            found.freed.add(dependant)
        elif isinstance(verdict, Next):
            found.ends.setdefault(dependant, verdict)
    return found


def judge_edges(
    when: When, on_failure: OnFailure, edges: Sequence[Edge], *, hurried: bool = False
) -> Fire | Next | Wait:
    """Whether an `after` job is due, given the newest ended firing of each upstream job and the one last used.

    `hurried`: one that has something new is enough, and the others are not waited for.
    """
    fresh = [edge for edge in edges if edge.latest_at > edge.consumed_at]
    if not fresh:
        return Wait()
    if when == "any_finished":
        return Fire()
    bad = [edge for edge in fresh if edge.latest_outcome != SUCCEEDED]
    if bad and on_failure != "run":
        state: State = FAILED if on_failure == "fail" else SKIPPED
        return Next(state, f"upstream job {bad[0].upstream} {bad[0].latest_outcome}")
    return Fire() if hurried or len(fresh) == len(edges) else Wait()


def consumed_edges(verdict: Fire | Next, edges: Sequence[Edge]) -> list[tuple[str, Instant]]:
    """Which upstream firings the verdict uses up: all of them when it fires, the failed ones when it ends.

    A success beside a failure stays unused: if the failed upstream succeeds later, the pair still fires.
    """
    if isinstance(verdict, Fire):
        return [(edge.upstream_id, edge.latest_at) for edge in edges]
    return [
        (edge.upstream_id, edge.latest_at)
        for edge in edges
        if edge.latest_at > edge.consumed_at and edge.latest_outcome != SUCCEEDED
    ]


def used_firings(names: Sequence[str], edges: Sequence[Edge]) -> list[tuple[str, Instant]]:
    """The firings that an `after` job fires for, in the order in which it names the jobs."""
    fresh = {edge.upstream: edge for edge in edges if edge.latest_at > edge.consumed_at}
    return [(fresh[name].upstream_id, fresh[name].latest_at) for name in names if name in fresh]


def combined_outcome(outcomes: Sequence[FiringOutcome]) -> FiringOutcome:
    """The outcome of a firing, from the outcomes of its runs (one per region and index)."""
    for outcome in ("fired", "failed", "cancelled", "missed", "skipped"):
        if outcome in outcomes:
            return outcome
    return "succeeded"


class Upstream(msgspec.Struct, frozen=True):
    """The state of a job that another depends on, by its newest firing until an instant."""

    job: str
    unfinished: tuple[str, ...] = ()
    """The runs of that firing that have not ended."""
    fault: str = ""
    """Why it has not succeeded, if none of its runs can still succeed."""
    firing: tuple[str, Instant] | None = None
    """The job's id, and the instant of that firing."""


def newest_firing(job: str, ledger: Sequence[Firing]) -> Upstream:
    """How a job stands, by the rows of its ledger until an instant, newest first."""
    if not ledger:
        return Upstream(job, fault="has not run yet")
    rows = [row for row in ledger if row.fire_at == ledger[0].fire_at]
    outcome, firing = combined_outcome([row.outcome for row in rows]), (rows[0].job_id, rows[0].fire_at)
    if outcome == "fired":
        unfinished = tuple(row.run_id for row in rows if row.outcome == "fired" and row.run_id is not None)
        return Upstream(job, unfinished, firing=firing)
    fault = "" if outcome == "succeeded" else f"{outcome} at its last instant"
    return Upstream(job, fault=fault, firing=firing)
