"""`mainspring job next`: when a job will fire, before anything is saved."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple, Unpack

import click
import msgspec

from mainspring.app import Mainspring
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import with_app
from mainspring.cli.screen import Cell, Screen, Value
from mainspring.cli.session import Session
from mainspring.cli.times import moment, relative
from mainspring.cli.triggering import TriggerWords, clock_options, read_trigger
from mainspring.cli.views import View
from mainspring.clock import SystemClock
from mainspring.core.calendars import Calendar
from mainspring.core.instants import Instant, format_instant, load_zone, to_datetime, transition_between
from mainspring.core.model import Job
from mainspring.core.planning import jitter_of, next_fire_at
from mainspring.core.triggers import CronTrigger, check_not_past, describe, transition_note
from mainspring.core.why import about


class Forecast(NamedTuple):
    """A job and the instants at which it will fire, as seen at `now` in a zone."""

    job: Job
    zone: str
    now: Instant
    instants: tuple[Instant, ...]

    def notes(self) -> list[str]:
        """What the clocks do between each instant and the one before it (the first: now); empty if nothing."""
        return [_note(before, instant, self.zone) for before, instant in pairwise((self.now, *self.instants))]


def _note(before: Instant, instant: Instant, zone: str) -> str:
    changed = transition_between(before, instant, zone) if before < instant else None
    if changed is None:
        return ""
    day = to_datetime(changed, zone).date()
    note = transition_note(changed, zone) or ""
    return note if day == to_datetime(instant, zone).date() else f"{day}: {note}"


def forecast(
    job: Job, calendars: Mapping[str, Calendar], now: Instant, count: int, zone: str | None = None
) -> Forecast:
    """The next `count` fire times of a job, from its own next one on."""
    shown = zone or (job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC")
    instants: list[Instant] = []
    # What came due in a pause is skipped when it ends.
    instant = next_fire_at(job, now, calendars) if job.next_fire_at is None or job.paused_at else job.next_fire_at
    while instant is not None and len(instants) < count:
        instants.append(instant)
        # Those before it will have fired by then: a job with a limit of firings ends.
        ahead = msgspec.structs.replace(job, fired=job.fired + len(instants))
        instant = next_fire_at(ahead, instant, calendars)
    return Forecast(job, shown, now, tuple(instants))


def forecast_view(seen: Forecast) -> list[View]:
    """For programs."""
    return [
        {
            "fire_at": format_instant(instant),
            "local": format_instant(instant, seen.zone),
            "zone": seen.zone,
            "note": note,
        }
        for instant, note in zip(seen.instants, seen.notes(), strict=True)
    ]


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
