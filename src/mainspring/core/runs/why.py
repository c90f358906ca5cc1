"""Why a run is not running, and why a job does not fire: causes with what to do about each, the strongest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple

import msgspec

from mainspring.core.instants import (
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    SECOND,
    Duration,
    Instant,
    format_duration,
    format_instant,
)
from mainspring.core.model import Edge, Job, Run, RunOptions, Worker
from mainspring.core.schedules.triggers import AfterTrigger, AtTrigger, ManualTrigger
from mainspring.core.states import FINAL, PENDING, RUNNING

OVERDUE: Final[Duration] = 5 * SECOND
"""A job due for longer than this has no planner: planning takes milliseconds, an election two seconds."""
_NAMED = 5
_options = msgspec.json.Decoder(RunOptions)
_COARSE = ((DAY, HOUR), (HOUR, MINUTE), (MINUTE, SECOND), (SECOND, SECOND), (0, MILLISECOND))


CauseKind = Literal[
    "cancel-requested", "claim-expired", "key", "overlap", "dependency", "dependencies", "gate", "released", "not-due",
    "no-worker", "queue-unserved", "region-unserved", "task-unknown", "workers-stopping", "worker-free", "workers-busy",
    "expires", "paused", "unplanned", "no-scheduler", "limit-reached", "manual", "ended", "done", "calendars",
    "no-instant", "upstream", "queue-paused", "total-timeout",
]  # fmt: skip


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason, what to do about it, and what it refers to."""

    kind: CauseKind
    text: str
    remedy: str = ""
    since: Instant | None = None
    """Since when, or until when if it lies ahead."""
    run_id: str | None = None
    job: str | None = None
    queue: str | None = None
    gate: str | None = None
    used: int | None = None
    capacity: int | None = None
    workers: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The whole, as people read it."""
        return f"{self.text} {self.remedy}".rstrip()


class GateUse(NamedTuple):
    """How full a gate is."""

    used: int
    capacity: int


class QueuePause(NamedTuple):
    """Since when a queue is paused, and why."""

    since: Instant
    reason: str


DEAD_LATELY: Duration = 10 * MINUTE
"""How long a dead worker counts as a loss of the fleet; later it was replaced, or is not missed."""


class Crowd(NamedTuple):
    """The workers that the store knows, and since when silence means death."""

    workers: Sequence[Worker]
    now: Instant
    dead_after: Duration

    def living(self) -> list[Worker]:
        """Workers with a recent heartbeat that have not stopped."""
        oldest = self.now - self.dead_after
        return [each for each in self.workers if each.state in ("active", "draining") and each.heartbeat_at >= oldest]

    def lately_dead(self) -> list[Worker]:
        """Workers whose heartbeats ended recently without a stop. Older ones say nothing about the fleet of now."""
        oldest = self.now - DEAD_LATELY
        return [each for each in self.workers if self.state_of(each) == "dead" and each.heartbeat_at >= oldest]

    def state_of(self, worker: Worker) -> Literal["active", "draining", "stopped", "dead"]:
        """The worker's real state: one that was silent for too long is dead, even if no reaper has recorded that."""
        silent = worker.heartbeat_at < self.now - self.dead_after
        return "dead" if silent and worker.state != "stopped" else worker.state


def about(duration: Duration) -> str:
    """A duration for people, by its two largest units: `1d3h`, `4m30s`, `250ms`."""
    smallest = next(unit for size, unit in _COARSE if duration >= size)
    return format_duration(duration // smallest * smallest)


def why_not_running(
    run: Run,
    *,
    job: Job | None,
    upstream: Sequence[Run],
    gate: GateUse | None,
    crowd: Crowd,
    pause: QueuePause | None = None,
) -> list[Cause]:
    """What keeps a run that has not ended from going on.

    `upstream` are the unfinished runs that it waits for, `gate` is the one that it is blocked on, `pause` that of its
    queue. Nothing is said of a run that has ended (its reason says why) or that runs as it should.
    """
    if run.state in FINAL:
        return []
    if run.state == RUNNING:
        return _why_unfinished(run, crowd.now)
    reasons = [] if run.state == PENDING else _why_blocked(run, job, upstream, gate)
    if run.due_at > crowd.now:
        reasons.append(_not_due(run, crowd.now))
    if pause is not None:
        reasons.append(queue_paused(run.queue, pause, crowd.now))
    # A run that waits for something else needs no free worker yet, but one that will be there when it is its turn.
    if trouble := worker_trouble(run.queue, run.region, run.task, crowd):
        reasons.append(trouble)
    elif not reasons:
        reasons.append(_in_the_queue(run, crowd))
    if run.expires_at is not None:
        may = "is" if run.expires_at > crowd.now else "was to be"
        text = f"It {may} skipped if not started by {_when(run.expires_at, crowd.now)}."
        reasons.append(Cause(kind="expires", text=text, since=run.expires_at))
    if (end := _options.decode(run.options or "{}").give_up_at) is not None:
        may = "will fail" if end > crowd.now else "was to fail"
        text = f"It {may} if not done by {_when(end, crowd.now)}, when its total timeout ends."
        reasons.append(Cause(kind="total-timeout", text=text, since=end))
    return reasons


def queue_paused(queue: str, pause: QueuePause, now: Instant) -> Cause:
    """The cause that a pause of a queue is."""
    why = f" ({pause.reason})" if pause.reason else ""
    text = f"Queue {queue} is paused since {_when(pause.since, now)}{why}: no worker takes its runs."
    remedy = f"Resume it with `mainspring queues --resume {queue}`."
    return Cause(kind="queue-paused", text=text, remedy=remedy, since=pause.since, queue=queue)


def why_not_firing(
    job: Job, *, edges: Sequence[Edge], crowd: Crowd, scheduled: bool = True, pause: QueuePause | None = None
) -> list[Cause]:
    """What keeps a job from firing, or its runs from starting; nothing, if it simply waits for its next instant.
    `scheduled`: whether a scheduler runs. `pause`: that of its queue."""
    reasons: list[Cause] = []
    if job.paused_at is not None:
        why = f" ({job.paused_why})" if job.paused_why else ""
        text, remedy = (
            f"It is paused since {_when(job.paused_at, crowd.now)}{why}.",
            f"mainspring job resume {job.name}",
        )
        reasons.append(Cause(kind="paused", text=text, remedy=f"Resume it with `{remedy}`.", since=job.paused_at))
    elif job.next_fire_at is None:
        reasons += _why_never(job, edges, crowd.now)
    elif job.next_fire_at < crowd.now - OVERDUE:
        text = f"It was due at {_when(job.next_fire_at, crowd.now)}, and no node has planned it."
        remedy = "Start one with `mainspring up`."
        reasons.append(Cause(kind="unplanned", text=text, remedy=remedy, since=job.next_fire_at))
    elif not scheduled and crowd.living():  # Where nothing runs at all, it is enough to say that.
        remedy = "Start one with `mainspring server`, or `mainspring up`."
        reasons.append(Cause(kind="no-scheduler", text="No scheduler runs, so it will not fire.", remedy=remedy))
    if pause is not None:
        reasons.append(queue_paused(job.queue, pause, crowd.now))
    troubles = (worker_trouble(job.queue, region, job.task, crowd) for region in job.policy.regions)
    return reasons + list(dict.fromkeys(trouble for trouble in troubles if trouble))


def worker_trouble(queue: str, region: str, task: str, crowd: Crowd) -> Cause | None:
    """Why no worker at all could take such a run; None if one could."""
    living = crowd.living()
    if not living:
        remedy = "Start one with `mainspring worker APP`, or `mainspring up`."
        return Cause(kind="no-worker", text=f"No worker is running{_last_seen(crowd)}.", remedy=remedy, queue=queue)
    serving = [each for each in living if queue in each.queues]
    if not serving:
        served = _listed(name for each in living for name in each.queues)
        start = f"Start one with `mainspring worker APP --queue {queue}`."
        text = f"No worker serves queue {queue} (served: {served})."
        return Cause(kind="queue-unserved", text=text, remedy=start, queue=queue)
    near = [each for each in serving if region in each.regions]
    if not near:
        served = _listed(name for each in serving for name in each.regions)
        start = f"Start one with `mainspring worker APP --queue {queue} --region {region}`."
        text = f"No worker for queue {queue} serves region {region} (served: {served})."
        return Cause(kind="region-unserved", text=text, remedy=start, queue=queue, workers=_ids(serving))
    known = dict.fromkeys(name for each in near for name in each.tasks)
    if task not in known:
        text = f"No worker that could take it knows task {task}."
        remedy = _nearest(task, list(known))
        return Cause(kind="task-unknown", text=text, remedy=remedy, queue=queue, workers=_ids(near))
    return None


def _ids(workers: Iterable[Worker]) -> tuple[str, ...]:
    return tuple(each.id for each in workers)[:_NAMED]


def _why_unfinished(run: Run, now: Instant) -> list[Cause]:
    reasons = []
    if run.cancel_requested_at is not None:
        since = _when(run.cancel_requested_at, now)
        text = f"It was asked to stop at {since} ({run.cancel_reason}); its worker has not ended it yet."
        reasons.append(Cause(kind="cancel-requested", text=text, since=run.cancel_requested_at))
    if run.claimed_until is not None and run.claimed_until < now:
        since = _when(run.claimed_until, now)
        text = f"Worker {run.worker} has let its claim run out at {since}: a node gives the run to another."
        remedy = "If none does, start one with `mainspring up`."
        reasons.append(Cause(kind="claim-expired", text=text, remedy=remedy, since=run.claimed_until))
    return reasons


def _why_blocked(run: Run, job: Job | None, upstream: Sequence[Run], gate: GateUse | None) -> list[Cause]:
    reasons = [_why_behind(run, job, other) for other in upstream[:_NAMED]]
    if len(upstream) > _NAMED:
        text = f"It waits for {len(upstream) - _NAMED} more runs besides."
        reasons.append(Cause(kind="dependencies", text=text))
    if run.blocked_on is not None:
        use = "is full" if gate is None else f"is full: {gate.used} of {gate.capacity} are in"
        if gate is not None and gate.used < gate.capacity:
            use = f"has room again ({gate.used} of {gate.capacity} are in): it is let in within moments"
        used, capacity = gate or (None, None)
        text = f"Gate {run.blocked_on} {use}."
        reasons.append(Cause(kind="gate", text=text, gate=run.blocked_on, used=used, capacity=capacity))
    return reasons or [Cause(kind="released", text="What it waited for has ended: it goes on within moments.")]


def _why_behind(run: Run, job: Job | None, other: Run) -> Cause:
    which = f"run {other.id} ({other.job or other.task}, {other.state})"
    if run.key is not None and other.key == run.key:
        text = f"It stands in line for key {run.key}, behind {which}."
        return Cause(kind="key", text=text, run_id=other.id)
    if job is not None and other.job_id == job.id:
        text = f"It waits for {which} of the same job to end (overlap={job.policy.overlap})."
        return Cause(kind="overlap", text=text, run_id=other.id, job=job.name)
    return Cause(kind="dependency", text=f"It waits for {which}.", run_id=other.id, job=other.job)


def _not_due(run: Run, now: Instant) -> Cause:
    what = f"Attempt {run.attempt + 1}" if run.attempt else "It"
    return Cause(kind="not-due", text=f"{what} is not due until {_when(run.due_at, now)}.", since=run.due_at)


def _in_the_queue(run: Run, crowd: Crowd) -> Cause:
    """A due run that some worker could take: is one free?"""
    fit = [
        each
        for each in crowd.living()
        if run.queue in each.queues and run.region in each.regions and run.task in each.tasks
    ]
    active = [each for each in fit if each.state == "active"]
    if not active:
        text = f"Every worker that could take it is stopping ({_listed(each.id for each in fit)})."
        return Cause(kind="workers-stopping", text=text, queue=run.queue, workers=_ids(fit))
    if any(each.running < each.concurrency for each in active):
        text = "A worker is free for it: it starts within moments."
        return Cause(kind="worker-free", text=text, queue=run.queue, since=run.due_at)
    running, slots = sum(each.running for each in active), sum(each.concurrency for each in active)
    one = len(active) == 1
    subject = "The only worker that could take it is" if one else f"All {len(active)} workers that could take it are"
    due = f"It is due since {_when(run.due_at, crowd.now)}, at priority {run.priority}."
    text = f"{subject} busy ({running} of {slots} slots). {due}"
    return Cause(
        kind="workers-busy",
        text=text,
        since=run.due_at,
        queue=run.queue,
        used=running,
        capacity=slots,
        workers=_ids(active),
    )


def _why_never(job: Job, edges: Sequence[Edge], now: Instant) -> list[Cause]:
    """Why a job that is not paused has no next fire time."""
    policy, trigger = job.policy, job.trigger
    if policy.max_firings is not None and job.fired >= policy.max_firings:
        text = f"It has fired {job.fired} of at most {policy.max_firings} times, and is done."
        return [Cause(kind="limit-reached", text=text)]
    if isinstance(trigger, ManualTrigger):
        return [Cause(kind="manual", text=f"It is manual: it fires only by `mainspring job trigger {job.name}`.")]
    return _why_after(trigger, edges) if isinstance(trigger, AfterTrigger) else [_why_no_more(job, now)]


def _why_no_more(job: Job, now: Instant) -> Cause:
    """Why a job that follows the clock has nothing to come."""
    policy, trigger = job.policy, job.trigger
    if policy.end_at is not None and policy.end_at <= now:
        return Cause(kind="ended", text=f"It ended at {_when(policy.end_at, now)}.", since=policy.end_at)
    if isinstance(trigger, AtTrigger):
        text = f"Its one instant was {_when(trigger.at, now)}: it is done."
        if trigger.at < job.created_at:
            text = f"Its one instant, {_when(trigger.at, now)}, had passed when it was added: it will not fire."
        return Cause(kind="done", text=text, since=trigger.at)
    if policy.calendars:
        text = f"Its calendars ({', '.join(policy.calendars)}) leave it no instant to come."
        return Cause(kind="calendars", text=text)
    until = "" if policy.end_at is None else f" before its end at {_when(policy.end_at, now)}"
    return Cause(kind="no-instant", text=f"Its trigger has no instant to come{until}.")


def _why_after(trigger: AfterTrigger, edges: Sequence[Edge]) -> list[Cause]:
    reasons = []
    for edge in edges:
        if edge.latest_at == 0:
            text = f"It waits for job {edge.upstream}, which has finished no firing since."
            reasons.append(Cause(kind="upstream", text=text, job=edge.upstream))
        elif edge.latest_at <= edge.consumed_at:
            used = format_instant(edge.latest_at)
            text = f"It waits for job {edge.upstream}, which has finished nothing newer than {used}."
            reasons.append(Cause(kind="upstream", text=text, job=edge.upstream, since=edge.latest_at))
    if trigger.when == "any_finished" and len(reasons) > 1:
        text = f"It waits for any of the jobs {_listed(edge.upstream for edge in edges)} to finish a firing."
        return [Cause(kind="upstream", text=text)]
    return reasons


def _last_seen(crowd: Crowd) -> str:
    if not crowd.workers:
        return ""
    last = max(crowd.workers, key=lambda each: each.heartbeat_at)
    return f"; the last was {last.id}, {last.state}, seen {about(max(crowd.now - last.heartbeat_at, 0))} ago"


def _nearest(task: str, known: Sequence[str]) -> str:
    near = get_close_matches(task, known, n=1)
    remedy = "Start one with the app that declares it, or correct the name"
    return f"{remedy}: did you mean {near[0]}?" if near else f"{remedy} (known: {_listed(known)})."


def _listed(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    rest = f" and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    return (", ".join(each[:_NAMED]) + rest) or "none"


def _when(instant: Instant, now: Instant) -> str:
    """The instant, and how far it is from now."""
    shown = format_instant(instant // SECOND * SECOND)
    return f"{shown} (in {about(instant - now)})" if instant > now else f"{shown} ({about(now - instant)} ago)"
