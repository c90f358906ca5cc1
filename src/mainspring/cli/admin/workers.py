"""`mainspring workers`, `mainspring regions` and `mainspring drain`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer, with_scheduler
from mainspring.cli.output.screen import Screen, Value, state_cell
from mainspring.cli.output.times import length, relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, parse_duration
from mainspring.errors import NotFound
from mainspring.operations import records

_LIVING = ("active", "draining")


@click.command(cls=RemoteVerb)
@click.option("--all", "everyone", is_flag=True, help="Also those that have stopped or died.")
@click.pass_obj
def workers(session: Session, everyone: bool) -> None:
    """List workers: what they serve, how busy they are, when they were last heard of.

    One that has been silent for too long is dead, even if no node has noticed it yet.
    """

    async def look(scheduler: Backend) -> tuple[Sequence[records.Worker], Instant]:
        return await scheduler.workers.list(), scheduler.now()

    found, now = with_scheduler(session, look)
    listed = [worker for worker in found if everyone or worker.state in _LIVING]
    screen = Screen(session)
    screen.answer(listed, lambda: _draw(screen, listed, len(found), now))


def _draw(screen: Screen, listed: list[records.Worker], known: int, now: Instant) -> None:
    if not listed:
        seen = f" ({known} that ended: --all shows them)" if known else ""
        screen.hint(f"No worker is running{seen}. Start one with `mainspring worker APP`, or `mainspring up`.")
        return
    columns = ("WORKER", "STATE", "RUNNING", "QUEUES", "REGIONS", "TASKS", "HEARTBEAT", "UP")
    spare = ("UP", "REGIONS", "QUEUES", "TASKS")
    screen.table(columns, [_row(worker, now) for worker in listed], fold=("TASKS",), spare=spare)


def _state(worker: records.Worker) -> str:
    """A worker that was asked to drain says that it does with its next heartbeat."""
    return "asked to drain" if worker.state == "active" and worker.drain_requested_at is not None else worker.state


def _row(worker: records.Worker, now: Instant) -> list[Value]:
    return [
        f"{worker.host}:{worker.pid}",
        state_cell(_state(worker)),
        f"{worker.running}/{worker.concurrency}",
        ", ".join(worker.queues),
        ", ".join(worker.regions),
        ", ".join(worker.tasks),
        relative(worker.heartbeat_at, now),
        relative(worker.started_at, now).removesuffix(" ago"),
    ]


@click.command(cls=RemoteVerb)
@click.pass_obj
def regions(session: Session) -> None:
    """Show every region that workers serve or that runs wait in: live workers, due runs, and how late the oldest is."""
    show_answer(session, lambda scheduler: scheduler.workers.regions(), _draw_regions)


def _draw_regions(screen: Screen, found: Sequence[records.Region], _: Instant) -> None:
    if not found:
        screen.hint("No region has a worker or a due run. Start one with `mainspring worker APP --region NAME`.")
        return
    rows: list[list[Value]] = [
        [each.region, str(each.workers), f"{each.running}/{each.slots}", str(each.depth), _late(each)] for each in found
    ]
    screen.table(("REGION", "WORKERS", "RUNNING", "DUE", "LATE"), rows)


def _late(region: records.Region) -> str:
    late = parse_duration(region.lateness, "lateness")
    return length(late) if late else "0s"


@click.command(cls=RemoteVerb)
@click.argument("worker", metavar="WORKER")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with what is done.")
@click.pass_obj
def drain(session: Session, worker: str, reason: str) -> None:
    """Ask WORKER to finish what it holds and to take no more. WORKER is an id, or HOST:PID as `workers` shows it.

    It learns of it with its next heartbeat, and then does as on SIGTERM. A worker of `mainspring up` stops alone: the
    scheduler and the API of that process go on.
    """

    async def ask(scheduler: Backend) -> records.Worker:
        known = [each for each in await scheduler.workers.list() if worker in (each.worker, f"{each.host}:{each.pid}")]
        if not known:
            raise NotFound(f"there is no worker {worker!r}: `mainspring workers` lists them")
        living = [each for each in known if each.state in _LIVING] or known
        return await scheduler.workers.drain(living[0].worker, reason)

    show_answer(session, ask, lambda screen, found, _: screen.line(f"Worker {found.worker} is {_state(found)}."))
