"""`mainspring workers`."""

from __future__ import annotations

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.opening import with_app
from mainspring.cli.screen import Screen, Value, state_cell
from mainspring.cli.session import Session
from mainspring.cli.times import relative
from mainspring.core.model import Worker
from mainspring.core.why import Crowd
from mainspring.lookup import look_around
from mainspring.views import worker_view


@click.command(cls=Verb)
@click.option("--all", "everyone", is_flag=True, help="Also those that have stopped or died.")
@click.pass_obj
def workers(session: Session, everyone: bool) -> None:
    """List workers: what they serve, how busy they are, when they were last heard of.

    One that has been silent for too long is dead, even if no node has noticed it yet.
    """
    crowd = with_app(session, look_around)
    living = crowd.living()
    listed = list(crowd.workers) if everyone else living
    states = {each.id: each.state if each in living else _ended(each) for each in crowd.workers}
    screen = Screen(session)
    screen.answer([worker_view(each, states[each.id]) for each in listed], lambda: _draw(screen, listed, states, crowd))


def _ended(worker: Worker) -> str:
    return "stopped" if worker.state == "stopped" else "dead"


def _draw(screen: Screen, listed: list[Worker], states: dict[str, str], crowd: Crowd) -> None:
    if not listed:
        gone = len(crowd.workers)
        seen = f" ({gone} that ended: --all shows them)" if gone else ""
        screen.hint(f"No worker is running{seen}. Start one with `mainspring worker APP`, or `mainspring up`.")
        return
    columns = ("WORKER", "STATE", "RUNNING", "QUEUES", "REGIONS", "TASKS", "HEARTBEAT", "UP")
    screen.table(columns, [_row(each, states[each.id], crowd) for each in listed], fold=("TASKS",))


def _row(worker: Worker, state: str, crowd: Crowd) -> list[Value]:
    return [
        f"{worker.host}:{worker.pid}",
        state_cell(state),
        f"{worker.running}/{worker.concurrency}",
        ", ".join(worker.queues),
        ", ".join(worker.regions),
        ", ".join(worker.tasks),
        relative(worker.heartbeat_at, crowd.now),
        relative(worker.started_at, crowd.now).removesuffix(" ago"),
    ]
