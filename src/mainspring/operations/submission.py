"""Makes new runs from a task's defaults and the options of a submission; and the rules for repeating a run that
ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Gate, KeptOptions, NewRun, Run
from mainspring.core.planning.plans import make_runs
from mainspring.core.runs.outcome import with_end
from mainspring.core.runs.regions import home_of, without_move
from mainspring.core.schedules.triggers import check_to_come
from mainspring.core.states import FINAL, PENDING, SUCCEEDED
from mainspring.core.tasks.limits import task_gate
from mainspring.errors import Conflict, InvalidInput
from mainspring.operations.context import if_found
from mainspring.operations.jobs.options import Defaults, Values, read_defaults
from mainspring.store import Audit, Store

_FROM_OPTIONS = ("region", "key", "after", "when", "on_failure", "idempotency_key")
"""The options of a submission that are fields of the run under the same name."""
SEPARATOR = "\x1f"
"""Not printable, so it is part of no key that a submitter gives."""


class Recipe(msgspec.Struct, frozen=True):
    """Everything that the runs of one task under the same options have in common."""

    model: NewRun
    delay: Duration = 0
    at: Instant | None = None
    expires: Duration | None = None
    connection: Any = None
    """The connection whose transaction the submission joins."""
    limit: int | None = None
    per: str = ""
    """The task's limit, if it is counted for each value of an argument: then the gate follows from the arguments."""

    def run(self, run_id: str, args: str, namespace: str, now: Instant) -> NewRun:
        """A run with these arguments, submitted now. InvalidInput if the instant that it is due at has passed."""
        due_at = now + self.delay
        if self.at is not None:
            _check_to_come(self.at, now)
            due_at = max(self.at, now)  # A run starts to wait when it is submitted, not earlier.
        expires_at = None if self.expires is None else due_at + self.expires
        run = msgspec.structs.replace(
            self.model,
            id=run_id,
            args=args,
            namespace=namespace,
            due_at=due_at,
            created_at=now,
            options=with_end(self.model.options, due_at),
            expires_at=expires_at,
        )
        return self._limited(run) if self.per else run

    def runs(self, ids: Sequence[str], texts: Sequence[str], namespace: str, now: Instant) -> list[NewRun]:
        """A run for each of these arguments, submitted now."""
        model, replace = self.run("", "{}", namespace, now), msgspec.structs.replace
        runs = [replace(model, id=run_id, args=args) for run_id, args in zip(ids, texts, strict=True)]
        return [self._limited(run) for run in runs] if self.per else runs

    def _limited(self, run: NewRun) -> NewRun:
        if self.limit is None:
            return run
        return msgspec.structs.replace(run, gates=(task_gate(run.task, self.limit, self.per, run.args),))


def make_recipe(
    task: str, defaults: Defaults, values: Values, *, subject: str | None = None, now: Instant | None = None
) -> Recipe:
    """The options of a submission applied to a task's defaults. InvalidInput if two of them contradict each other, or
    if the instant has passed `now`. `subject` is noted as the submitter."""
    if "delay" in values and "at" in values:
        raise InvalidInput("at", values["at"], "is given together with delay", "give one of them")
    if "at" in values and now is not None:
        _check_to_come(values["at"], now)
    for name in ("when", "on_failure"):
        if name in values and not values.get("after"):
            raise InvalidInput(name, values[name], "has no use without after", "name the runs that it should wait for")
    merged = read_defaults(values, defaults)
    options = msgspec.json.encode(merged.options).decode()
    key = values.get("key")
    model = NewRun(
        id="",
        task=task,
        due_at=0,
        created_at=0,
        queue=merged.queue,
        priority=merged.priority,
        options=options if subject is None else marked(options, subject),
        gates=(task_gate(task, merged.limit, "", ""),) if merged.limit else (),
        lines=(Gate(f"key:{key}", 1),) if key else (),
        **{name: values[name] for name in _FROM_OPTIONS if name in values},
    )
    model = connected(_unique(model, values))
    times = (values.get("delay", 0), values.get("at"), values.get("expires"))
    return Recipe(model, *times, values.get("connection"), merged.limit, merged.options.per)


def _check_to_come(at: Instant, now: Instant) -> None:
    check_to_come(at, now, "at", "choose a later instant, or leave it out to run it now")


def _unique(model: NewRun, values: Values) -> NewRun:
    """The run under the key that `unique` gives it. A character that no other key can contain sets it apart."""
    if "unique" not in values:
        return model
    if model.idempotency_key is not None:
        raise InvalidInput("unique", values["unique"], "is given together with idempotency_key", "give one of them")
    key = f"{SEPARATOR}{model.task}{SEPARATOR}{values['unique']}"
    return msgspec.structs.replace(model, idempotency_key=key, unique=True)


def check_one_run(model: NewRun, problem: str, remedy: str) -> None:
    """InvalidInput if these runs have a key, which stands for one run."""
    if model.idempotency_key is not None:
        field = "unique" if model.unique else "idempotency_key"
        raise InvalidInput(field, model.idempotency_key.rpartition(SEPARATOR)[2], problem, remedy)


async def submit_runs(
    store: Store, runs: Sequence[NewRun], connection: Any = None, audit: Audit[list[str]] | None = None
) -> list[str]:
    """Submit runs, in the caller's own transaction if a connection is given. Their ids."""
    if connection is None:
        return await store.submit(runs, audit=audit)
    joining = store.joining
    if joining is None:
        problem = "cannot be joined: the store is not on PostgreSQL"
        remedy = "submit after your own transaction has been committed"
        raise InvalidInput("connection", type(connection).__name__, problem, remedy)
    return await joining.submit_within(connection, runs)


def marked(options: str, subject: str) -> str:
    """The encoded options of a run, with the subject that submitted it. The wait for a worker whose code fits the run
    starts again."""
    known = msgspec.json.decode(options, type=KeptOptions)
    return msgspec.json.encode(msgspec.structs.replace(known, submitted_by=subject, unfit_since=None)).decode()


def connected(run: NewRun, tag: str | None = None) -> NewRun:
    """The run with a note of the runs that it waits for, for `current_run().after`; and with one more tag."""
    if not run.after and tag is None:
        return run
    known = msgspec.json.decode(run.options, type=KeptOptions)
    tags = known.tags if tag is None else (*known.tags, tag)
    kept = msgspec.structs.replace(known, after=tuple(dict.fromkeys(run.after)), tags=tags)
    return msgspec.structs.replace(run, options=msgspec.json.encode(kept).decode())


def accepted(run: NewRun) -> Run:
    """A run that waits for nothing, as the store has it just after it was accepted."""
    return Run(
        id=run.id,
        namespace=run.namespace,
        queue=run.queue,
        region=run.region,
        task=run.task,
        args=run.args,
        state=PENDING,
        reason="",
        priority=run.priority,
        due_at=run.due_at,
        created_at=run.created_at,
        options=run.options,
        expires_at=run.expires_at,
        key=run.key,
        retry_of=run.retry_of,
    )


def check_repeatable(run: Run) -> None:
    """Conflict unless the run has ended without success."""
    if run.state not in FINAL:
        raise Conflict(f"run {run.id} is {run.state}: wait for its end, or cancel it, before you retry it")
    if run.state == SUCCEEDED:
        raise Conflict(f"run {run.id} has succeeded: to do its work again, submit the task again")


async def repeat_run(store: Store, old: Run, run_id: str, usual: Defaults, subject: str = "") -> NewRun:
    """A new run of the same work, due now, which its total timeout counts from. Its gates are those that such runs have
    today: `usual` is what the task says."""
    now = store.now()
    old = msgspec.structs.replace(old, region=home_of(old.region, old.options), options=without_move(old.options))
    twin = await _find_twin(store, old, now)
    gates = (task_gate(old.task, usual.limit, usual.options.per, old.args),) if usual.limit else ()
    lines = (Gate(f"key:{old.key}", 1),) if old.key else ()
    return NewRun(
        id=run_id,
        task=old.task,
        due_at=now,
        created_at=now,
        namespace=old.namespace,
        queue=old.queue,
        region=old.region,
        args=old.args,
        priority=old.priority,
        options=with_end(marked(old.options, subject), now),
        job_id=old.job_id,
        job=old.job,
        fire_at=old.fire_at,
        idx=old.idx,
        key=old.key,
        gates=twin.gates if twin else gates,
        lines=twin.lines if twin else lines,
        retry_of=old.id,
    )


async def _find_twin(store: Store, run: Run, now: Instant) -> NewRun | None:
    """The run as its job, if it still exists, would make it today."""
    if run.job_id is None or run.fire_at is None:
        return None
    job = await if_found(store.get_job(run.namespace, run.job_id))
    twins = make_runs(job, run.fire_at, now) if job else ()
    return next((twin for twin in twins if (twin.region, twin.idx) == (run.region, run.idx)), None)
