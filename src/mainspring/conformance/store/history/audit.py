"""The audit trail: an audited write and its rows are committed together, or neither is."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from mainspring.conformance.store.samples import a_job, a_run, register
from mainspring.core.instants import HOUR
from mainspring.core.planning import plans as planning
from mainspring.core.planning.backfill import plan_backfill
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.store import Audit, Change, Store
from mainspring.testing.clock import ManualClock

Write = Callable[[Audit[Any]], Awaitable[object]]


async def _audited_writes(store: Store, clock: ManualClock) -> dict[str, Write]:
    """One call of each audited method, ready to be made."""
    now = clock.now()
    job = await store.create_job(a_job(clock, "hourly", EveryTrigger(HOUR, now - 100 * HOUR)))
    await store.create_job(a_job(clock, "other"))
    past = plan_backfill(job, now - 3 * HOUR, now, 10, now, {})
    worker = await register(store, clock, "w")
    waiting = a_run(clock, due_at=now + HOUR)
    await store.submit([waiting])
    revised = msgspec.structs.replace(job, priority=2)
    return {
        "create_job": lambda audit: store.create_job(a_job(clock, "new"), audit=audit),
        "edit_job": lambda audit: store.edit_job(revised, job.version, audit=audit),
        "sync_jobs": lambda audit: store.sync_jobs("app", "default", [a_job(clock, "declared")], audit=audit),
        "pause_jobs": lambda audit: store.pause_jobs("default", ["other"], paused=True, reason="", audit=audit),
        "trigger": lambda audit: store.trigger(
            "default", "other", "r", lambda fired, at: planning.make_runs(fired, at, now), audit=audit
        ),
        "remove_job": lambda audit: store.remove_job("default", "other", audit=audit),
        "backfill": lambda audit: store.backfill(
            msgspec.structs.replace(job, version=job.version + 1), past.firings, audit=audit
        ),
        "save_calendar": lambda audit: store.save_calendar("default", Calendar("quiet", (), "UTC"), audit=audit),
        "remove_calendar": lambda audit: store.remove_calendar("default", "quiet", audit=audit),
        "submit": lambda audit: store.submit([a_run(clock)], audit=audit),
        "request_cancel": lambda audit: store.request_cancel("default", waiting.id, "", audit=audit),
        "register": lambda audit: store.register(worker, audit=audit),
        "request_drain": lambda audit: store.request_drain("default", worker.id, audit=audit),
        "pause_queue": lambda audit: store.pause_queue("default", "gpu", paused=True, reason="", audit=audit),
        "revoke": lambda audit: store.revoke("jti:1", HOUR, audit=audit),
    }


async def _everything(store: Store) -> tuple[object, ...]:
    """What the writes of `_audited_writes` change."""
    jobs = await store.list_jobs("default")
    firings = [await store.list_firings(job.id) for job in jobs]
    calendars, workers = await store.list_calendars("default"), await store.list_workers("default")
    states, paused = await store.count_runs("default"), await store.paused_queues("default")
    return (
        jobs,
        firings,
        calendars,
        workers,
        states,
        paused,
        await store.revocations(),
        await store.list_changes("default"),
    )


class AuditSuite:
    """Every method that takes `audit` keeps the promise of `store.Audit`."""

    async def test_every_audited_write_commits_its_row(self, store: Store, clock: ManualClock) -> None:
        writes = await _audited_writes(store, clock)
        takes_audit = {
            name
            for name, method in inspect.getmembers(Store, inspect.isfunction)
            if "audit" in inspect.signature(method).parameters
        }
        assert writes.keys() == takes_audit
        for name, write in writes.items():
            answers: list[object] = []
            answer = await write(_noting(name, answers))
            assert answers[-1] == answer, name
        noted = [change.action for _, change in await store.list_changes("default")]
        assert noted == list(reversed(writes))

    async def test_a_write_whose_audit_fails_changes_nothing(self, store: Store, clock: ManualClock) -> None:
        for name, write in (await _audited_writes(store, clock)).items():
            before = await _everything(store)
            with pytest.raises(ZeroDivisionError):
                await write(lambda _: [_change(str(1 // 0))])
            assert await _everything(store) == before, name
            await write(_noting(name, []))


def _noting(action: str, answers: list[object]) -> Audit[Any]:
    def audit(answer: object) -> list[Change]:
        answers.append(answer)
        return [_change(action)]

    return audit


def _change(action: str) -> Change:
    return Change(namespace="default", subject="ann", action=action, target="something")
