"""Dependencies: of runs on runs, and of jobs on jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from mainspring.core.instants import LATEST, Instant, format_instant
from mainspring.core.model import FiringOutcome, NewRun
from mainspring.core.runs.dependency import combined_outcome
from mainspring.core.schedules.triggers import AfterTrigger
from mainspring.core.states import FINAL, SUCCEEDED
from mainspring.testing.checking.stories.jobs import JobStory
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record

_USELESS = FINAL - {SUCCEEDED}


def dependencies_come_first(stories: Stories) -> Iterator[Finding]:
    """(15) A run with `after` is claimed only once the runs that it waits for have ended as it asks; and an `after` job
    fires only when its upstreams have firings that it has not used.

    Not seen: which firing an `after` job used, so only that there were enough of them before each of its own was
    acknowledged or claimed; jobs whose trigger was edited, and upstreams that are not known.
    """
    for story in stories.runs.values():
        if story.new is not None and story.new.after and story.claimed:
            yield from _unmet(stories, story, story.new)
    for job in stories.jobs.values():
        trigger = job.definitions[0].trigger if job.is_complete and len(job.timings) == 1 else None
        if isinstance(trigger, AfterTrigger):
            yield from _fired_without_reason(stories, job, trigger)


def _unmet(stories: Stories, story: RunStory, new: NewRun) -> Iterator[Finding]:
    claim = story.claimed[0].claims[0]
    upstreams = [stories.runs[run_id] for run_id in new.after if run_id in stories.runs]
    if len(upstreams) < len(new.after):
        return
    early = [upstream for upstream in upstreams if _ends_after(upstream, claim.store)]
    if new.when == "any_finished":
        if len(early) == len(upstreams):
            yield _too_early(story, claim, early)
        return
    if early:
        yield _too_early(story, claim, early[:1])
    for upstream in upstreams:
        state = upstream.run.state if upstream.run is not None else None
        if state in _USELESS and new.on_failure != "run":
            message = f"run {story.id} was claimed with token {claim.token}, though run {upstream.id} before it {state}"
            yield found(message, *story.submits, claim, upstream.row)


def _ends_after(upstream: RunStory, instant: Instant) -> bool:
    """Whether a run surely had not ended at an instant."""
    if upstream.run is not None and not upstream.has_ended:
        return True
    return any(instant < turn.released for turn in upstream.claimed)


def _too_early(story: RunStory, claim: Record, upstreams: list[RunStory]) -> Finding:
    names = ", ".join(upstream.id for upstream in upstreams)
    when = format_instant(claim.store)
    message = (
        f"run {story.id} was claimed with token {claim.token} at {when}, when what it waits for had not ended: {names}"
    )
    proofs = [record for each in upstreams for turn in each.claimed for record in turn.proof()]
    return found(message, *story.submits, claim, *proofs, *(upstream.row for upstream in upstreams))


class _Ended(NamedTuple):
    """A firing, and until when it surely had not ended."""

    not_before: Instant
    rows: list[Record]
    proof: tuple[Record | None, ...]


def _fired_without_reason(stories: Stories, job: JobStory, trigger: AfterTrigger) -> Iterator[Finding]:
    fired = sorted(instant for instant, rows in job.rows.items() if _is_run_after(job, rows))
    namespace = job.definitions[0].namespace
    upstreams = [up for name in trigger.jobs if (up := stories.named.get((namespace, name))) is not None]
    if not fired or len(upstreams) < len(trigger.jobs) or any(upstream.removed for upstream in upstreams):
        return
    needs_success = trigger.when == "all_succeeded" and trigger.on_failure != "run"
    usable = [_usable(stories, upstream, needs_success=needs_success) for upstream in upstreams]
    if trigger.when == "any_finished":
        usable = [[ended for each in usable for ended in each]]
    decided = [_decided(stories, job, instant) for instant in fired]
    for firings in usable:
        number = _first_unfounded([moment for moment, _ in decided], firings)
        if number is not None:
            message = (
                f"job {job.name} fired for {format_instant(fired[number])}, its firing number {number + 1}, before so "
                "many firings that it waits for had ended as it asks"
            )
            own = [*(job.rows[instant][0] for instant in fired[: number + 1]), decided[number][1]]
            others = [record for firing in firings for record in (*firing.rows, *firing.proof)]
            yield found(message, *job.records, *(each for up in upstreams for each in up.records), *own, *others)


def _decided(stories: Stories, job: JobStory, instant: Instant) -> tuple[Instant, Record | None]:
    """When it was surely decided that a job fires, and what shows it. It is due from the first end on that may be a
    reason, which is the instant; but a planner that comes late judges by what has ended by then."""
    shown = [stories.fired.get((job.id, instant))]
    for row in job.rows[instant]:
        story = stories.runs.get(row.run or "")
        shown += [] if story is None else [turn.claims[0] for turn in story.claimed]
    return min(((record.store, record) for record in shown if record is not None), key=_moment, default=(LATEST, None))


def _moment(decided: tuple[Instant, Record]) -> Instant:
    return decided[0]


def _first_unfounded(decided: list[Instant], firings: list[_Ended]) -> int | None:
    """The first of a job's firings before which there were fewer than one upstream firing for each."""
    firings.sort(key=lambda firing: firing.not_before)
    for number, moment in enumerate(decided):
        if number >= len(firings) or firings[number].not_before > moment:
            return number
    return None


def _is_run_after(job: JobStory, rows: list[Record]) -> bool:
    if all(row.run is None for row in rows):
        return False
    return rows[0].kind == "after" if rows[0].kind is not None else job.is_scheduled(rows[0])


def _usable(stories: Stories, upstream: JobStory, *, needs_success: bool) -> list[_Ended]:
    """The firings of an upstream that may have given reason to fire. One that was repeated by hand may have twice."""
    usable = []
    for instant, rows in upstream.rows.items():
        outcome = combined_outcome([cast(FiringOutcome, row.state) for row in rows])
        if outcome == "fired" or (needs_success and outcome != SUCCEEDED):
            continue
        runs = [stories.runs[row.run] for row in rows if row.run in stories.runs]
        turns = [turn for story in runs for turn in story.claimed]
        last = max(turns, key=lambda turn: turn.released, default=None)
        if last is None:
            usable.append(_Ended(0, rows, ()))
        else:
            usable.append(_Ended(last.released, rows, last.proof()))
        usable += [_Ended(0, rows, ())] * stories.repeated[upstream.id, instant]
    return usable
