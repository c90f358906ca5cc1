"""Results: one is accepted for each run; attempts, retries and states follow the rules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from mainspring.core.instants import Duration, format_duration
from mainspring.core.model import Report, RunOptions
from mainspring.core.runs.pacing import CLAIM_AHEAD
from mainspring.core.runs.retry import Again, decide
from mainspring.core.states import CANCELLED, FAILED, FINAL, PENDING, RUNNING, SUCCEEDED, TRANSITIONS
from mainspring.testing.checking.stories.reading import carried, earliest, surely_before
from mainspring.testing.checking.stories.runs import RunStory, Turn
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record

_report = msgspec.json.Decoder(Report).decode
_FAILURES = ("failed", "timed_out")
_LOST = "lost"
_LAST_WORDS = ("succeeded", "cancelled", "skipped")
"""Outcomes of an attempt that no other attempt follows."""


def one_result_is_accepted(stories: Stories) -> Iterator[Finding]:
    """(6) At most one final report of a run is accepted, that of its highest token, and it is how the run ends; and
    whatever is reported under a token that was overtaken is refused.

    A report that is repeated and acknowledged again is the same report. Not seen: a stale report of a retry that was
    accepted at a time that is not known exactly.
    """
    for story in stories.runs.values():
        finals = [report for turn in story.turns.values() for report in turn.reports if _is_accepted_final(report)]
        for other in finals:
            if other.token != finals[0].token:
                message = f"run {story.id} has two accepted results, with tokens {finals[0].token} and {other.token}"
                yield found(message, finals[0], other)
                break
        if finals:
            yield from _overtaken_or_lost(story, finals[0])
        yield from _stale(story)


def _is_accepted_final(report: Record) -> bool:
    return report.outcome == "ok" and report.state in FINAL


def _overtaken_or_lost(story: RunStory, final: Record) -> Iterator[Finding]:
    newest = max(story.claimed, key=lambda turn: turn.token, default=None)
    if newest is not None and newest.token > (final.token or 0):
        message = f"run {story.id} ended with token {final.token}, and was claimed with token {newest.token}"
        yield found(message, final, newest.claims[0])
    allowed = {final.state, CANCELLED} if final.state == FAILED else {final.state}
    if story.run is not None and story.run.state not in allowed:
        message = f"run {story.id} was accepted as {final.state} with token {final.token}, and is {story.run.state}"
        yield found(message, final, story.row)


def _stale(story: RunStory) -> Iterator[Finding]:
    turns = story.claimed
    for index, turn in enumerate(turns[:-1]):
        answered = [report for report in turn.reports if report.outcome != "refused"]
        overtaking = turns[index + 1].claims[0]
        if turn.accepted is not None and all(surely_before(overtaking, report) for report in answered):
            message = (
                f"a report of run {story.id} with token {turn.token} was accepted after token {overtaking.token} "
                "had been given"
            )
            yield found(message, overtaking, turn.claims[0], turn.accepted)


def attempts_and_losses_stay_within_limits(stories: Stories) -> Iterator[Finding]:
    """(9) A run is not attempted more often than its retries allow, nor lost more often than `max_losses` does; and
    each retry waits as long as it should. A worker whose code does not take the arguments of a run does not fail it
    within `unfit_bound` of its first claim: another may take them.

    How long, the report says; without, the policy does, less its jitter. Not seen: whether the wait in a report is
    what the policy asks for, as the failure may have asked for another.
    """
    for story in stories.runs.values():
        options = story.options
        if options is None:
            continue
        yield from _too_often(story, options)
        yield from _too_soon(story, options)
        yield from _failed_unfit(stories, story)


def _too_often(story: RunStory, options: RunOptions) -> Iterator[Finding]:
    lost = [record for record in story.attempts if record.state == _LOST]
    own = [record for record in story.attempts if record.state != _LOST]
    run = story.run
    losses = max(len(lost), 0 if run is None else run.losses)
    attempts = max(len(own), 0 if run is None else run.attempt - run.losses)
    if losses > options.max_losses + 1:
        message = f"run {story.id} was lost {losses} times, and may be {options.max_losses + 1} times"
        yield found(message, story.source, *lost)
    if attempts > options.retry.retries + 1:
        message = f"run {story.id} had {attempts} attempts of its own, and may have {options.retry.retries + 1}"
        yield found(message, story.source, *own)


def _failed_unfit(stories: Stories, story: RunStory) -> Iterator[Finding]:
    """A deadline that has passed, or a cancel, counts for any holder of the run."""
    bound, known = stories.bounds.unfit, story.known
    if bound is None or known is None or not story.claimed:
        return
    first = story.claimed[0].claims[0]
    for turn in story.claimed:
        report, claim = turn.accepted, turn.claims[0]
        if report is None or stories.takes(claim.worker, known) or report.store >= earliest(first) + bound:
            continue
        if report.data is not None and carried(report, _report).outcome == "failed":
            message = (
                f"worker {claim.worker} failed run {story.id} with token {turn.token}, whose arguments its code does "
                f"not take, {format_duration(report.store - first.store)} after the run was first claimed"
            )
            yield found(message, story.source, *stories.announced(claim.worker), first, claim, report)


def _too_soon(story: RunStory, options: RunOptions) -> Iterator[Finding]:
    turns = story.claimed
    for turn, following in pairwise(turns):
        retry = turn.accepted
        if retry is None or retry.state != PENDING:
            continue
        wait = _wait(story, turn, retry, options)
        failed_at = min(earliest(report) for report in turn.reports if report.outcome != "refused")
        for again, ahead in ((following.claims[0], CLAIM_AHEAD), *((start, 0) for start in following.starts[:1])):
            if again.store < failed_at + wait - ahead:
                message = (
                    f"run {story.id} was to be retried after {format_duration(wait)}, and its {again.what} with token "
                    f"{following.token} came {format_duration(again.store - failed_at)} after its failure with token "
                    f"{turn.token}"
                )
                yield found(message, story.source, *story.attempts, turn.claims[0], retry, *following.claims[:1], again)
                break


def _wait(story: RunStory, turn: Turn, retry: Record, options: RunOptions) -> Duration:
    if retry.data is not None:
        return carried(retry, _report).delay
    if not story.attempts:
        return 0
    own = [record for record in story.attempts if record.state != _LOST and (record.token or 0) <= turn.token]
    longest = decide(options.retry, len(own), (), 0.0)
    if not isinstance(longest, Again):
        return 0
    return longest.delay - int(longest.delay * options.retry.jitter)


def only_transitions_of_the_table(stories: Stories) -> Iterator[Finding]:
    """(10) A run goes only from states to states that the table allows, and its attempts agree.

    Seen from the outside: reports come from claims, and lead where a running run may go; attempts are numbered without
    gaps, their tokens grow, and none follows a last word; the end fits the last of them. Not seen: what happens to a
    run between two claims.
    """
    for story in stories.runs.values():
        for turn in story.turns.values():
            yield from _impossible_reports(story, turn)
        yield from _impossible_attempts(story)
        if story.has_ended and "attempt" in stories.kinds:
            yield from _impossible_end(story, stories.kinds["attempt"])


def _impossible_reports(story: RunStory, turn: Turn) -> Iterator[Finding]:
    for report in turn.reports:
        if report.outcome == "ok" and report.state not in TRANSITIONS[RUNNING]:
            yield found(f"run {story.id} was reported {report.state} with token {turn.token}", report)
        elif report.outcome == "ok" and not turn.claims:
            message = f"run {story.id} was reported {report.state} with token {turn.token}, which no worker was given"
            yield found(message, report)


def _impossible_attempts(story: RunStory) -> Iterator[Finding]:
    for number, record in enumerate(story.attempts, 1):
        if record.attempt != number:
            message = f"attempt {record.attempt} of run {story.id} should be number {number}"
            yield found(message, *story.attempts[:number])
            return
    for record, following in pairwise(story.attempts):
        if (following.token or 0) <= (record.token or 0):
            message = f"attempt {following.attempt} of run {story.id} has token {following.token} after {record.token}"
            yield found(message, *story.attempts)
        if record.state in _LAST_WORDS:
            message = f"run {story.id} {record.state} in attempt {record.attempt}, and was attempted again"
            yield found(message, *story.attempts)


def _is_out_of_time(story: RunStory) -> bool:
    """Whether the run ended when its total timeout had ended, or later."""
    end = None if story.options is None else story.options.give_up_at
    return end is not None and story.run is not None and (story.run.finished_at or 0) >= end


def _impossible_end(story: RunStory, any_attempt: Record) -> Iterator[Finding]:
    assert story.run is not None
    state, last = story.run.state, story.attempts[-1].state if story.attempts else None
    if state == SUCCEEDED:
        fits = last == SUCCEEDED
    elif state == CANCELLED:
        fits = last != SUCCEEDED
    elif state == FAILED:
        waited = story.new is not None and bool(story.new.after) and story.new.on_failure == "fail"
        fits = last in (*_FAILURES, _LOST) or (last is None and (waited or _is_out_of_time(story)))
    else:
        fits = last in (None, "skipped")
    if not fits:
        how = "without an attempt" if last is None else f"after an attempt that was {last}"
        yield found(f"run {story.id} ended {state} {how}", story.row, *story.submits, *story.attempts, any_attempt)
