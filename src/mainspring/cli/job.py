"""`mainspring job list` and `job show`."""

from __future__ import annotations

from typing import NamedTuple

import click

from mainspring.app import Mainspring
from mainspring.cli.arguments import PROVIDED, show_command
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import with_app
from mainspring.cli.preview import draw_forecast
from mainspring.cli.screen import Cell, Screen, Value, state_cell
from mainspring.cli.session import Session
from mainspring.cli.times import both, length, moment, relative
from mainspring.core.instants import Instant, format_duration, format_instant
from mainspring.core.model import Firing, Job, JobPolicy
from mainspring.core.triggers import AfterTrigger, CronTrigger, ManualTrigger, describe
from mainspring.core.why import OVERDUE
from mainspring.errors import NotFound
from mainspring.forecast import Forecast, forecast, forecast_view
from mainspring.lookup import explain_job, last_firings, select_jobs, short_id
from mainspring.views import firing_view, job_view


@click.command("list", cls=Verb)
@click.option("--app", "owner", metavar="NAME", help="Only those that this app declares.")
@click.option("--tag", metavar="TAG", help="Only those with this tag.")
@click.pass_obj
def list_jobs(session: Session, owner: str | None, tag: str | None) -> None:
    """List jobs: when each fires next, and how its last firing ended."""

    async def look(app: Mainspring) -> tuple[list[Job], dict[str, Firing], Instant]:
        jobs = await select_jobs(app, owner, tag)
        return jobs, await last_firings(app, jobs), (await app.open()).now()

    jobs, ledgers, now = with_app(session, look)
    screen = Screen(session)
    screen.answer([job_view(job) for job in jobs], lambda: _draw_list(screen, jobs, ledgers, now))


def _draw_list(screen: Screen, jobs: list[Job], ledgers: dict[str, Firing], now: Instant) -> None:
    if not jobs:
        screen.hint("There are no jobs. Add one: mainspring job add hello --every 10s --command 'echo hello'")
        return
    rows = [
        [job.name, describe(job.trigger), describe_work(job), _next(job, now), *_last(ledgers.get(job.id), now)]
        for job in jobs
    ]
    screen.table(("NAME", "SCHEDULE", "TASK", "NEXT", "LAST", "WHEN"), rows, cut=("SCHEDULE", "TASK"))


def describe_work(job: Job) -> str:
    """What a job does: its task, or its command as one would type it."""
    return show_command(job.args) if job.task in PROVIDED else job.task


def _next(job: Job, now: Instant) -> Value:
    if job.paused_at is not None:
        return Cell("paused", "yellow")
    if job.next_fire_at is None:
        return Cell("—" if isinstance(job.trigger, ManualTrigger | AfterTrigger) else "done", "dim")
    if job.next_fire_at < now - OVERDUE:
        return Cell(f"overdue, {relative(job.next_fire_at, now)}", "red")
    return relative(job.next_fire_at, now)


def _last(firing: Firing | None, now: Instant) -> list[Value]:
    return [Cell("never", "dim"), ""] if firing is None else [state_cell(firing.outcome), relative(firing.fire_at, now)]


class _Story(NamedTuple):
    """All that is known of a job."""

    job: Job
    ledger: list[Firing]
    states: dict[str, str]
    """Of the runs in the ledger that have not ended."""
    ahead: Forecast
    why: list[str]


@click.command(cls=Verb)
@click.argument("name", shell_complete=complete_job)
@click.option(
    "-n", "--firings", type=click.IntRange(0, 1000), default=10, show_default=True, help="How many past ones."
)
@click.pass_obj
def show(session: Session, name: str, firings: int) -> None:
    """Show job NAME: its definition, its next fire times, what became of the last ones, and why it does not fire."""

    async def look(app: Mainspring) -> _Story:
        store = await app.open()
        job = await store.get_job(app.settings.namespace, name)
        ledger = await store.list_firings(job.id, limit=firings)
        ahead = forecast(job, await store.list_calendars(job.namespace), store.now(), 3)
        return _Story(job, ledger, await _unfinished(app, ledger), ahead, await explain_job(app, job))

    story = with_app(session, look)
    screen = Screen(session)
    view = {
        **job_view(story.job),
        "why": story.why,
        "next_fire_times": forecast_view(story.ahead),
        "firings": [firing_view(firing) for firing in story.ledger],
    }
    screen.answer(view, lambda: _draw_story(screen, story))


async def _unfinished(app: Mainspring, ledger: list[Firing]) -> dict[str, str]:
    store = await app.open()
    states: dict[str, str] = {}
    for firing in ledger:
        if firing.outcome == "fired" and firing.run_id is not None:
            try:
                states[firing.run_id] = (await store.get_run(app.settings.namespace, firing.run_id)).state
            except NotFound:
                continue  # Its history has been cleaned up.
    return states


def _draw_story(screen: Screen, story: _Story) -> None:
    job, now = story.job, story.ahead.now
    screen.line(job.name, "bold")
    screen.facts(_facts(job, now))
    screen.items("What is in its way", story.why)
    if story.ahead.instants:
        screen.title("Next fire times" if job.paused_at is None else "Next fire times, if it were resumed")
        draw_forecast(screen, story.ahead)
    screen.title("Last firings")
    if not story.ledger:
        screen.line("  It has not fired yet.", "dim")
        return
    zone = job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC"
    rows = [_ledger_row(firing, story.states, zone, now) for firing in story.ledger]
    screen.table((f"DUE ({zone})", "WHEN", "OUTCOME", "ENDED", "RUN", "REASON"), rows, fold=("REASON",))


def _facts(job: Job, now: Instant) -> list[tuple[str, Value]]:
    retries = job.options.retry.retries
    work = [f"queue {job.queue}", f"priority {job.priority}", f"{retries} retries"]
    if job.options.timeout is not None:
        work.append(f"timeout {format_duration(job.options.timeout)}")
    work += [f"{name} {value}" for name, value in (("key", job.key), ("limit", job.limit)) if value is not None]
    paused = None if job.paused_at is None else f"paused since {both(job.paused_at, now)} {job.paused_why}".rstrip()
    return [
        ("schedule", describe(job.trigger)),
        ("task", describe_work(job)),
        ("arguments", None if job.args == "{}" or job.task in PROVIDED else job.args),
        ("state", Cell(paused, "yellow") if paused else Cell("active", "green")),
        ("runs", " · ".join(work)),
        ("policy", describe_policy(job.policy)),
        ("tags", ", ".join(job.options.tags)),
        ("fired", {0: "never", 1: "once"}.get(job.fired, f"{job.fired} times")),
        ("app", f"{job.app} · version {job.version} · added {moment(job.created_at)}"),
        ("id", job.id),
    ]


def describe_policy(policy: JobPolicy) -> str:
    """What differs from the defaults, and the two words that everybody asks about."""
    shown = [f"misfire={policy.misfire}", f"overlap={policy.overlap}"]
    defaults = JobPolicy()
    for name in policy.__struct_fields__:
        value = getattr(policy, name)
        if name not in ("misfire", "overlap") and value != getattr(defaults, name):
            shown.append(f"{name}={_show_policy(name, value)}")
    return " · ".join(shown)


def _show_policy(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, int) and name in ("start_at", "end_at"):
        return format_instant(value)
    if isinstance(value, int) and name in ("grace", "catch_up_window", "start_deadline", "jitter"):
        return format_duration(value)
    return str(value)


def _ledger_row(firing: Firing, states: dict[str, str], zone: str, now: Instant) -> list[Value]:
    due = moment(firing.fire_at, zone)
    if firing.last_at is not None:
        count = f"{firing.count} instants" if firing.count else "many instants"
        due = f"{due}, {count} until {moment(firing.last_at, zone)}"
    ended = firing.run_id is not None and firing.finished_at is not None
    after = f"+{length(max((firing.finished_at or 0) - firing.fire_at, 0))}" if ended else ""
    kind = "" if firing.kind == "scheduled" else f" ({firing.kind})"
    state = states.get(firing.run_id or "", firing.outcome)
    run = "" if firing.run_id is None else short_id(firing.run_id)
    return [due, relative(firing.fire_at, now), state_cell(state), after, run, f"{firing.reason}{kind}".strip()]
