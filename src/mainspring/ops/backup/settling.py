"""What makes a restored store safe to start, whatever the age of the backup.

A backup does not know what happened after it. An instant that was due since then may have fired, and a run that had not
ended may have ended. So a restore begins a new epoch, at an instant of the store's clock:

- Every instant up to the epoch that the ledger does not have is recorded as skipped, whatever the job's misfire policy
  says. `mainspring job backfill` fires those that are known not to have fired.
- Every run that was running, or was due by the epoch, ends as cancelled. `mainspring run retry` runs it again. A run
  that is due later stays.
- An `after` job that was due is skipped, and waits for the next ends of its upstream jobs.
- Terms, tokens and event positions go on far beyond those that the lost store can have reached: a process that outlived
  it is refused, and a follower of events misses none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from mainspring.core.answers import Change
from mainspring.core.instants import Instant, format_instant
from mainspring.core.model import DEFAULT, JobPolicy
from mainspring.core.planning.plans import Calendars, pass_over
from mainspring.core.schedules.triggers import AfterTrigger, Trigger
from mainspring.errors import StoreError
from mainspring.ops.backup.archive import Progress
from mainspring.ops.backup.manifest import Manifest
from mainspring.store import Store

EPOCH_STEP = 1_000_000_000
"""By how much terms, tokens and positions are raised after a restore: more than a store uses between a backup and its
loss."""
BATCH = 500
_trigger: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)
_policy = msgspec.json.Decoder(JobPolicy)


class Ground(Protocol):
    """A restored store that no other process uses yet, and what only its adapter can do."""

    store: Store

    async def fence(self, fact: str) -> None:
        """Move terms, tokens and event positions on by `EPOCH_STEP`, free all leases, call all workers dead, and note
        the fact `restored`."""

    async def due_runs(self, until: Instant) -> list[str]:
        """Runs that have not started and are due by then, newest first: a run is listed before those that it
        follows."""

    async def cancel(self, run_ids: Sequence[str], reason: str) -> None:
        """End runs that have not started."""

    async def abandon_claims(self, reason: str) -> int:
        """Let all claims expire, with a request to cancel; how many there were. `recover` ends their runs."""

    async def skip_after_jobs(self, reason: str) -> int:
        """Record a skipped firing for each `after` job that is due, and let it wait anew; how many there were."""


class Settled(msgspec.Struct, frozen=True):
    """What a restore decided."""

    epoch: Instant
    jobs: int = 0
    """Jobs of which instants were skipped."""
    cancelled: int = 0
    """Runs whose outcome is not known."""


async def settle(ground: Ground, manifest: Manifest, progress: Progress, *, moved: bool = False) -> Settled:
    """Make a restored store safe to start. If it was `moved`, nothing ran since the backup: then unfinished runs go on
    and the misfire policies decide about instants, as after a stop."""
    store = ground.store
    epoch = max(store.now(), manifest.taken_at)
    fact = {"backup": manifest.name, "taken_at": manifest.taken_at, "epoch": epoch, "moved": moved}
    await ground.fence(msgspec.json.encode(fact).decode())
    settled = Settled(epoch) if moved else await _settle(ground, manifest, epoch, progress)
    shown = msgspec.json.encode({**fact, "jobs": settled.jobs, "cancelled": settled.cancelled}).decode()
    change = Change(namespace=DEFAULT, subject="backup", action="restore", target=manifest.name, after=shown)
    await store.note_changes([change])
    return settled


async def _settle(ground: Ground, manifest: Manifest, epoch: Instant, progress: Progress) -> Settled:
    since = f"restored from the backup of {format_instant(manifest.taken_at)}"
    unknown = f"{since}: whether it ran after that is not known"
    waiting = await ground.due_runs(epoch)
    for start in range(0, len(waiting), BATCH):
        progress("Ending runs", start, len(waiting))
        await ground.cancel(waiting[start : start + BATCH], unknown)
    running = await ground.abandon_claims(unknown)
    while (await ground.store.recover(0, BATCH)).lost:
        pass
    after = await ground.skip_after_jobs(unknown)
    jobs = await _skip_instants(ground.store, epoch, f"{since}: it may have fired after that")
    return Settled(epoch, jobs + after, len(waiting) + running)


async def _skip_instants(store: Store, epoch: Instant, reason: str) -> int:
    calendars: dict[str, Calendars] = {}
    skipped = 0
    while jobs := await store.due_jobs(epoch, BATCH):
        for namespace in {job.namespace for job in jobs} - calendars.keys():
            calendars[namespace] = await store.list_calendars(namespace)
        plans = [pass_over(job, epoch, calendars[job.namespace], reason) for job in jobs]
        for job, fired in zip(jobs, await store.fire(plans, None), strict=True):
            if not fired.applied:
                raise StoreError(
                    f"job {job.name} changed during the restore: stop all other processes and restore again"
                )
        skipped += len(jobs)
    return skipped


def after_jobs_in(rows: Iterable[Sequence[Any]]) -> list[tuple[str, Instant, str]]:
    """The `after` jobs among rows of id, trigger, policy and next fire time: id, that time and first region."""
    return [
        (job_id, fire_at, _policy.decode(policy).regions[0])
        for job_id, trigger, policy, fire_at in rows
        if isinstance(_trigger.decode(trigger), AfterTrigger)
    ]
