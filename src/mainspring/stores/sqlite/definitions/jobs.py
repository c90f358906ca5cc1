"""Definitions of jobs: created, declared, edited, paused, removed; and calendars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from mainspring.core.instants import Instant
from mainspring.core.model import Firing, Job, NewRun
from mainspring.core.planning.declaring import compare, differs
from mainspring.core.planning.plans import PlannedFiring, earlier, pause_reason
from mainspring.core.planning.revision import (
    MOST_RECONSIDERED,
    Revision,
    begin,
    mark,
    reconsider_some,
    revise,
    set_paused,
)
from mainspring.core.planning.zone_data import STEP, ZoneRecord, ZoneStep, encode_record, move, read_record, take_up
from mainspring.core.runs.outcome import Next
from mainspring.core.schedules.calendars import Calendar, check_calendar, settled
from mainspring.core.schedules.triggers import check_not_past
from mainspring.core.states import SKIPPED
from mainspring.store import Audit, Saved
from mainspring.stores.rows.job_rows import (
    check_calendars_known,
    check_editable,
    check_no_downstream,
    check_owned,
    check_unused,
    check_upstreams_known,
    declare,
    job_event,
    job_values,
    name_taken,
    obeying,
    read_calendars,
    read_firing,
    read_job,
    read_jobs,
    read_page,
    to_json,
    unknown_jobs,
    upstream_names,
)
from mainspring.stores.rows.planned import free_instant
from mainspring.stores.rows.syncing import add_up, sync_in_pages
from mainspring.stores.rows.upstreams import link
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.definitions.backfill import backfill
from mainspring.stores.sqlite.definitions.firing import Recorder
from mainspring.stores.sqlite.ends.endings import end_unstarted
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once
from mainspring.stores.sqlite.history.trail import audited

_Q = load_queries("sqlite", "jobs")
_FIRINGS = load_queries("sqlite", "firings")


class Jobs:
    """See `store.JobStore`."""

    _db: Database

    async def create_job(self, job: Job, *, audit: Audit[Job] | None = None) -> Job:
        return await self._db.write(audited(lambda tx: _create(tx, job), audit))

    async def sync_jobs(
        self, app: str, namespace: str, jobs: Sequence[Job], *, source: str = "", audit: Audit[Saved] | None = None
    ) -> Saved:
        sync = _Sync(self._db, app, namespace, source, audit)
        return await sync_in_pages(sync, declare(app, namespace, jobs, source))

    async def edit_job(self, job: Job, expected_version: int, *, audit: Audit[Job] | None = None) -> Job:
        return await self._db.write(audited(lambda tx: _edit(tx, job, expected_version), audit))

    async def get_job(self, namespace: str, name: str) -> Job:
        return await self._db.read(lambda tx: _find_job(tx, namespace, name))

    async def list_jobs(
        self, namespace: str, *, app: str | None = None, after: str | None = None, limit: int = 1000
    ) -> list[Job]:
        return await self._db.look_back(lambda tx: _list(tx, namespace, app, after or "", limit))

    async def pause_jobs(
        self,
        namespace: str,
        names: Collection[str],
        *,
        paused: bool,
        reason: str,
        audit: Audit[list[Job]] | None = None,
    ) -> list[Job]:
        return await self._db.write(audited(lambda tx: _set_paused(tx, namespace, names, reason, paused=paused), audit))

    async def remove_job(
        self, namespace: str, name: str, expected_version: int | None = None, *, audit: Audit[None] | None = None
    ) -> None:
        await self._db.write(audited(lambda tx: _remove(tx, namespace, name, expected_version), audit))

    async def trigger(
        self,
        namespace: str,
        name: str,
        request_id: str,
        runs: Callable[[Job, Instant], Sequence[NewRun]],
        *,
        audit: Audit[Firing] | None = None,
    ) -> Firing:
        return await self._db.write(
            audited(lambda tx: _trigger(tx, _find_job(tx, namespace, name), request_id, runs), audit)
        )

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        return await self._db.write(audited(lambda tx: backfill(tx, job, firings), audit))

    async def save_calendar(self, namespace: str, calendar: Calendar, *, audit: Audit[None] | None = None) -> None:
        await self._db.write(audited(lambda tx: _save_calendar(tx, namespace, calendar), audit))

    async def remove_calendar(self, namespace: str, name: str, *, audit: Audit[None] | None = None) -> None:
        def work(tx: Transaction) -> None:
            check_unused(tx.execute(_Q["with_calendars"], (namespace,)), name, _load_calendars(tx, namespace))
            tx.execute(_Q["remove_calendar"], (namespace, name))

        await self._db.write(audited(work, audit))


def _create(tx: Transaction, job: Job) -> Job:
    check_not_past(job.trigger, tx.now)
    if tx.execute(_Q["ids_by_name"], (job.namespace, to_json([job.name]))).fetchone():
        raise name_taken(job)
    created = begin(job, tx.now, _calendars_for(tx, job.namespace, [job]))
    _write(tx, job.namespace, [created], [])
    return created


def _list(tx: Transaction, namespace: str, app: str | None, after: str, limit: int) -> list[Job]:
    values = {"namespace": namespace, "app": app, "after": after, "limit": limit}
    return read_jobs(tx.execute(_Q["list"], values))


class _Sync:
    """See `syncing.SyncingStore`."""

    def __init__(self, db: Database, app: str, namespace: str, source: str, audit: Audit[Saved] | None) -> None:
        self._db = db
        self._audit = audit
        self._app = app
        self._namespace = namespace
        self._source = source

    async def look(self, page: Sequence[Job], declared: Collection[str]) -> Collection[str]:
        def work(tx: Transaction) -> Collection[str]:
            stored, calendars = self._stored(tx, page)
            upstreams = {name for job in page for name in upstream_names(job)}
            elsewhere = [name for name in upstreams if name not in declared]
            known = dict(tx.execute(_Q["ids_by_name"], (self._namespace, to_json(elsewhere))).fetchall())
            check_upstreams_known(self._namespace, page, known.keys() | (upstreams - {*elsewhere}))
            return [job.name for job in page if differs(job, stored.get(job.name), tx.now, calendars)]

        return await self._db.read(work)

    async def write(self, page: Sequence[Job], so_far: Saved) -> Saved:
        def work(tx: Transaction) -> Saved:
            stored, calendars = self._stored(tx, page)
            found = compare(page, stored, tx.now, calendars)
            _write(tx, self._namespace, found.created, found.revisions)
            tx.executemany(_Q["adopt"], [(job.origin, job.source, job.id) for job in found.adopted])
            if found.resumed:
                _set_paused(tx, self._namespace, found.resumed, paused=False)
            return add_up(so_far, found.saved())

        return await self._db.write(audited(work, self._audit))

    async def of_code(self, after: str, limit: int) -> tuple[Sequence[str], str | None]:
        values = (self._namespace, self._app, self._source, after, limit)
        rows = await self._db.read(lambda tx: tx.execute(_Q["of_code"], values).fetchall())
        return read_page(rows)

    def _stored(self, tx: Transaction, page: Sequence[Job]) -> tuple[dict[str, Job], dict[str, Calendar]]:
        """What is stored under the names of a page, none of it another app's; and the calendars that matter."""
        names = to_json([job.name for job in page])
        stored = {job.name: job for job in read_jobs(tx.execute(_Q["by_name"], (self._namespace, names)))}
        check_owned(self._app, stored.values())
        return stored, _calendars_for(tx, self._namespace, (*page, *stored.values()))


def _edit(tx: Transaction, job: Job, expected_version: int) -> Job:
    found = next(iter(read_jobs(tx.execute(_Q["by_id"], (to_json([job.id]),)))), None)
    stored = check_editable(found, job, expected_version)
    if job.trigger != stored.trigger:
        check_not_past(job.trigger, tx.now)
    revision = revise(stored, job, tx.now, _calendars_for(tx, job.namespace, [stored, job]))
    if revision is None:
        return stored
    _write(tx, job.namespace, [], [(stored, revision)])
    return revision.job


def _write(tx: Transaction, namespace: str, created: Sequence[Job], revisions: Sequence[tuple[Job, Revision]]) -> None:
    """Store new jobs and changed ones, and what they fire after."""
    if not created and not revisions:
        return
    change = _next_change(tx)
    tx.executemany(_Q["insert"], [job_values(job) | {"changed": change} for job in created])
    tx.executemany(_Q["revise"], [job_values(revision.job) | {"changed": change} for _, revision in revisions])
    linked = [job for job in created if upstream_names(job)]
    linked += [new.job for old, new in revisions if upstream_names(old) != upstream_names(new.job)]
    if linked:
        at_once(link(tx, namespace, linked))
    tx.events += [job_event("job.created", job, tx.now) for job in created]
    tx.events += [job_event("job.updated", revision.job, tx.now) for _, revision in revisions]
    recorder = Recorder(tx)
    for old, revision in revisions:
        recorder.record(old, revision.passed_over, "scheduled")
    tx.changed = True


def _next_change(tx: Transaction) -> int:
    return int(tx.execute(_Q["next_change"]).fetchone()[0])


def _load_all(tx: Transaction, namespace: str, names: Collection[str]) -> list[Job]:
    ids = dict(tx.execute(_Q["ids_by_name"], (namespace, to_json(list(names)))).fetchall())
    if unknown := set(names) - ids.keys():
        raise unknown_jobs(namespace, unknown)
    return sorted(read_jobs(tx.execute(_Q["by_id"], (to_json(list(ids.values())),))), key=lambda job: job.name)


def _set_paused(
    tx: Transaction, namespace: str, names: Collection[str], reason: str = "", *, paused: bool
) -> list[Job]:
    jobs = {job.name: job for job in _load_all(tx, namespace, names)}
    calendars = {} if paused else _calendars_for(tx, namespace, jobs.values())
    found = [(job, set_paused(job, tx.now, calendars, reason, paused=paused)) for job in jobs.values()]
    if changes := [(old, new) for old, new in found if new is not None]:
        switched, change = [new.job for _, new in changes], _next_change(tx)
        tx.executemany(_Q["set_paused"], [job_values(job) | {"changed": change} for job in switched])
        recorder = Recorder(tx)
        for old, new in changes:
            recorder.record(old, new.passed_over, "scheduled")
        tx.events += [job_event("job.paused" if paused else "job.resumed", job, tx.now, reason) for job in switched]
        tx.changed = True
        if paused:
            early = tx.execute(_Q["fired_ahead"], (to_json([job.id for job in switched]), tx.now)).fetchall()
            end_unstarted(tx, [(run_id, Next(SKIPPED, pause_reason(reason))) for (run_id,) in early])
        jobs |= {job.name: job for job in switched}
    return list(jobs.values())


def _remove(tx: Transaction, namespace: str, name: str, expected_version: int | None) -> None:
    job = _find_job(tx, namespace, name)
    if expected_version is not None:
        check_editable(job, job, expected_version)
    check_no_downstream(job, [row[0] for row in tx.execute(_Q["downstream"], (job.id,))])
    tx.execute(_Q["drop_edges"], (job.id, "[]"))
    tx.execute(_Q["remove"], (job.id,))
    tx.events.append(job_event("job.removed", job, tx.now))


def _trigger(tx: Transaction, job: Job, request_id: str, runs: Callable[[Job, Instant], Sequence[NewRun]]) -> Firing:
    known = tx.execute(_FIRINGS["by_request"], (job.id, request_id)).fetchone()
    if known is not None:
        return read_firing(known)
    fire_at = at_once(free_instant(tx, job.id, tx.now))
    recorder = Recorder(tx)
    planned = PlannedFiring(fire_at, "fired", runs=earlier(runs(job, fire_at), fire_at - tx.now))
    if recorder.record(job, [planned], "manual", request_id).runs:
        recorder.flush()
        tx.execute(_FIRINGS["fired_by_hand"], (fire_at, job.id))
    return read_firing(tx.execute(_FIRINGS["by_request"], (job.id, request_id)).fetchone())


def _save_calendar(tx: Transaction, namespace: str, calendar: Calendar) -> None:
    calendar, calendars = settled(calendar), _load_calendars(tx, namespace)
    check_calendar(calendar, calendars)
    if calendars.get(calendar.name) == calendar:
        return
    tx.execute(_Q["save_calendar"], (namespace, calendar.name, to_json(calendar), tx.now))
    ids = obeying(tx.execute(_Q["with_calendars"], (namespace,)), calendar, calendars)
    if not ids:
        return
    jobs = read_jobs(tx.execute(_Q["by_id"], (to_json(ids[:MOST_RECONSIDERED]),)))
    done = reconsider_some(jobs, tx.now, {**calendars, calendar.name: calendar})
    change = _next_change(tx)
    tx.executemany(_Q["revise"], [job_values(job) | {"changed": change} for job in done])
    if left := set(ids) - {job.id for job in done}:
        tx.execute(_Q["postpone"], (to_json(sorted(left)), mark(tx.now), tx.now, change))
    tx.events += [job_event("job.updated", job, tx.now, f"calendar {calendar.name} was saved") for job in done]
    tx.changed = True


def known_zones(tx: Transaction) -> ZoneRecord | None:
    """With which zone data fire times are computed."""
    row = tx.execute(_Q["zones"]).fetchone()
    return None if row is None else read_record(row[0])


def adopt_zones(tx: Transaction, version: str) -> ZoneStep:
    """See `store.PlanStore.adopt_zones`."""
    record = take_up(known_zones(tx), version, tx.now)
    if record is None:
        return ZoneStep()
    step, last = ZoneStep(), None
    if record.after is not None:
        ids, last = read_page(tx.execute(_Q["in_zones"], (record.after, STEP)))
        jobs = sorted(read_jobs(tx.execute(_Q["by_id"], (to_json(ids),))), key=lambda job: job.id)
        names = {job.namespace for job in jobs}
        found = move(jobs, tx.now, {name: _load_calendars(tx, name) for name in names})
        _replan(tx, found.jobs, f"zone data {version} came in")
        last = found.last or last
        step = ZoneStep(len(found.jobs), last is not None, found.faults)
    tx.execute(_Q["save_zones"], (encode_record(ZoneRecord(version, tx.now, last)),))
    return step


def _replan(tx: Transaction, jobs: Sequence[Job], reason: str) -> None:
    """Store jobs that are due at another instant."""
    if jobs:
        change = _next_change(tx)
        tx.executemany(_Q["revise"], [job_values(job) | {"changed": change} for job in jobs])
        tx.events += [job_event("job.updated", job, tx.now, reason) for job in jobs]
        tx.changed = True


def _find_job(tx: Transaction, namespace: str, name: str) -> Job:
    """By name or id; NotFound otherwise."""
    row = tx.execute(_Q["find"], (namespace, name)).fetchone()
    if row is None:
        raise unknown_jobs(namespace, [name])
    return read_job(row)


def _load_calendars(tx: Transaction, namespace: str) -> dict[str, Calendar]:
    """All calendars of a namespace by name."""
    return read_calendars(tx.execute(_Q["calendars"], (namespace,)))


def _calendars_for(tx: Transaction, namespace: str, jobs: Iterable[Job]) -> dict[str, Calendar]:
    """The calendars of a namespace, if any of the jobs obeys one; all that they name must exist."""
    named = dict.fromkeys(name for job in jobs for name in job.policy.calendars)
    if not named:
        return {}
    calendars = _load_calendars(tx, namespace)
    check_calendars_known(namespace, named, calendars)
    return calendars
