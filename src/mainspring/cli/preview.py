"""`mainspring job next`: when a job will fire, before anything is saved."""

from __future__ import annotations

from typing import Unpack

import click

from mainspring.app import Mainspring
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import with_app
from mainspring.cli.screen import Cell, Screen, Value
from mainspring.cli.session import Session
from mainspring.cli.times import moment, relative
from mainspring.cli.triggering import TriggerWords, clock_options, read_trigger
from mainspring.clock import SystemClock
from mainspring.core.instants import format_instant, load_zone
from mainspring.core.model import Job
from mainspring.core.planning import jitter_of
from mainspring.core.triggers import check_not_past, describe
from mainspring.core.why import about
from mainspring.forecast import Forecast, forecast, forecast_view


def draw_forecast(screen: Screen, seen: Forecast) -> None:
    """For people: in the job's zone, from now, in UTC, and what the clocks do."""
    noted = any(seen.notes())
    columns = [f"FIRES ({seen.zone})", "FROM NOW", "UTC", *(["CLOCKS"] if noted else [])]
    rows: list[list[Value]] = [
        [moment(instant, seen.zone), relative(instant, seen.now), format_instant(instant), Cell(note, "yellow")]
        for instant, note in zip(seen.instants, seen.notes(), strict=True)
    ]
    screen.table(columns, [row[: len(columns)] for row in rows], fold=("CLOCKS",))


@click.command("next", cls=Verb)
@click.argument("name", required=False, shell_complete=complete_job)
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@clock_options
@click.pass_obj
def next_fires(session: Session, name: str | None, count: int, **words: Unpack[TriggerWords]) -> None:
    """Preview when job NAME will fire; or, with --cron, --every or --at, when a job would that you have not added yet.

    Fire times are shown in the job's zone (in another with --tz), and changes of daylight saving are marked.
    """
    seen = _of_words(words, count) if name is None else _of_job(session, name, words, count)
    screen = Screen(session)
    screen.answer(forecast_view(seen), lambda: _draw(screen, seen))


def _of_words(words: TriggerWords, count: int) -> Forecast:
    trigger = read_trigger(words)
    if trigger is None:
        raise click.UsageError("Name a job, or say when with --cron, --every or --at.")
    now = SystemClock().now()
    check_not_past(trigger, now)
    return forecast(Job("", "a job", "", trigger, created_at=now), {}, now, count, words.get("tz"))


def _of_job(session: Session, name: str, words: TriggerWords, count: int) -> Forecast:
    if words.get("cron") or words.get("every") or words.get("at"):
        raise click.UsageError(f"Name a job or say when, not both: leave out '{name}' to preview a new trigger.")
    zone = words.get("tz")
    if zone is not None:
        load_zone(zone)

    async def look(app: Mainspring) -> Forecast:
        store = await app.open()
        job = await store.get_job(app.settings.namespace, name)
        return forecast(job, await store.list_calendars(job.namespace), store.now(), count, zone)

    return with_app(session, look)


def _draw(screen: Screen, seen: Forecast) -> None:
    job = seen.job
    if not seen.instants:
        screen.hint(f"{job.name} ({describe(job.trigger)}) fires at no instant that is known in advance.")
        return
    due = seen.instants[0]
    screen.line(
        f"{job.name}: {describe(job.trigger)}. It fires next on {moment(due, seen.zone)}, {relative(due, seen.now)}."
    )
    if job.policy.jitter:
        screen.line(f"Its runs start {about(jitter_of(job))} after each instant (jitter).", "dim")
    if job.paused_at is not None:
        screen.line(f"It is paused: none of these fires before `mainspring job resume {job.name}`.", "yellow")
    screen.line()
    draw_forecast(screen, seen)
