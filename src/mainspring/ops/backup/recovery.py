"""Whether a store can go back to a point in time, to within five minutes: archiving of the log, and the newest backup.

The checks read settings and statistics of the server. They do not prove that an archived segment can be read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mainspring.clock import Clock
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant, format_duration
from mainspring.errors import NotFound
from mainspring.operations.doctor import Finding
from mainspring.ops.backup.backups import list_backups
from mainspring.ops.backup.manifest import Manifest
from mainspring.process.urls import show_url
from mainspring.settings import Settings
from mainspring.wiring import sqlite_file

MOST_LOST: Duration = 5 * MINUTE
"""How much a loss of the store may take with it."""
STALE: Duration = 25 * 60 * MINUTE
"""A daily backup that is older than this was missed."""
HOURS, DAYS = 24, 7
"""The hours and days of which a schedule keeps a backup."""
_ARCHIVING = """
SELECT current_setting('wal_level') AS wal_level, current_setting('archive_mode') AS archive_mode,
  current_setting('archive_command') AS archive_command,
  coalesce(current_setting('archive_library', true), '') AS archive_library,
  (SELECT setting::integer FROM pg_settings WHERE name = 'archive_timeout') AS timeout_s,
  coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) AS failing,
  coalesce(last_failed_wal, '') AS failed_segment
FROM pg_stat_archiver
"""


async def examine_recovery(settings: Settings, folder: Path, clock: Clock) -> list[Finding]:
    """What limits how much a loss of the store takes with it."""
    try:
        found = list_backups(folder)[0]
    except NotFound:
        found = []
    now, is_file = clock.now(), sqlite_file(settings) is not None
    archiving = [] if is_file else judge_archiving(await _ask(settings.store))
    return [*archiving, judge_backups(found, now, MOST_LOST if is_file else STALE), judge_schedule(found, now)]


async def _ask(url: str) -> Mapping[str, object]:
    import asyncpg

    from mainspring.stores.postgres.server.errors import mapped_errors

    with mapped_errors(url):
        connection = await asyncpg.connect(url, timeout=15)
        try:
            return dict(await connection.fetchrow(_ARCHIVING)) | {"where": show_url(url)}
        finally:
            await connection.close()


def judge_archiving(found: Mapping[str, object]) -> list[Finding]:
    """Whether the server keeps its log elsewhere, often enough, and without failures."""
    where = str(found["where"])
    if found["wal_level"] == "minimal" or found["archive_mode"] == "off":
        modes = f"wal_level {found['wal_level']}, archive_mode {found['archive_mode']}"
        detail = f"off ({modes}): the store can be restored to a backup only"
        remedy = "set wal_level = replica, archive_mode = on and archive_command, then restart the server"
        return [Finding(part="archiving", state="failed", where=where, detail=detail, remedy=remedy)]
    if not found["archive_command"] and not found["archive_library"]:
        remedy = "set archive_command, or archive_library"
        return [Finding(part="archiving", state="failed", where=where, detail="no archive_command", remedy=remedy)]
    if found["failing"]:
        detail = f"the server could not archive {found['failed_segment']}"
        remedy = "see the server's log, and repair archive_command"
        return [Finding(part="archiving", state="failed", where=where, detail=detail, remedy=remedy)]
    findings = [Finding(part="archiving", state="good", where=where, detail="on")]
    timeout = int(str(found["timeout_s"])) * SECOND
    if not 0 < timeout <= MOST_LOST:
        detail = f"archive_timeout is {format_duration(timeout) if timeout else 'off'}: a quiet server loses more"
        remedy = "set archive_timeout to 300 or less"
        return [*findings, Finding(part="window", state="failed", where=where, detail=detail, remedy=remedy)]
    return [*findings, Finding(part="window", state="good", where=where, detail=f"{format_duration(timeout)} at most")]


def judge_schedule(found: Sequence[Manifest], now: Instant) -> Finding:
    """Whether there is a backup of each of the last hours and days: a warning where some are missing, since a schedule
    that began today has few."""
    hours, days = _covered(found, now, HOUR, HOURS), _covered(found, now, DAY, DAYS)
    detail = f"backups of {hours} of the last {HOURS} hours and of {days} of the last {DAYS} days"
    if (hours, days) == (HOURS, DAYS):
        return Finding(part="schedule", state="good", detail=detail)
    remedy = "run `mainspring backup create --prune` each hour, as a job"
    return Finding(part="schedule", state="warning", detail=detail, remedy=remedy)


def _covered(found: Sequence[Manifest], now: Instant, length: Duration, count: int) -> int:
    """Of how many of the last hours or days there is a backup. The one that has begun may not have its backup yet."""
    ages = {now // length - each.taken_at // length for each in found}
    return min(len([age for age in ages if 0 <= age <= count]), count)


def judge_backups(newest_first: Sequence[Manifest], now: Instant, oldest: Duration) -> Finding:
    """Whether the newest backup is young enough."""
    remedy = "schedule `mainspring backup create` as a job"
    if not newest_first:
        return Finding(part="backup", state="failed", detail="there is none in the folder", remedy=remedy)
    newest = newest_first[0]
    age = max(now - newest.taken_at, 0) // SECOND * SECOND
    if age > oldest:
        detail = f"{newest.name} is {format_duration(age)} old, more than {format_duration(oldest)}"
        return Finding(part="backup", state="failed", detail=detail, remedy=remedy)
    return Finding(part="backup", state="good", detail=f"{newest.name} is {format_duration(age)} old")
