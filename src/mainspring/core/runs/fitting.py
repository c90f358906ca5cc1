"""Whether code and runs fit each other: arguments that a worker's code does not know, and options that a submitter did
not know of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant, format_duration
from mainspring.core.model import Amendment, Claim, KeptOptions, RunOptions, TaskNotice, Worker
from mainspring.core.runs.outcome import with_end
from mainspring.core.tasks.limits import task_gate

ASIDE: Final[Duration] = 30 * SECOND
"""How long a worker whose code is too old for a run of a task leaves that task to others."""
SHORTEST: Final[Duration] = 500 * MILLISECOND
LONGEST: Final[Duration] = 30 * SECOND
"""A run that no live worker fits is tried again after half the time that it has waited, within these bounds."""

_OPTIONS: Final = frozenset(RunOptions.__struct_fields__) - {"said", "unfit_since", "context", "give_up_at"}
_options = msgspec.json.Decoder(KeptOptions).decode
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def accepts(notice: TaskNotice, names: Collection[str]) -> bool:
    """Whether a function can be called with arguments of these names."""
    return (notice.rest or {*notice.names}.issuperset(names)) and {*names}.issuperset(notice.required)


def find_fit(workers: Iterable[Worker], own: TaskNotice, args: str, alive_after: Instant) -> bool:
    """Whether there is a live worker with other code for the task that takes these arguments."""
    names = _names(args)
    return any(
        worker.state == "active"
        and worker.heartbeat_at >= alive_after
        and any(notice.signature != own.signature and accepts(notice, names) for notice in worker.notices)
        for worker in workers
    )


class Unfit(NamedTuple):
    """What becomes of a run whose arguments do not fit this worker's code."""

    amendment: Amendment | None
    """How to give it back; None: it has failed, since no worker took it in time."""
    step_aside: bool
    """Whether the task should be left to others for a while."""


def judge_unfit(claim: Claim, problem: str, now: Instant, patience: Duration, *, others_fit: bool) -> Unfit:
    """Give it back without an attempt: to workers that fit, or to wait for one until the patience ends."""
    kept = _options(claim.options)
    since = now if kept.unfit_since is None else kept.unfit_since
    if not others_fit and now - since >= patience:
        return Unfit(None, False)
    options = _encode(msgspec.structs.replace(kept, unfit_since=since)).decode()
    if others_fit:
        reason = f"left to workers whose code fits it: {problem}"
        return Unfit(Amendment(claim.run_id, claim.token, reason, options), True)
    delay = min(max((now - since) // 2, SHORTEST), LONGEST)
    limit = format_duration(patience)
    reason = f"no live worker has code that fits it, and it fails unless one comes within {limit}: {problem}"
    return Unfit(Amendment(claim.run_id, claim.token, reason, options, delay), False)


def fill_in(claim: Claim, said: Collection[str], notice: TaskNotice) -> RunOptions | Amendment:
    """The options of a run that was submitted by the name of its task alone, filled in from the declaration; or, where
    the task has a limit, how to give it back, so that it is claimed again when the limit allows; or, where the task has
    a total timeout, how to give it back so that the store knows when that ends."""
    kept = _options(claim.options)
    given = {name: getattr(kept, name) for name in said if name in _OPTIONS}
    is_limited = notice.limit is not None and "limit" not in said
    is_bounded = notice.options.total_timeout is not None and "total_timeout" not in said
    if not is_limited and not is_bounded:
        noted = {"unfit_since": kept.unfit_since, "context": kept.context, "give_up_at": kept.give_up_at}
        return msgspec.structs.replace(notice.options, **given, **noted)
    declared = {name: getattr(notice.options, name) for name in _OPTIONS}
    filled = msgspec.structs.replace(kept, **(declared | given), said=None)
    priority = None if "priority" in said else notice.priority
    options = with_end(_encode(filled).decode(), claim.due_at)
    if not is_limited or notice.limit is None:
        return Amendment(claim.run_id, claim.token, "its task has a total timeout", options, 0, priority)
    gate = task_gate(notice.name, notice.limit, notice.options.per, claim.args)
    return Amendment(
        claim.run_id, claim.token, f"limited to {notice.limit} at once by its task", options, 0, priority, gate
    )


class Twin(NamedTuple):
    """Another task of the same name, that a live worker has."""

    app: str
    module: str


def find_twins(app: str, own: TaskNotice, workers: Iterable[Worker], alive_after: Instant) -> list[Twin]:
    """Other tasks by which runs of this one could be executed: within an app, those of another module, for versions of
    one module live side by side; of another app, whatever is not the very same function."""
    found = set()
    for worker in workers:
        if worker.state == "active" and worker.heartbeat_at >= alive_after:
            for each in worker.notices:
                same = each.module == own.module and (worker.app == app or each.code == own.code)
                if not same:
                    found.add(Twin(worker.app, each.module))
    return sorted(found)
