"""`mainspring job list` and `job show`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from mainspring.cli.jobs.preview import draw_fire_times
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_job, find_job
from mainspring.cli.opening import Backend, collect, show_answer, with_scheduler
from mainspring.cli.output.screen import Cell, Screen, Value, state_cell
from mainspring.cli.output.times import both, instant_of, length, moment, relative
from mainspring.cli.runs.arguments import PROVIDED
from mainspring.cli.session import Session
from mainspring.cli.web.addresses import Pages, web_option
from mainspring.core.instants import Instant
from mainspring.core.model import JobPolicy
from mainspring.core.runs.why import OVERDUE
from mainspring.core.tasks.commands import show_command
from mainspring.errors import NotFound
from mainspring.operations import records
from mainspring.operations.jobs.jobs import Sort
from mainspring.operations.values.from_rows import policy_words
from mainspring.operations.views.explain import short_id

AT_ONCE = 8


@click.command("list", cls=RemoteVerb)
@click.option("--app", "owner", metavar="NAME", help="Only those that this app declares.")
@click.option("--tag", metavar="TAG", help="Only those with this tag.")
@click.option(
    "--sort",
    type=click.Choice(["name", "next", "last"]),
    default="name",
    show_default=True,
    help="By name; those that will fire, soonest first; those that fired, latest first.",
)
@click.pass_obj
def list_jobs(session: Session, owner: str | None, tag: str | None, sort: Sort) -> None:
    """List jobs: when each fires next, and how its last firing ended."""
    show_answer(
        session,
        lambda scheduler: collect(scheduler.jobs.list(app=owner, tag=tag, sort=sort, last=True)),
        _draw_list,
    )


def _draw_list(screen: Screen, jobs: list[records.ListedJob], now: Instant) -> None:
    if not jobs:
        screen.hint("There are no jobs. Add one: mainspring job add hello --every 10s --command 'echo hello'")
        return
    rows = [[job.name, job.schedule, describe_work(job), _next(job, now), *_last(job, now)] for job in jobs]
    columns, spare = ("NAME", "SCHEDULE", "TASK", "NEXT", "LAST", "WHEN"), ("WHEN", "TASK", "SCHEDULE")
    screen.table(columns, rows, cut=("SCHEDULE", "TASK"), spare=spare)


def describe_work(job: records.Job) -> str:
    """What a job does: its task, or its command as one would type it."""
    return show_command(job.args) if job.task in PROVIDED else job.task


def _next(job: records.Job, now: Instant) -> Value:
    if job.paused_at is not None:
        return Cell("paused", "yellow")
    if job.next_fire_at is None:
        return Cell("—" if job.trigger["kind"] in ("manual", "after") else "done", "dim")
    if instant_of(job.next_fire_at) < now - OVERDUE:
        return Cell(f"overdue, {relative(job.next_fire_at, now)}", "red")
    return relative(job.next_fire_at, now)


def _last(job: records.ListedJob, now: Instant) -> list[Value]:
    if not job.last:
        return [Cell("never", "dim"), ""]
    return [state_cell(job.last.outcome), relative(job.last.fire_at, now)]


class _Story(NamedTuple):
    """All that is known of a job."""

    job: records.JobStory
    ledger: list[records.Firing]
    states: dict[str, str]
    """The states of the unfinished runs in the ledger, by run."""
    ahead: Sequence[records.FireTime]
    now: Instant


@click.command(cls=RemoteVerb)
@click.argument("name", shell_complete=complete_job)
@click.option(
    "-n", "--firings", type=click.IntRange(0, 1000), default=10, show_default=True, help="How many past ones."
)
@click.option("--region", metavar="REGION", help="Of these, those of one region.")
@web_option
@click.pass_obj
def show(session: Session, name: str, firings: int, region: str | None, web: bool) -> None:
    """Show job NAME: its definition, its next fire times, what became of the last ones, and why it does not fire."""

    async def look(scheduler: Backend) -> _Story:
        jobs = scheduler.jobs
        job = await find_job(scheduler, name)
        ledger = [firing async for firing in jobs.firings(job.job_id, firings, region=region)]
        states = await _unfinished(scheduler, ledger)
        return _Story(job, ledger, states, await jobs.next(job.job_id, 3), scheduler.now())

    pages = Pages(session, web=web)
    story = with_scheduler(session, look)
    screen = Screen(session)
    view = {**msgspec.structs.asdict(story.job), "next_fire_times": story.ahead, "firings": story.ledger}
    screen.answer(view, lambda: _draw_story(screen, story))
    pages.show(screen, pages.job(story.job.name, story.job.job_id))


async def _unfinished(scheduler: Backend, ledger: Sequence[records.Firing]) -> dict[str, str]:
    run_ids = [firing.run_id for firing in ledger if firing.outcome == "fired" and firing.run_id is not None]
    places = asyncio.Semaphore(AT_ONCE)

    async def state(run_id: str) -> str | None:
        async with places:
            try:
                return (await scheduler.runs.get(run_id)).state
            except NotFound:
                return None  # Its history has been cleaned up.

    found = zip(run_ids, await asyncio.gather(*map(state, run_ids)), strict=True)
    return {run_id: state for run_id, state in found if state is not None}


def _draw_story(screen: Screen, story: _Story) -> None:
    job, now = story.job, story.now
    screen.line(job.name, "bold")
    screen.facts(_facts(job, story.ledger, now))
    screen.items("What is in its way", job.why)
    if story.ahead:
        screen.title("Next fire times" if job.paused_at is None else "Next fire times, if it were resumed")
        draw_fire_times(screen, story.ahead, now)
    screen.title("Last firings")
    if not story.ledger:
        screen.line("  It has not fired yet.", "dim")
        return
    zone = job.trigger.get("tz", "UTC")
    rows = [_ledger_row(firing, story.states, zone, now) for firing in story.ledger]
    columns = [f"DUE ({zone})", "WHEN", "OUTCOME", "ENDED", "RUN", "REASON"]
    if len(job.policy.get("regions", ())) > 1:
        columns.insert(1, "REGION")
        for row, firing in zip(rows, story.ledger, strict=True):
            row.insert(1, firing.region)
    screen.table(columns, rows, fold=("REASON",), spare=("ENDED", "WHEN"))


def _fired(count: int, *, other: bool) -> str:
    """How often its schedule has fired it: what was triggered by hand or backfilled is in the ledger only."""
    if not count:
        return "never by its schedule" if other else "never"
    return "once" if count == 1 else f"{count} times"


def _facts(job: records.Job, ledger: Sequence[object], now: Instant) -> list[tuple[str, Value]]:
    work = [f"queue {job.queue}", f"priority {job.priority}", f"{job.retries} retries"]
    bounds = (
        ("timeout", job.timeout),
        ("soft timeout", job.soft_timeout),
        ("total timeout", job.total_timeout),
        ("isolation", job.isolation),
    )
    moves = (("region failover", job.region_failover), ("to", ", ".join(job.failover_regions) or None))
    optional = (*bounds, ("key", job.key), ("limit", job.limit), *moves)
    work += [f"{name} {value}" for name, value in optional if value is not None]
    work += [] if job.under_pressure == "wait" else ["under pressure it does not wait"]
    paused = None if job.paused_at is None else f"paused since {both(job.paused_at, now)} {job.paused_why}".rstrip()
    return [
        ("schedule", job.schedule),
        ("task", describe_work(job)),
        ("arguments", None if not job.args or job.task in PROVIDED else msgspec.json.encode(job.args).decode()),
        ("state", Cell(paused, "yellow") if paused else Cell("active", "green")),
        ("runs", " · ".join(work)),
        ("policy", describe_policy(job.policy)),
        ("tags", ", ".join(job.tags)),
        ("fired", _fired(job.fired, other=bool(ledger))),
        ("app", f"{job.app} · version {job.version} · added {moment(job.created_at)}"),
        ("id", job.job_id),
    ]


def describe_policy(policy: Mapping[str, Any]) -> str:
    """What differs from the defaults, and the two options that matter most."""
    shown = [f"misfire={policy['misfire']}", f"overlap={policy['overlap']}"]
    usual = policy_words(JobPolicy())
    for name, value in policy.items():
        if name not in ("misfire", "overlap") and value != usual.get(name):
            shown.append(f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}")
    return " · ".join(shown)


def _ledger_row(firing: records.Firing, states: dict[str, str], zone: str, now: Instant) -> list[Value]:
    due = moment(firing.fire_at, zone)
    if firing.last_at is not None:
        count = f"{firing.count} instants" if firing.count else "many instants"
        due = f"{due}, {count} until {moment(firing.last_at, zone)}"
    after = ""
    if firing.run_id is not None and firing.finished_at is not None:
        after = f"+{length(max(instant_of(firing.finished_at) - instant_of(firing.fire_at), 0))}"
    kind = "" if firing.kind == "scheduled" else f" ({firing.kind})"
    state = states.get(firing.run_id or "", firing.outcome)
    run = "" if firing.run_id is None else short_id(firing.run_id)
    return [due, relative(firing.fire_at, now), state_cell(state), after, run, f"{firing.reason}{kind}".strip()]
