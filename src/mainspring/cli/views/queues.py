"""`mainspring queues`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer
from mainspring.cli.output.screen import Screen, Value, state_cell
from mainspring.cli.output.times import relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.operations.views import records


@click.command(cls=RemoteVerb)
@click.option("--pause", metavar="QUEUE", help="Pause this queue: no worker claims its runs.")
@click.option("--resume", metavar="QUEUE", help="Resume this queue.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with what is done.")
@click.pass_obj
def queues(session: Session, pause: str | None, resume: str | None, reason: str) -> None:
    """List queues: what waits in each, which workers serve it, whether it is paused. Or pause or resume one."""
    if pause is not None and resume is not None:
        raise click.UsageError("Pause a queue or resume one: not both at once.")

    async def act(scheduler: Backend) -> Sequence[records.Queue]:
        if pause is not None:
            return [await scheduler.queues.pause(pause, reason)]
        if resume is not None:
            return [await scheduler.queues.resume(resume, reason)]
        return (await scheduler.queues.list()).items

    show_answer(session, act, _draw)


def _draw(screen: Screen, found: Sequence[records.Queue], now: Instant) -> None:
    if not found:
        screen.hint("No queue has due runs or workers. Start one with `mainspring worker APP`, or `mainspring up`.")
        return
    columns = ("QUEUE", "STATE", "DUE", "OLDEST", "RUNNING", "BLOCKED", "IN/MIN", "OUT/MIN", "WORKERS", "SLOTS")
    screen.table(columns, [_row(queue, now) for queue in found], fold=("STATE",))


def _row(queue: records.Queue, now: Instant) -> list[Value]:
    if queue.paused_at is not None:
        state = f"paused: {queue.paused_why}" if queue.paused_why else "paused"
    else:
        state = "active" if queue.workers else "no worker"
    oldest = "" if queue.oldest_due is None else relative(queue.oldest_due, now)
    slots = f"{queue.busy}/{queue.slots}"
    rates = [f"{queue.accepted_per_minute:g}", f"{queue.ended_per_minute:g}"]
    counts = [str(queue.running), str(queue.blocked), *rates, str(queue.workers)]
    return [queue.queue, state_cell(state), str(queue.due), oldest, *counts, slots]
