"""`mainspring import`: jobs of other schedulers, with a dry run that compares the fire times of both."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from mainspring.cli.filters import count_of
from mainspring.cli.lazy import Verb, stack
from mainspring.cli.opening import open_app, with_app
from mainspring.cli.output.screen import Cell, Screen, Value
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, format_instant, load_zone
from mainspring.core.model import Job
from mainspring.core.schedules.triggers import CronTrigger, describe
from mainspring.errors import InvalidInput
from mainspring.operations.context import if_found
from mainspring.operations.operations import Operations
from mainspring.ops.migrate.found import Comparison, Found, compare
from mainspring.sdk.app import Mainspring
from mainspring.sdk.loading import load_app, load_module
from mainspring.wiring import database_status

Reader = Callable[[Instant, str], list[Found]]
"""Reads a source, at an instant, for a namespace."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_dry_run = click.option("--dry-run", is_flag=True, help="Show jobs, fire times and losses; store nothing.")
_app = click.option(
    "--app", "ref", metavar="APP", help="The app with the tasks: it names positional arguments, and its store is used."
)
_functions = stack(_app, _dry_run)


@click.command("crontab", cls=Verb)
@click.argument("file", type=_FILE)
@click.option("--tz", metavar="ZONE", help="The zone of that machine; this one's unless given, or CRON_TZ.")
@click.option("--system", is_flag=True, help="Lines name a user after their times, as in /etc/crontab.")
@_dry_run
@click.pass_obj
def crontab(session: Session, file: Path, tz: str | None, system: bool, dry_run: bool) -> None:
    """Make a job of each line of a crontab: `crontab -l > FILE`."""
    from mainspring.ops.migrate.crontab import local_zone, read_crontab

    zone = tz or local_zone()
    load_zone(zone)
    _import(session, dry_run, lambda now, owner: read_crontab(file, now, zone=zone, namespace=owner, has_user=system))


@click.command("celery", cls=Verb)
@click.argument("celery_app", metavar="MODULE:APP")
@_functions
@click.pass_obj
def celery(session: Session, celery_app: str, ref: str | None, dry_run: bool) -> None:
    """Make a job of each entry of beat_schedule of a Celery app, which is imported: Celery must be installed.

    The task of a job is called like the last part of the Celery task's name, unless APP has a task of the whole name.
    """
    from mainspring.ops.migrate.celery_beat import read_beat

    found, app = _load_object(celery_app), None if ref is None else load_app(ref)
    _import(session, dry_run, lambda now, owner: read_beat(found, now, namespace=owner, app=app), ref)


@click.command("apscheduler", cls=Verb)
@click.argument("url", metavar="URL")
@click.option("--table", default="apscheduler_jobs", show_default=True, help="The table of the job store.")
@_functions
@click.pass_obj
def apscheduler(session: Session, url: str, table: str, ref: str | None, dry_run: bool) -> None:
    """Make a job of each job in an SQLAlchemy store of APScheduler 3, such as sqlite:///jobs.sqlite.

    The store is only read. APScheduler and SQLAlchemy must be installed.
    """
    from mainspring.ops.migrate.apscheduler_store import read_apscheduler

    app = None if ref is None else load_app(ref)
    _import(session, dry_run, lambda now, owner: read_apscheduler(url, now, namespace=owner, app=app, table=table), ref)


@click.command("kubernetes", cls=Verb)
@click.argument("file", type=_FILE)
@_dry_run
@click.pass_obj
def kubernetes(session: Session, file: Path, dry_run: bool) -> None:
    """Make jobs of the CronJobs in FILE (JSON, or YAML with PyYAML). Each runs the task `container`.

    A suspended CronJob becomes a paused job.
    """
    from mainspring.ops.migrate.cronjobs import read_cronjobs

    _import(session, dry_run, lambda now, owner: read_cronjobs(file, now, namespace=owner))


@click.command("airflow-cron", cls=Verb)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@_dry_run
@click.pass_obj
def airflow_cron(session: Session, paths: tuple[Path, ...], dry_run: bool) -> None:
    """Make a job of the schedule of each Airflow DAG in files or folders. Their code is read, never run.

    The task of a job is called like its DAG: register one that does the work.
    """
    from mainspring.ops.migrate.airflow import read_dags

    _import(session, dry_run, lambda now, owner: read_dags(list(paths), now, namespace=owner))


def _load_object(ref: str) -> Any:
    module, _, name = ref.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(load_module(module), name or "app")
    except AttributeError as error:
        raise InvalidInput("app", ref, f"cannot be used: {error}", "write module:name, as for celery -A") from None
    finally:
        sys.path.pop(0)


def _import(session: Session, dry_run: bool, read: Reader, ref: str | None = None) -> None:
    """Read, compare, store unless it is a dry run, and report. What has no counterpart is named on stderr.

    Jobs go to the store of the app that `ref` names: there its workers look for them.
    """
    screen, app = Screen(session), open_app(replace(session, app=ref or session.app))

    # A dry run makes no database: where there is none, no job of a name exists.
    is_missing = dry_run and not database_status(app.settings).exists

    async def make(app: Mainspring) -> list[tuple[Found, Comparison | None]]:
        now = app.clock.now() if is_missing else (await app.open()).now()
        operations = Operations(app, by="hand")
        done: list[tuple[Found, Comparison | None]] = []
        taken: set[str] = set()
        for found in read(now, app.settings.namespace):
            each = found
            if each.job is not None and each.name in taken:
                each = msgspec.structs.replace(each, job=None, why_not="another of this name is before it")
            elif each.job is not None and not is_missing and await if_found(operations.jobs.get(each.name)) is not None:
                each = msgspec.structs.replace(each, job=None, why_not="a job of this name exists already")
            taken.add(each.name)
            if each.job is not None and not dry_run:
                await operations.jobs.create(each.job)
            done.append((each, None if each.job is None else compare(each, now)))
        return done

    done = with_app(session, make, app=app, create=True)
    for found, comparison in done:
        _warn(screen, found, comparison)
    screen.answer([_record(*each) for each in done], lambda: _draw(screen, done, dry_run))


def _zone(job: Job) -> str:
    return job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC"


def _warn(screen: Screen, found: Found, comparison: Comparison | None) -> None:
    if found.job is None:
        screen.warn(f"{found.source} ({found.name}) is left out: {found.why_not}")
        return
    for lost in found.lost:
        screen.warn(f"job {found.name!r}: {lost}")
    if comparison is not None and comparison.differ_at is not None:
        when = moment(comparison.differ_at, _zone(found.job))
        screen.warn(f"job {found.name!r}: the fire times of the two systems first differ at {when}")


def _record(found: Found, comparison: Comparison | None) -> dict[str, object]:
    job = found.job
    base: dict[str, object] = {"source": found.source, "name": found.name, "left_out": found.why_not or None}
    if job is None or comparison is None:
        return base
    differ = comparison.differ_at
    return base | {
        "task": job.task,
        "args": msgspec.json.decode(job.args),
        "schedule": describe(job.trigger),
        "paused": job.paused_at is not None,
        "lost": found.lost,
        "next": [format_instant(each) for each in comparison.ours],
        "theirs": [format_instant(each) for each in comparison.theirs],
        "differs_at": None if differ is None else format_instant(differ),
    }


def _draw(screen: Screen, done: list[tuple[Found, Comparison | None]], dry_run: bool) -> None:
    made = [found.job for found, _ in done if found.job is not None]
    for found, comparison in done:
        if dry_run and found.job is not None and comparison is not None:
            _draw_one(screen, found.job, comparison)
    verb = "Would import" if dry_run else "Imported"
    names = ", ".join(job.name for job in made)
    screen.line(f"{verb} {count_of(made, 'job')}{': ' if made else ''}{names}.")


def _draw_one(screen: Screen, job: Job, comparison: Comparison) -> None:
    zone = _zone(job)
    screen.line(f"{job.name}: {describe(job.trigger)}, task {job.task}", "bold")
    rows: list[list[Value]] = []
    for index, ours in enumerate(comparison.ours):
        theirs = comparison.theirs[index] if index < len(comparison.theirs) else None
        there = "not compared" if theirs is None else moment(theirs, zone)
        rows.append([moment(ours, zone), Cell(there, "" if theirs in (None, ours) else "yellow")])
    if rows:
        screen.table([f"HERE ({zone})", "THERE"], rows)
    screen.line()
