"""When a job comes due: which instants fire, which are missed and why, and when it is due again.

A plan is made from the job and `now` alone; the store applies it in one transaction or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import time
from itertools import islice
from typing import Final

import msgspec

from mainspring.core.ids import fraction_of, run_id_of
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant, format_duration, to_datetime
from mainspring.core.model import PROVIDED_TASKS, FiringKind, FiringOutcome, Gate, Job, JobPolicy, KeptOptions, NewRun
from mainspring.core.planning.firing_limits import Bounds, runs_of
from mainspring.core.runs.dependency import Fire, Upstream
from mainspring.core.runs.outcome import Next, with_end
from mainspring.core.schedules.calendars import (
    SEARCHED_DAYS,
    Calendar,
    count_rules,
    excluded,
    excluded_until,
    next_allowed_day,
)
from mainspring.core.schedules.cron import parse_cron
from mainspring.core.schedules.triggers import AfterTrigger, CronTrigger, EveryTrigger, Trigger, next_fire
from mainspring.core.states import FAILED
from mainspring.core.tasks.limits import task_gate

Calendars = Mapping[str, Calendar]

UNBOUNDED = Bounds(runs=2**62)
LISTED_MISSES = 100
"""The most missed instants of one plan that have a row each; older ones share one row."""
_COUNTED = 1_000
"""The most instants that one plan visits one by one (more, if more may be caught up); older ones share one row."""
_FEW_RULES = 20
"""A job that obeys more rules of calendars has fewer instants visited, so that a plan takes no longer."""
AGED = 10 * SECOND
"""A run that is made later than this after its instant is due when it is made: what was missed for hours has not waited
for a worker that long, and must neither outrank what has nor count as a backlog of hours."""
_MOST_LOOKS = 20_000
"""A search for allowed instants compares about as many with rules of calendars, tens of milliseconds of work. Then it
gives up, so that no calendar delays other jobs. A job that obeys many rules gets fewer steps."""
_LOOKS_A_STEP = 8
"""What a step costs beside its comparisons."""
_LEAST_STEPS = 40
_STEPS_A_FIND = 3
"""Each instant that is found pays for this many further steps."""
_MOST_MOVED_A_DAY = 24
LONGEST_STRETCH = 31 * DAY
_LARGEST_SHIFT = 2 * HOUR
"""How much longer or shorter than 24 hours a day by the clock may be."""


class PlannedFiring(msgspec.Struct, frozen=True):
    """One row of the ledger that is to be written, or one row for a stretch of missed instants."""

    fire_at: Instant
    outcome: FiringOutcome
    reason: str = ""
    last_at: Instant | None = None
    count: int = 1
    runs: tuple[NewRun, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What the store should write for one job, if the job has not changed since."""

    job: Job
    firings: tuple[PlannedFiring, ...]
    next_fire_at: Instant | None
    kind: FiringKind = "scheduled"


class Admit(msgspec.Struct, frozen=True):
    """The firing may have its runs."""


class Refuse(msgspec.Struct, frozen=True):
    """The firing has no run."""

    reason: str


class Replace(msgspec.Struct, frozen=True):
    """The firing may have its runs once these have been cancelled and have ended."""

    run_ids: tuple[str, ...]


def next_fire_at(job: Job, after: Instant, calendars: Calendars) -> Instant | None:
    """The first instant strictly after `after` at which the job is due, by trigger, start, end and calendars.

    With `on_excluded="next_day"` an excluded instant moves to the same time on the next allowed day. Not so for a job
    that is due more than 24 times a day: its next allowed instant comes soon enough.
    """
    return Search(job, calendars).next_after(after)


def is_moved_to_next_day(job: Job) -> bool:
    """Whether an excluded instant of the job moves to the next allowed day."""
    return job.policy.on_excluded == "next_day" and _is_rare(job.trigger)


def _is_rare(trigger: Trigger) -> bool:
    if isinstance(trigger, CronTrigger):
        cron = parse_cron(trigger.expression, trigger.dialect)
        return cron.hours.bit_count() * cron.minutes.bit_count() * cron.seconds.bit_count() <= _MOST_MOVED_A_DAY
    return not isinstance(trigger, EveryTrigger) or trigger.period * _MOST_MOVED_A_DAY >= DAY


class Search:
    """Finds instants of a job in bounded time. Once its steps are used up, it finds nothing more."""

    def __init__(self, job: Job, calendars: Calendars) -> None:
        self._job = job
        self._calendars = calendars
        self._names = job.policy.calendars
        self.rules = count_rules(self._names, calendars) if self._names else 0
        self._steps = max(_MOST_LOOKS // (self.rules + _LOOKS_A_STEP), _LEAST_STEPS)
        self._taken = 0

    @property
    def looks(self) -> int:
        """What it has cost so far."""
        return (self._taken + 1) * (self.rules + _LOOKS_A_STEP)

    def _step(self, steps: int = 1) -> None:
        self._steps, self._taken = self._steps - steps, self._taken + steps

    def next_after(self, after: Instant) -> Instant | None:
        """The first instant strictly after `after` at which the job is due."""
        policy = self._job.policy
        if policy.max_firings is not None and self._job.fired >= policy.max_firings:
            return None
        if policy.start_at is not None:
            after = max(after, policy.start_at - 1)
        if not self._names:
            found = self._following(after)
        elif is_moved_to_next_day(self._job):
            found = self._next_moved(after)
        else:
            found = self._next_allowed(after)
        self._steps += _STEPS_A_FIND
        return None if found is not None and policy.end_at is not None and found > policy.end_at else found

    def _following(self, after: Instant) -> Instant | None:
        return next_fire(self._job.trigger, after, self._job.created_at)

    def _next_allowed(self, after: Instant) -> Instant | None:
        candidate, steps = self._following(after), 0
        while candidate is not None and self._steps > 0 and not _in_vain(steps, candidate - after):
            self._step()
            steps += 1
            until = excluded_until(self._names, candidate, self._calendars)
            if until is None:
                return candidate
            candidate = self._following(until - 1)
        return None

    def _next_moved(self, after: Instant) -> Instant | None:
        """The first instant after `after`, where excluded instants move to the same time on the next allowed day."""
        hopeless: set[time] = set()
        best: Instant | None = None
        candidate, steps = self._following(after), 0
        while candidate is not None and (best is None or candidate < best) and self._steps > 0:
            if _in_vain(steps, candidate - after):
                break
            moved, until = self._moved(candidate, hopeless)
            steps += 1
            best = _earlier(best, moved)
            candidate = self._following(until)
        earlier = self._following(self._start_of_stretch(after) - DAY)
        while earlier is not None and earlier <= after and self._steps > 0:
            if best is None or _may_move_between(earlier, after, best):
                moved, _ = self._moved(earlier, hopeless)
                best = best if moved is None or moved <= after else _earlier(best, moved)
            earlier = self._following(earlier)
        return best

    def _start_of_stretch(self, after: Instant) -> Instant:
        """The first of the days before `after` on which its time of day is excluded, or `after` itself."""
        start = after
        while start > after - LONGEST_STRETCH and excluded(self._names, start - DAY, self._calendars) is not None:
            start -= DAY
        return start

    def _moved(self, instant: Instant, hopeless: set[time]) -> tuple[Instant | None, Instant]:
        """Where an instant moves to, and from where to search on. Finding that a time of day is excluded for two years
        takes long: `hopeless` remembers it."""
        self._step()
        until = excluded_until(self._names, instant, self._calendars)
        if until is None:
            return instant, instant
        trigger = self._job.trigger
        zone = trigger.tz if isinstance(trigger, CronTrigger) else "UTC"
        clock = to_datetime(instant, zone).time()
        if clock in hopeless:
            return None, until - 1
        days = max(min(SEARCHED_DAYS, self._steps), 0)
        moved = next_allowed_day(instant, self._names, self._calendars, zone, days)
        self._step(days if moved is None else (moved - instant) // DAY)
        if moved is None:
            hopeless.add(clock)
            return None, until - 1
        return moved, instant


def _in_vain(steps: int, passed: Duration) -> bool:
    """Whether to give up the search for an allowed instant: after five years, unless the job is due very rarely."""
    return steps > 2_000 and passed > 5 * 366 * DAY


def _earlier(one: Instant | None, other: Instant | None) -> Instant | None:
    return other if one is None else one if other is None else min(one, other)


def _may_move_between(instant: Instant, low: Instant, high: Instant) -> bool:
    """Whether some days by the clock after an instant may lie between two others: cheaper than to ask the calendars."""
    reached = low + (instant - low) % DAY
    return reached - low < high - low + _LARGEST_SHIFT or reached - low > DAY - _LARGEST_SHIFT


def plan(job: Job, now: Instant, calendars: Calendars, bounds: Bounds = UNBOUNDED) -> Plan:
    """Decide about a job whose next fire time has come. What exceeds the bounds stays due."""
    if job.next_fire_at is None or job.next_fire_at > now:
        return Plan(job, (), job.next_fire_at)
    if isinstance(job.trigger, AfterTrigger):
        return Plan(job, _judge_instants(job, [job.next_fire_at], now, bounds)[0], None, "after")
    crossed, instants = _due_instants(job, now, calendars, bounds.late_because or "the scheduler was down")
    if not instants:
        return Plan(job, (), next_fire_at(job, now, calendars))
    firings, left = _judge_instants(job, instants, now, bounds)
    if left:
        return Plan(job, (*crossed, *firings), left[0])
    running = sum(firing.outcome == "fired" for firing in firings)
    following = next_fire_at(msgspec.structs.replace(job, fired=job.fired + running), instants[-1], calendars)
    return Plan(job, (*crossed, *firings), following)


def runs_in(made: Plan) -> int:
    """How many runs a plan makes."""
    return sum(len(firing.runs) for firing in made.firings)


def cut(made: Plan, runs: int) -> Plan | None:
    """The part of a plan that makes at most `most` runs; the rest stays due. None if nothing can be written."""
    for index, firing in enumerate(made.firings):
        runs -= len(firing.runs)
        if runs < 0:
            firings = made.firings[:index]
            return msgspec.structs.replace(made, firings=firings, next_fire_at=firing.fire_at) if firings else None
    return made


def as_of(ahead: Plan, now: Instant) -> Plan | None:
    """A plan that was made before for the job's very instant, as if it were made now; None if it would be another."""
    job = ahead.job
    late, following = now - (job.next_fire_at or now), ahead.next_fire_at
    grace, deadline = job.policy.grace, job.policy.start_deadline
    latest = min(grace, AGED, grace if deadline is None else deadline)
    if not 0 <= late <= latest or (following is not None and following <= now):
        return None
    return written_at(ahead, now)


def may_precede(ahead: Plan) -> bool:
    """Whether a plan that was made before its instant may also be written before it: its runs wait until they are due.
    It may not if the plan depends on what has ended by then, or if other runs would have to wait behind its runs."""
    job = ahead.job
    if ahead.kind != "scheduled" or job.policy.overlap != "allow" or job.policy.dependencies or len(ahead.firings) != 1:
        return False
    firing = ahead.firings[0]
    return firing.outcome == "fired" and not any(run.lines or run.after for run in firing.runs)


def written_at(ahead: Plan, now: Instant) -> Plan:
    """The plan, with runs that are accepted now."""
    replace = msgspec.structs.replace
    firings = [
        replace(firing, runs=tuple([replace(run, created_at=now) for run in firing.runs])) for firing in ahead.firings
    ]
    return Plan(ahead.job, tuple(firings), ahead.next_fire_at, ahead.kind)


def _due_instants(
    job: Job, now: Instant, calendars: Calendars, reason: str
) -> tuple[tuple[PlannedFiring, ...], list[Instant]]:
    """All instants from the next fire time to now; of very many only the newest, and one row for those before them,
    with the reason. None, if the next fire time was but a mark."""
    assert job.next_fire_at is not None
    search = Search(job, calendars)
    first, most = job.next_fire_at, _COUNTED if search.rules <= _FEW_RULES else _COUNTED * _FEW_RULES // search.rules
    if job.policy.misfire == "all":
        most = max(most, job.policy.catch_up_limit)
    if job.policy.calendars and _is_mark(search, job, first):
        instants = list(islice(_instants_after(search, first - 1, now), most + 1))
    else:
        instants = [first, *islice(_instants_after(search, first, now), most)]
    if len(instants) <= most:
        return (), instants
    newest = _newest_instants(search, first, now, most)
    last_at = max([first, *_newest_instants(search, first, newest[0] - 1, 1)])
    return (PlannedFiring(first, "missed", reason, last_at=last_at, count=0),), newest


def _is_mark(search: Search, job: Job, instant: Instant) -> bool:
    """Whether a job is not due at an instant, but marked as due so that it is planned anew: see `revision.mark`."""
    return next_fire(job.trigger, instant - 1, job.created_at) != instant and search.next_after(instant - 1) != instant


def _instants_after(search: Search, after: Instant, until: Instant) -> Iterator[Instant]:
    instant = search.next_after(after)
    while instant is not None and instant <= until:
        yield instant
        instant = search.next_after(instant)


def _newest_instants(search: Search, after: Instant, until: Instant, count: int) -> list[Instant]:
    """The last `count` instants in (after, until], found from the end: years of seconds are not visited one by one."""
    found: list[Instant] = []
    span: Duration = SECOND
    while until > after and len(found) < count:
        start = max(until - span, after)
        part = list(islice(_instants_after(search, start, until), count + 1))
        if len(part) > count:
            span //= 2
            continue
        found[:0] = part
        until, span = start, span * 2
    return found[-count:]


def _judge_instants(
    job: Job, instants: list[Instant], now: Instant, bounds: Bounds
) -> tuple[tuple[PlannedFiring, ...], list[Instant]]:
    """Which of the due instants run, by the misfire policy, each of the others with its reason; and those that should
    run but have to wait for another plan."""
    policy = job.policy
    misses: list[tuple[Instant, str]] = []
    if policy.start_deadline is not None:
        expired, instants = _split_by_age(instants, now - policy.start_deadline)
        misses += [(instant, f"not started within {format_duration(policy.start_deadline)}") for instant in expired]
    late, punctual = _split_by_age(instants, now - policy.grace)
    if policy.misfire == "skip":
        misses += [(instant, f"misfire=skip: later than {format_duration(policy.grace)}") for instant in late]
        late = []
    elif policy.misfire == "once":
        kept = [] if punctual else late[-1:]
        misses += [(i, "misfire=once: a later instant stands for it") for i in late[: len(late) - len(kept)]]
        late = kept
    else:
        passed, late = _catch_up(policy, late, now)
        misses += passed
    running = [*late, *punctual]
    if policy.max_firings is not None:
        # Once the last one has fired the job is done, and what would have come later is no longer due.
        running = running[: max(policy.max_firings - job.fired, 0)]
    if bounds.late_because:
        misses = [(instant, f"{reason}; late because {bounds.late_because}") for instant, reason in misses]
    if bounds.refusal:
        misses, running = [*misses, *((instant, bounds.refusal) for instant in running)], []
    most = max(bounds.runs // runs_of(job), 1)
    fired = [PlannedFiring(instant, "fired", runs=make_runs(job, instant, now)) for instant in running[:most]]
    return (*_list_misses(misses), *fired), running[most:]


def _split_by_age(instants: list[Instant], oldest: Instant) -> tuple[list[Instant], list[Instant]]:
    """The instants before `oldest`, and the others."""
    cut = bisect_left(instants, oldest)
    return instants[:cut], instants[cut:]


def _catch_up(policy: JobPolicy, late: list[Instant], now: Instant) -> tuple[list[tuple[Instant, str]], list[Instant]]:
    window, limit = policy.catch_up_window, policy.catch_up_limit
    old, late = _split_by_age(late, now - window)
    misses = [(i, f"misfire=all: older than the catch-up window of {format_duration(window)}") for i in old]
    surplus = len(late) - min(len(late), limit)
    misses += [(instant, f"misfire=all: more than {limit} to catch up") for instant in late[:surplus]]
    return misses, late[surplus:]


def _list_misses(misses: Sequence[tuple[Instant, str]]) -> list[PlannedFiring]:
    older, listed = misses[: max(len(misses) - LISTED_MISSES, 0)], misses[-LISTED_MISSES:]
    rows = [PlannedFiring(instant, "missed", reason) for instant, reason in listed]
    if older:
        rows.insert(0, PlannedFiring(older[0][0], "missed", older[0][1], last_at=older[-1][0], count=len(older)))
    return rows


def settle(
    made: Plan, verdict: Fire | Next, fire_at: Instant, now: Instant, used: Sequence[tuple[str, Instant]]
) -> Plan:
    """The plan of an `after` job from the outcomes of its upstreams, for an instant that its ledger does not have yet.
    Its runs record the firings that it used."""
    job, planned = made.job, made.job.next_fire_at or 0
    if isinstance(verdict, Next):
        outcome: FiringOutcome = "failed" if verdict.state == FAILED else "skipped"
        return msgspec.structs.replace(made, firings=(PlannedFiring(fire_at, outcome, verdict.reason),))
    moved = [
        msgspec.structs.replace(
            it,
            fire_at=fire_at,
            runs=_noted(earlier(make_runs(job, fire_at, now), fire_at - planned) if it.runs else (), used),
        )
        for it in made.firings
    ]
    return msgspec.structs.replace(made, firings=tuple(moved))


def depend(firing: PlannedFiring, policy: JobPolicy, upstreams: Sequence[Upstream]) -> PlannedFiring:
    """A firing of a job with dependencies: its runs wait for theirs. If one of those has not succeeded, the firing has
    no runs, unless the job runs all the same."""
    failed = [each for each in upstreams if each.fault]
    if failed and policy.on_dependency_failure != "run":
        outcome: FiringOutcome = "failed" if policy.on_dependency_failure == "fail" else "skipped"
        return PlannedFiring(firing.fire_at, outcome, f"job {failed[0].job}, which it depends on, {failed[0].fault}")
    after = tuple(run_id for each in upstreams for run_id in each.unfinished)
    runs = [
        msgspec.structs.replace(run, after=after, on_failure=policy.on_dependency_failure) if after else run
        for run in firing.runs
    ]
    used = [each.firing for each in upstreams if each.firing is not None]
    return msgspec.structs.replace(firing, runs=_noted(runs, used))


def _noted(runs: Sequence[NewRun], used: Sequence[tuple[str, Instant]]) -> tuple[NewRun, ...]:
    """The runs of one firing, with the firings that they follow in their options, so that a task can read the results
    of their runs."""
    if not runs:
        return ()
    known = msgspec.json.decode(runs[0].options, type=KeptOptions)
    options = msgspec.json.encode(msgspec.structs.replace(known, after_firings=tuple(used))).decode()
    return tuple(msgspec.structs.replace(run, options=options) for run in runs)


def earlier(runs: Sequence[NewRun], by: Duration) -> tuple[NewRun, ...]:
    """The runs, due earlier by this much: a run whose instant was taken gets a later one, but need not wait for it."""
    return tuple(due(run, run.due_at - by) for run in runs) if by else tuple(runs)


def due(run: NewRun, at: Instant) -> NewRun:
    """The run, due at another instant, from which its total timeout counts."""
    return msgspec.structs.replace(run, due_at=at, options=with_end(run.options, at))


def jitter_of(job: Job) -> Duration:
    """The delay that spreads this job's runs: between nothing and `jitter`, the same on every node and every time."""
    return int(fraction_of("jitter", job.id) * job.policy.jitter) if job.policy.jitter else 0


def make_runs(job: Job, fire_at: Instant, now: Instant) -> tuple[NewRun, ...]:
    """The runs of one firing: one per region and index."""
    policy = job.policy
    # Commands have one task name for all: there a limit is the job's own.
    own = job.task in PROVIDED_TASKS
    gates = []
    if job.limit:
        gates = [Gate(f"job:{job.id}", job.limit) if own else task_gate(job.task, job.limit, job.options.per, job.args)]
    if policy.parallelism:
        gates.append(Gate(f"firing:{job.id}:{fire_at}", policy.parallelism))
    due_at = fire_at + jitter_of(job)
    if due_at < now - AGED:
        due_at = now
    options = with_end(encode_options(job), due_at)
    return tuple(
        NewRun(
            id=run_id_of(job.id, fire_at, region, idx),
            task=job.task,
            due_at=due_at,
            created_at=now,
            namespace=job.namespace,
            queue=job.queue,
            region=region,
            args=job.args,
            priority=job.priority,
            options=options,
            expires_at=None if policy.start_deadline is None else fire_at + policy.start_deadline,
            job_id=job.id,
            job=job.name,
            fire_at=fire_at,
            idx=idx,
            key=job.key,
            gates=tuple(gates),
            lines=_lines_of(job, region),
        )
        for region in policy.regions
        for idx in range(policy.completions)
    )


def encode_options(job: Job) -> str:
    """A job's run options."""
    return msgspec.json.encode(job.options).decode()


def _lines_of(job: Job, region: str) -> tuple[Gate, ...]:
    lines = [Gate(f"key:{job.key}", 1)] if job.key else []
    if job.policy.overlap == "queue":
        lines.append(Gate(f"job:{job.id}:{region}", 1))
    return tuple(lines)


def admit(job: Job, unfinished: Sequence[str]) -> Admit | Refuse | Replace:
    """Overlap: whether a firing may have its runs while these runs of the same job and region have not ended."""
    if not unfinished or job.policy.overlap in ("allow", "queue"):
        return Admit()
    if job.policy.overlap == "replace":
        return Replace(tuple(unfinished))
    return Refuse(f"overlap=forbid: run {unfinished[0]} had not ended")


NO_WORKER: Final = "no worker knows this task"
KNOWN_FOR: Final[Duration] = HOUR
"""A task that a worker knew within this time is not unknown: its workers may be being replaced, or be down."""
LIVE_FOR: Final[Duration] = MINUTE
"""If no worker had a heartbeat within this time, all are down, and nothing follows for tasks."""


def skip_unknown(plan: Plan) -> Plan:
    """A plan of a job whose task no worker knows, and that has a run waiting already: more would only pile up."""
    firings = [
        PlannedFiring(each.fire_at, "skipped", NO_WORKER) if each.outcome == "fired" else each for each in plan.firings
    ]
    return msgspec.structs.replace(plan, firings=tuple(firings))


def pause_reason(why: str) -> str:
    """The reason of an instant that has no run because of a pause."""
    return f"paused: {why}" if why else "paused"


def pass_over(job: Job, now: Instant, calendars: Calendars, reason: str) -> Plan:
    """Skip the instants that are due by now, each accounted for. An `after` job has none of its own and stays due."""
    if job.next_fire_at is None or job.next_fire_at > now or isinstance(job.trigger, AfterTrigger):
        return Plan(job, (), job.next_fire_at)
    crossed, instants = _due_instants(job, now, calendars, reason)
    if not instants:
        return Plan(job, (), next_fire_at(job, now, calendars))
    rows = (*crossed, *_list_misses([(instant, reason) for instant in instants]))
    skipped = tuple(msgspec.structs.replace(row, outcome="skipped", reason=reason) for row in rows)
    return Plan(job, skipped, next_fire_at(job, instants[-1], calendars))
