"""What follows when a claim ends, however it ends: success, failure, deadline, cancel, loss, hand-back, a late report.

Stores read the claimed runs, call these functions, and write what they return.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from mainspring.core.ids import fraction_of
from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant, format_duration, format_instant
from mainspring.core.model import AttemptOutcome, Event, KeptOptions, Report, RunOptions, named_queue
from mainspring.core.runs.retry import Again, decide
from mainspring.core.states import CANCELLED, FAILED, PENDING, SKIPPED, State
from mainspring.core.text import clean

Token = tuple[str, int]
"""A claim: the run's id and the token under which it was claimed."""
TOTAL_KEY = '"total_timeout":'
"""The key as encoded options contain it: most have none, and need not be decoded."""
_options = msgspec.json.Decoder(RunOptions)


class Next(NamedTuple):
    """The state that a run goes to, why, and, for `pending`, after how long."""

    state: State
    reason: str
    delay: Duration = 0


class ClaimedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a running run that its end needs."""

    seq: int
    """The position in the order of acceptance."""
    id: str
    token: int
    namespace: str
    task: str
    worker: str
    attempt: int
    started_at: Instant | None
    queue: str
    options: str = ""
    """Empty if the store read only this much, because nothing depends on the run's end."""
    losses: int = 0
    cancel_requested_at: Instant | None = None
    cancel_reason: str = ""
    job_id: str | None = None
    job: str | None = None
    fire_at: Instant | None = None
    region: str = ""
    idx: int = 0
    dependants: int = 0
    lines: int = 0
    gates: Sequence[str] | None = None

    @property
    def matters(self) -> bool:
        """Whether anything else depends on the run's end."""
        return bool(self.job_id or self.dependants or self.lines or self.gates)

    @property
    def cancel(self) -> str | None:
        """The reason of a request to cancel, if there is one."""
        return None if self.cancel_requested_at is None else self.cancel_reason or "cancelled"


class Ended(NamedTuple):
    """A run that has just been moved to history, with what its end may set off."""

    id: str
    namespace: str
    state: State
    reason: str
    job_id: str | None
    fire_at: Instant | None
    region: str
    idx: int
    dependants: int
    lines: int
    gates: Sequence[str] | None
    ran: bool
    options: str


class EndedColumns(NamedTuple):
    """What is written of a run whose attempt has ended, or that has ended without one."""

    state: State
    outcome: AttemptOutcome | None
    reason: str
    started_at: Instant | None
    finished_at: Instant
    result: str | None = None
    error: str | None = None
    attempts: int = 0
    """Attempts to add to the run's count."""
    losses: int = 0
    """Losses to add to the run's count."""


def ended(run: ClaimedRun, state: State, reason: str) -> Ended:
    """A run that was claimed and has ended."""
    return Ended(run.id, run.namespace, state, reason, run.job_id, run.fire_at, run.region, run.idx, run.dependants,
                 run.lines, run.gates, True, run.options)  # fmt: skip


def unattempted(verdict: Next, now: Instant) -> EndedColumns:
    """The end of a run that comes without the end of an attempt."""
    return EndedColumns(verdict.state, None, verdict.reason, None, now)


def end_attempt(
    run: ClaimedRun, verdict: Next, report: Report, now: Instant, *, losses: int = 0
) -> tuple[EndedColumns, Event]:
    """The attempt ended as `report` says, and the run goes where `verdict` says: what is written, and its event."""
    state, reason = verdict.state, clean(verdict.reason)
    started_at, finished_at = report.started_at or run.started_at, report.finished_at or now
    columns = EndedColumns(state, attempt_outcome(state, report.outcome), reason, started_at, finished_at,
                           clean(report.result), clean(report.error), 1, losses)  # fmt: skip
    kind = "run." + state if state != PENDING else "run.lost" if losses else "run.retrying"
    duration = None if started_at is None else finished_at - started_at
    event = Event(kind, now, run.namespace, run.id, run.job_id, run.job, run.task, run.worker, run.fire_at,
                  run.attempt + 1, reason, duration, queue=named_queue(run.queue))  # fmt: skip
    return columns, event


def accepted_reports(reports: Sequence[Report], claimed: Mapping[str, ClaimedRun]) -> list[ClaimedRun | None]:
    """For each report its run, if the report is the first under the run's newest token; else None."""
    accepted: list[ClaimedRun | None] = []
    seen: set[Token] = set()
    for report in reports:
        run, claim = claimed.get(report.run_id), (report.run_id, report.token)
        is_first = run is not None and run.token == report.token and claim not in seen
        accepted.append(run if is_first else None)
        if is_first:
            seen.add(claim)
    return accepted


def after_report(report: Report, run: ClaimedRun) -> Next:
    """The verdict on an accepted report, given whether the run's cancellation was requested."""
    return settle(Next(report.state, report.reason, report.delay), run.cancel)


def still_claimed(claims: Iterable[Token], claimed: Mapping[str, ClaimedRun]) -> list[ClaimedRun]:
    """The runs whose claims still hold, once each."""
    return [
        claimed[run_id]
        for run_id, token in dict.fromkeys(claims)
        if run_id in claimed and claimed[run_id].token == token
    ]


def after_hand_back(run: ClaimedRun, now: Instant) -> tuple[Next, Event]:
    """A worker gives a claim back that it has not begun: the run waits again, unless its cancellation was requested."""
    cancel = run.cancel
    if cancel is None:
        verdict, kind = Next(PENDING, f"handed back by {run.worker}"), "run.handed_back"
    else:
        verdict, kind = Next(CANCELLED, cancel), "run.cancelled"
    about = (run.namespace, run.id, run.job_id, run.job, run.task, run.worker)
    return verdict, Event(kind, now, *about, queue=named_queue(run.queue))


def after_expiry(run: ClaimedRun, now: Instant) -> tuple[Next, Report]:
    """The claim ran out: where the run goes, and the report that its worker could not make."""
    verdict = after_loss(run.losses + 1, _options.decode(run.options), run.worker, run.cancel, now)
    return verdict, Report(run.id, run.token, "lost", verdict.state, verdict.reason)


def stops_line(run_id: str, state: State, options: str, line: str) -> Next | None:
    """How the runs behind this one in a line end with it: by choice, if it failed and the line is that of a key."""
    if state == FAILED and line.startswith("key:") and _options.decode(options).on_key_failure == "stop":
        return stopped_by(run_id, line)
    return None


def stopped_by(run_id: str, line: str) -> Next:
    """How a run ends with one that failed before it in a line."""
    return Next(SKIPPED, f"run {run_id} before it in line {line} failed")


def after_failure(
    run_id: str,
    attempt: int,
    losses: int,
    options: RunOptions,
    summary: str,
    error_types: Sequence[str],
    now: Instant,
    asked: Duration | None = None,
) -> Next:
    """An attempt failed by itself: retry it later, or give the run up.

    `attempt` counts the attempts that ended before this one; lost ones do not use up retries. A retry that would come
    due when the total timeout of the run has ended is not made.
    """
    failures = attempt + 1 - losses
    verdict = decide(options.retry, failures, error_types, fraction_of("retry", run_id, attempt), asked)
    if isinstance(verdict, Again):
        if _is_over(options, now + verdict.delay):
            return Next(FAILED, f"{summary}; {_total(options)} leaves no time for a retry")
        left = f"retry {failures} of {options.retry.retries} in {_about(verdict.delay)}"
        return Next(PENDING, f"{summary}; {left}", verdict.delay)
    return Next(FAILED, f"{summary}; {verdict.reason}" if verdict.reason else summary)


def _about(delay: Duration) -> str:
    """A duration for people, without the microseconds that jitter adds."""
    for unit in (SECOND, 100 * MILLISECOND, MILLISECOND):
        if delay >= 10 * unit:
            return format_duration(round(delay / unit) * unit)
    return format_duration(delay)


def after_loss(losses: int, options: RunOptions, worker: str, cancel_reason: str | None, now: Instant) -> Next:
    """The claim expired: its worker died, stalled or lost its connection. `losses` counts this one."""
    if cancel_reason is not None:
        return Next(CANCELLED, cancel_reason)
    if _is_over(options, now):
        return Next(FAILED, f"worker {worker} was lost; {_total(options)} leaves no time for another attempt")
    if losses > options.max_losses:
        return Next(FAILED, f"its worker was lost {losses} times, last {worker}; it may be what kills them")
    return Next(PENDING, f"worker {worker} was lost; loss {losses} of at most {options.max_losses}")


def with_end(options: str, due_at: Instant) -> str:
    """The encoded options of a run that is due at this instant, with the end of its total timeout, if it has one."""
    if TOTAL_KEY not in options:
        return options
    known = msgspec.json.decode(options, type=KeptOptions)
    end = None if known.total_timeout is None else due_at + known.total_timeout
    return msgspec.json.encode(msgspec.structs.replace(known, give_up_at=end)).decode()


def deadline_of(options: RunOptions, started_at: Instant) -> Instant | None:
    """When an attempt is ended: at its timeout, or at the end of the run's total timeout if that comes first."""
    own = None if options.timeout is None else started_at + options.timeout
    if own is None or options.give_up_at is None:
        return options.give_up_at if own is None else own
    return min(own, options.give_up_at)


def ends_with_run(options: RunOptions, started_at: Instant) -> bool:
    """Whether the deadline of an attempt is the end of the run's total timeout, so that no other attempt follows."""
    return options.give_up_at is not None and options.give_up_at == deadline_of(options, started_at)


def overrun(options: RunOptions, started_at: Instant) -> str:
    """What is wrong with an attempt that its deadline ended."""
    total = ends_with_run(options, started_at)
    limit = _total(options) if total else f"its timeout of {format_duration(options.timeout or 0)}"
    return f"not done within {limit}"


def _is_over(options: RunOptions, at: Instant) -> bool:
    return options.give_up_at is not None and at >= options.give_up_at


def _total(options: RunOptions) -> str:
    return f"its total timeout of {format_duration(options.total_timeout or 0)}"


def is_suspect(losses: int, options: RunOptions) -> bool:
    """Whether a run may be what kills its workers, so that the next worker must claim it alone: it was lost twice, or
    this is its last chance. One loss means nothing: a killed worker loses all its runs, and they would wait for each
    other."""
    return losses >= max(1, min(2, options.max_losses))


def too_late(expires_at: Instant) -> Next:
    """No worker started the run before its starting deadline."""
    return Next(SKIPPED, f"not started by {format_instant(expires_at)}")


def out_of_time(attempt: int, expires_at: Instant | None, options: str) -> Next:
    """The total timeout of a run has ended while it waited: for other runs, at a gate, for a worker or for a retry. A
    starting deadline that had passed before that comes first.

    `attempt` counts the attempts that have ended.
    """
    known = _options.decode(options)
    if attempt == 0 and expires_at is not None and (known.give_up_at is None or expires_at < known.give_up_at):
        return too_late(expires_at)
    if attempt == 0:
        return Next(FAILED, f"not started within {_total(known)}")
    return Next(FAILED, f"not done within {_total(known)}; attempt {attempt + 1} was not started")


def settle(proposed: Next, cancel_reason: str | None) -> Next:
    """The final decision, in the transaction: a failure after a request to cancel ends cancelled, never retried; a
    success stands."""
    if cancel_reason is not None and proposed.state in (PENDING, FAILED):
        return Next(CANCELLED, cancel_reason)
    return proposed


def attempt_outcome(state: State, outcome: AttemptOutcome) -> AttemptOutcome:
    """How the attempt itself is remembered once the run's state is settled."""
    return "cancelled" if state == CANCELLED and outcome not in ("succeeded", "lost") else outcome
