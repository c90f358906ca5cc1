"""Carries calls out on the real store and writes them down with their answers, as `history` has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from mainspring.clock import Clock
from mainspring.core.answers import PausedQueue
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.load.rate_limits import Allowance, Pace
from mainspring.core.model import Claim, Job, NewRun, Report, Term, Worker
from mainspring.core.planning.plans import Plan, runs_in
from mainspring.core.states import RUNNING
from mainspring.errors import MainspringError, TermPassed
from mainspring.store import Fired, Renewal, Saved, Store, Verdict
from mainspring.testing.history import History, Outcome
from mainspring.testing.simulation.faults import FIRING_RATES

_encode = msgspec.json.Encoder().encode

GIVING_BACK = frozenset({"hand_back", "amend"})
"""The calls that end claims without a result."""
HERD = 20
"""From this many jobs fired for one instant on, it counts as a thundering herd."""
FIRED_AT_MOST = 3
"""A planner may fire the burst of its namespace, as much that it was granted before and gave back, and its own tenth:
less than this multiple of the rate."""


def as_json(value: object) -> str:
    """A struct as the history carries it."""
    return _encode(value).decode()


class SeenCall(msgspec.Struct, frozen=True):
    """One call as the store saw it."""

    actor: str
    stamp: dict[str, int]
    args: Sequence[Any]
    options: Mapping[str, Any]
    answered: bool

    @property
    def outcome(self) -> Outcome:
        """What its caller knows of it, if it was carried out."""
        return "ok" if self.answered else "unknown"


class Scribe:
    """Writes the history of one world. `seen` counts what rarely happens."""

    def __init__(self, history: History, true: Clock, seen: Counter[str]) -> None:
        self._history = history
        self._true = true
        self._seen = seen
        self._terms: set[Term] = set()
        self._fired_for: Counter[int] = Counter()
        self._sealed = False
        self.records = 0
        """How many were written."""
        self._on_answer: dict[str, Callable[[SeenCall, Any], None]] = {
            "create_job": self._job,
            "edit_job": self._job,
            "pause_jobs": self._jobs,
            "pause_queue": self._queue,
            "begin_term": self._term,
            "fire": self._fire,
            "trigger": self._trigger,
            "submit": self._submit,
            "spend": self._spend,
            "request_cancel": self._cancel,
            "claim": self._claim,
            "claim_these": self._claim_these,
            "renew": self._renew,
            "report": self._report,
            "register": self._register,
        }
        self._on_refusal: dict[str, Callable[[SeenCall], None]] = {
            "fire": self._fire_refused,
            "submit": self._submit_refused,
            "request_cancel": self._cancel_refused,
        }
        self.recorded = frozenset((*self._on_answer, *self._on_refusal, "hand_back", "amend", "sync_jobs"))
        """The calls that leave a trace in the history."""

    def seal(self) -> None:
        """Write no more."""
        self._sealed = True

    def stamp(self, clock: Clock) -> dict[str, int]:
        """The three times of a record."""
        return {"wall": clock.now(), "mono": round(clock.monotonic() * SECOND), "store": self._true.now()}

    def write(self, what: str, actor: str, clock: Clock, **fields: object) -> None:
        """Something that is no call: the side-effect ledger, faults, the state at the end."""
        self._put(what, {"actor": actor, **self.stamp(clock), **fields})

    async def carry_out(
        self, store: Store, actor: str, clock: Clock, name: str, args: Any, options: Any, *, answered: bool
    ) -> Any:
        """Call the store, and record the answer or the refusal in the same step."""
        if name not in self.recorded:
            return await getattr(store, name)(*args, **options)
        call = SeenCall(actor, self.stamp(clock), args, options, answered)
        given = await _still_held(store, claims_in(name, args)) if name in GIVING_BACK else []
        try:
            answer = await getattr(store, name)(*args, **options)
        except MainspringError as error:
            if isinstance(error, TermPassed):
                self._seen["stale term refused"] += 1
            if name in self._on_refusal:
                self._on_refusal[name](call)
            raise
        if name in GIVING_BACK:
            self._handback(call, given)
            self._seen["run left to newer code"] += len(given) if name == "amend" else 0
        elif name == "sync_jobs":
            await self._synced(call, store, answer)
        elif name in self._on_answer:
            self._on_answer[name](call, answer)
        return answer

    def _add(self, what: str, call: SeenCall, outcome: Outcome | None = None, **fields: object) -> None:
        self._put(what, {"actor": call.actor, "outcome": outcome or call.outcome, **call.stamp, **fields})

    def _put(self, what: str, fields: dict[str, object]) -> None:
        if not self._sealed:
            self.records += 1
            self._history.add(what, **fields)

    def _job(self, call: SeenCall, job: Job) -> None:
        self._add("job", call, "ok", job_id=job.id, job=job.name, data=as_json(job))

    def _jobs(self, call: SeenCall, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._job(call, job)

    def _queue(self, call: SeenCall, paused: PausedQueue | None) -> None:
        self._seen["queue paused"] += paused is not None
        self._add("queue", call, name=call.args[1], state="active" if paused is None else "paused")

    async def _synced(self, call: SeenCall, store: Store, saved: Saved) -> None:
        for name in (*saved.created, *saved.updated):
            self._job(call, await store.get_job(call.args[1], name))

    def _term(self, call: SeenCall, term: Term) -> None:
        if term not in self._terms:  # After a lost reply, the store repeats its answer.
            self._terms.add(term)
            self._add("term", call, "ok", name=term.name, term=term.number)

    def _fire(self, call: SeenCall, answers: Sequence[Fired]) -> None:
        plans: Sequence[Plan] = call.args[0]
        for plan, fired in zip(plans, answers, strict=True):
            if plan.job.namespace in FIRING_RATES:
                if fired.applied:
                    self._fired_by_a_tenant(call, plan)
            elif not fired.applied:
                self._seen["plan overtaken"] += 1
            elif plan.kind == "after":
                if fired.runs and fired.job is not None:
                    self._fired(call, plan.job, fired.job.last_fire_at)
            else:
                for firing in plan.firings:
                    self._fired(call, plan.job, firing.fire_at)
                    self._fired_for[firing.fire_at] += 1
                    self._seen["thundering herd"] += self._fired_for[firing.fire_at] == HERD

    def _fired_by_a_tenant(self, call: SeenCall, plan: Plan) -> None:
        """Only how many runs, as spent from a budget: the firings themselves are too many."""
        namespace, runs = plan.job.namespace, runs_in(plan)
        if runs:
            pace = Pace(FIRING_RATES[namespace] * FIRED_AT_MOST, MINUTE)
            self._add("spend", call, name=f"fire:{namespace} by {call.actor}", count=runs, data=as_json(pace))

    def _fired(self, call: SeenCall, job: Job, fire_at: int | None, outcome: Outcome | None = None) -> None:
        term: Term | None = call.args[1]
        number, name = (None, None) if term is None else (term.number, term.name)
        self._add("fire", call, outcome, job_id=job.id, job=job.name, fire_at=fire_at, term=number, name=name)

    def _fire_refused(self, call: SeenCall) -> None:
        for plan in call.args[0]:
            for firing in plan.firings if plan.job.namespace not in FIRING_RATES else ():
                self._fired(call, plan.job, firing.fire_at, "refused")

    def _trigger(self, call: SeenCall, firing: Any) -> None:
        name, request_id = call.args[1], call.args[2]
        self._add("trigger", call, job_id=firing.job_id, job=name, fire_at=firing.fire_at, key=request_id)

    def _submit(self, call: SeenCall, answers: Sequence[str]) -> None:
        runs: Sequence[NewRun] = call.args[0]
        for run, answer in zip(runs, answers, strict=True):
            if run.id != answer:
                self._seen["idempotency key known"] += 1
            self._add("submit", call, run=answer, key=run.idempotency_key, data=as_json(run))

    def _submit_refused(self, call: SeenCall) -> None:
        for run in call.args[0]:
            self._add("submit", call, "refused", run=run.id, key=run.idempotency_key, data=as_json(run))

    def _spend(self, call: SeenCall, allowance: Allowance) -> None:
        name, cost, pace = call.args
        if not allowance.granted:
            self._seen["rate limit reached"] += 1
        outcome: Outcome | None = None if allowance.granted else "refused"
        self._add("spend", call, outcome, name=name, count=cost, data=as_json(pace))

    def _cancel(self, call: SeenCall, state: str) -> None:
        self._seen[f"cancel while {'running' if state == RUNNING else 'waiting'}"] += 1
        self._add("cancel", call, run=call.args[1])

    def _cancel_refused(self, call: SeenCall) -> None:
        self._seen["cancel too late"] += 1
        self._add("cancel", call, "refused", run=call.args[1])

    def _claim_these(self, call: SeenCall, claims: Sequence[Claim]) -> None:
        self._seen["delivered run claimed"] += len(claims)
        self._seen["delivery found nothing"] += len(claims) < len(call.args[1])
        self._claim(call, claims)

    def _claim(self, call: SeenCall, claims: Sequence[Claim]) -> None:
        worker: Worker = call.args[0]
        for claim in claims:
            self._add("claim", call, run=claim.run_id, token=claim.token, worker=worker.id, until=claim.claimed_until,
                      attempt=claim.attempt + 1)  # fmt: skip

    def _renew(self, call: SeenCall, renewal: Renewal) -> None:
        worker: Worker = call.args[0]
        claims: Collection[tuple[str, int]] = call.args[1]
        until = call.stamp["store"] + call.args[2]
        for run_id, token in sorted(renewal.held):
            self._add("renew", call, run=run_id, token=token, worker=worker.id, until=until)
        if len(renewal.held) < len(claims):
            self._seen["claim passed to another"] += 1

    def _report(self, call: SeenCall, verdicts: Sequence[Verdict]) -> None:
        reports: Sequence[Report] = call.args[0]
        for report, verdict in zip(reports, verdicts, strict=True):
            self._seen[f"report {verdict}"] += 1
            self._add("report", call, "refused" if verdict == "stale" else None, run=report.run_id, token=report.token,
                      worker=call.actor, state=report.state, data=as_json(report))  # fmt: skip

    def _register(self, call: SeenCall, _: None) -> None:
        """Only what the worker knows of its tasks: whether it lives, the rest of the history shows."""
        worker: Worker = call.args[0]
        if worker.notices:
            self._add("worker", call, worker=worker.id, data=as_json(worker.notices))

    def _handback(self, call: SeenCall, given: Sequence[tuple[str, int]]) -> None:
        for run_id, token in given:
            self._add("handback", call, run=run_id, token=token, worker=call.actor)


def claims_in(name: str, args: Sequence[Any]) -> list[tuple[str, int]]:
    """The claims that a call gives back."""
    return list(args[0]) if name == "hand_back" else [(each.run_id, each.token) for each in args[0]]


async def _still_held(store: Store, claims: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The claims that are still valid, so that giving them back has an effect."""
    runs = {run_id: await store.get_run("default", run_id) for run_id, _ in claims}
    return [
        (run_id, token)
        for run_id, token in dict.fromkeys(claims)
        if runs[run_id].state == RUNNING and runs[run_id].token == token
    ]
