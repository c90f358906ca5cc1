"""Histories as tests write them: one thing after the other, on a clock of seconds that `at` sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec

from mainspring.core.instants import SECOND, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy, NewRun, Report, Run, RunOptions, TaskNotice
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import Trigger
from mainspring.core.states import FINAL, State
from mainspring.testing.checking import Verdict, Violation, check
from mainspring.testing.history import Outcome, Record

START = parse_instant("2026-03-26T12:00:00Z")
TTL = 10


def instant(seconds: float) -> Instant:
    """This many seconds after the beginning."""
    return START + round(seconds * SECOND)


def as_json(value: object) -> str:
    """As records carry it."""
    return msgspec.json.encode(value).decode()


class History:
    """A history in the making. Recorded at the store, unless `sent` says when it was asked."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._now: float = 0

    def at(self, seconds: float) -> Self:
        """What is recorded from here on happened then."""
        self._now = seconds
        return self

    def add(self, what: str, *, sent: float | None = None, **fields: Any) -> Self:
        """One record."""
        values = {"seq": len(self.records) + 1, "what": what, "store": instant(self._now), **fields}
        if sent is not None:
            values["sent"] = instant(sent)
        self.records.append(msgspec.convert(values, Record))
        return self

    def fault(self, name: str) -> Self:
        """Something went wrong; or all is well again, or done."""
        return self.add("fault", name=name)

    def submit(
        self, run: str, *, answer: str | None = None, outcome: Outcome = "ok", actor: str = "client",
        sent: float | None = None, due: float = 0, **fields: Any,
    ) -> Self:  # fmt: skip
        """A client asked for a run."""
        data = new_run(run, due=due, **fields)
        idempotency_key = fields.get("idempotency_key")
        return self.add(
            "submit",
            run=answer or run,
            key=idempotency_key,
            data=as_json(data),
            outcome=outcome,
            actor=actor,
            sent=sent,
        )

    def cancel(self, run: str, outcome: Outcome = "ok", sent: float | None = None) -> Self:
        """A client asked for a cancel."""
        return self.add("cancel", run=run, outcome=outcome, sent=sent)

    def worker(self, name: str, *notices: TaskNotice) -> Self:
        """A worker announced what it knows of its tasks."""
        return self.add("worker", worker=name, data=as_json(notices))

    def claim(
        self, run: str, token: int = 1, *, worker: str = "w1", ttl: float = TTL, outcome: Outcome = "ok",
        sent: float | None = None,
    ) -> Self:  # fmt: skip
        """A worker was given a claim."""
        until = instant(self._now + ttl)
        return self.add("claim", run=run, token=token, worker=worker, until=until, outcome=outcome, sent=sent)

    def renew(self, run: str, token: int = 1, *, worker: str = "w1", ttl: float = TTL) -> Self:
        """A claim was prolonged."""
        return self.add("renew", run=run, token=token, worker=worker, until=instant(self._now + ttl))

    def start(self, run: str, token: int = 1, *, worker: str = "w1") -> Self:
        """Work began."""
        return self.add("start", run=run, token=token, worker=worker)

    def end(self, run: str, token: int = 1, *, worker: str = "w1") -> Self:
        """Work ended."""
        return self.add("end", run=run, token=token, worker=worker)

    def report(
        self, run: str, token: int = 1, state: str = "succeeded", *, outcome: Outcome = "ok", worker: str = "w1",
        delay: float | None = None, sent: float | None = None, attempt: str | None = None,
    ) -> Self:  # fmt: skip
        """A worker reported; `attempt` is what its attempt came to."""
        data = None
        if delay is not None:
            data = as_json(Report(run, token, "failed", "pending", delay=round(delay * SECOND)))
        elif attempt is not None:
            data = as_json(msgspec.convert({"run_id": run, "token": token, "outcome": attempt, "state": state}, Report))
        return self.add(
            "report", run=run, token=token, state=state, outcome=outcome, worker=worker, data=data, sent=sent
        )

    def handback(self, run: str, token: int = 1, *, outcome: Outcome = "ok", worker: str = "w1") -> Self:
        """A claim was given back."""
        return self.add("handback", run=run, token=token, outcome=outcome, worker=worker)

    def work(self, run: str, token: int = 1, *, since: float, until: float, state: str = "succeeded") -> Self:
        """A whole turn: claimed, executed and reported."""
        worker = f"w{token}"
        self.at(since).claim(run, token, worker=worker).start(run, token, worker=worker)
        for renewed in range(int(since) + TTL // 2, int(until), TTL // 2):
            self.at(renewed).renew(run, token, worker=worker)
        return self.at(until).end(run, token, worker=worker).report(run, token, state, worker=worker)

    def job(
        self, name: str, trigger: Trigger, *, version: int = 1, edited: float = 0, next_at: float | None = None,
        policy: JobPolicy | None = None, state: str | None = None, outcome: Outcome = "ok", **fields: Any,
    ) -> Self:  # fmt: skip
        """A job, as it was created at the beginning, or edited later."""
        job = Job(
            name, name, "task", trigger, version=version, created_at=START, updated_at=instant(edited),
            next_fire_at=None if next_at is None else instant(next_at), policy=policy or JobPolicy(),
        )  # fmt: skip
        data = as_json(msgspec.structs.replace(job, **fields))
        return self.add("job", job=name, job_id=name, data=data, state=state, outcome=outcome)

    def calendar(self, calendar: Calendar) -> Self:
        """A calendar that jobs obey."""
        return self.add("calendar", name=calendar.name, data=as_json(calendar))

    def fire(
        self, job: str, seconds: float, *, term: int | None = None, outcome: Outcome = "ok", actor: str = "node",
        sent: float | None = None,
    ) -> Self:  # fmt: skip
        """A node fired an instant."""
        return self.add(
            "fire", job=job, job_id=job, fire_at=instant(seconds), term=term, outcome=outcome, actor=actor, sent=sent
        )

    def trigger(self, job: str, seconds: float | None, outcome: Outcome = "ok") -> Self:
        """A client fired a job by hand."""
        fire_at = None if seconds is None else instant(seconds)
        return self.add("trigger", job=job, job_id=job, fire_at=fire_at, outcome=outcome)

    def term(self, number: int, actor: str = "node", sent: float | None = None) -> Self:
        """A node began a term."""
        return self.add("term", name="scheduler", term=number, actor=actor, sent=sent)

    def firing(
        self, job: str, seconds: float, *, state: str = "succeeded", run: str | None = None,
        kind: str | None = "scheduled", region: str = "default", idx: int = 0, last: float | None = None,
        count: int = 1,
    ) -> Self:  # fmt: skip
        """A row of the ledger."""
        last_at = None if last is None else instant(last)
        return self.add(
            "firing", job_id=job, fire_at=instant(seconds), state=state, run=run, kind=kind, region=region, idx=idx,
            last_at=last_at, count=count,
        )  # fmt: skip

    def fired(self, job: str, *instants: float, state: State = "succeeded") -> Self:
        """Rows of the ledger with their runs, whose work was not recorded."""
        for seconds in instants:
            run = f"{job}@{seconds}"
            self.firing(job, seconds, state=state, run=run)
            self.ended(run, state, state, job_id=job, fire_at=instant(seconds))
        return self

    def missed(self, job: str, *instants: float) -> Self:
        """Rows of the ledger without runs."""
        for seconds in instants:
            self.firing(job, seconds, state="missed")
        return self

    def ended(
        self,
        run: str,
        state: State = "skipped",
        *attempts: str,
        tokens: Sequence[int] | None = None,
        **fields: Any,
    ) -> Self:
        """A run at the end, with its attempts: one for each token, unless given."""
        values = {"attempt": len(attempts), "losses": attempts.count("lost"), "token": len(attempts), **fields}
        row = run_row(run, state, **values)
        self.add("run", run=run, state=state, job_id=row.job_id, fire_at=row.fire_at, data=as_json(row))
        for number, outcome in enumerate(attempts):
            token = number + 1 if tokens is None else tokens[number]
            self.add("attempt", run=run, attempt=number + 1, token=token, state=outcome)
        return self

    def check(self, **bounds: int) -> Verdict:
        """What the checker says."""
        return check(self.records, **bounds)

    def broken(self, **bounds: int) -> list[int]:
        """The numbers of the broken invariants."""
        return sorted({violation.number for violation in self.check(**bounds).violations})

    def found(self, number: int, **bounds: int) -> Violation:
        """The one violation that there is."""
        (violation,) = self.check(**bounds).violations
        assert violation.number == number, violation
        return violation

    def shown(self, number: int, **bounds: int) -> list[str]:
        """What the evidence of the one violation consists of."""
        return [record.what for record in self.found(number, **bounds).evidence]


def new_run(run: str, *, due: float = 0, options: RunOptions | None = None, **fields: Any) -> NewRun:
    """A run as it is submitted."""
    plain = NewRun(run, "task", instant(due), START, options=as_json(options or RunOptions()))
    return msgspec.structs.replace(plain, **fields)


def run_row(run: str, state: State, *, options: RunOptions | None = None, due: float = 0, **fields: Any) -> Run:
    """A run as it is stored."""
    plain = Run(
        id=run, namespace="default", queue="default", region="default", task="task", args="{}", state=state, reason="",
        priority=5, due_at=instant(due), created_at=START, options=as_json(options or RunOptions()),
        finished_at=instant(1_000) if state in FINAL else None,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **fields)
