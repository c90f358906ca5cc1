"""`mainspring workers`, `drain`, `regions`, `queues`, `cluster`, `versions`, `settings`: what runs, and how it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer, with_scheduler
from mainspring.cli.output.screen import Screen, Value, state_cell
from mainspring.cli.output.times import length, relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, parse_duration
from mainspring.errors import NotFound
from mainspring.operations import records
from mainspring.operations.installation import ShownSettings, Versions
from mainspring.operations.views.records import Queue

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
    screen.answer(listed, lambda: _draw_workers(screen, listed, len(found), now))


def _draw_workers(screen: Screen, listed: list[records.Worker], known: int, now: Instant) -> None:
    if not listed:
        seen = f" ({known} that ended: --all shows them)" if known else ""
        screen.hint(f"No worker is running{seen}. Start one with `mainspring worker APP`, or `mainspring up`.")
        return
    columns = ("WORKER", "STATE", "RUNNING", "QUEUES", "REGIONS", "TASKS", "HEARTBEAT", "UP")
    spare = ("UP", "REGIONS", "QUEUES", "TASKS")
    screen.table(columns, [_worker_row(worker, now) for worker in listed], fold=("TASKS",), spare=spare)


def _state(worker: records.Worker) -> str:
    """A worker that was asked to drain says that it does with its next heartbeat."""
    return "asked to drain" if worker.state == "active" and worker.drain_requested_at is not None else worker.state


def _worker_row(worker: records.Worker, now: Instant) -> list[Value]:
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


@click.command(cls=RemoteVerb)
@click.option("--pause", metavar="QUEUE", help="Pause this queue: no worker claims its runs.")
@click.option("--resume", metavar="QUEUE", help="Resume this queue.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with what is done.")
@click.pass_obj
def queues(session: Session, pause: str | None, resume: str | None, reason: str) -> None:
    """List queues: what waits in each, which workers serve it, whether it is paused. Or pause or resume one."""
    if pause is not None and resume is not None:
        raise click.UsageError("Pause a queue or resume one: not both at once.")

    async def act(scheduler: Backend) -> Sequence[Queue]:
        if pause is not None:
            return [await scheduler.queues.pause(pause, reason)]
        if resume is not None:
            return [await scheduler.queues.resume(resume, reason)]
        return (await scheduler.queues.list()).items

    show_answer(session, act, _draw_queues)


def _draw_queues(screen: Screen, found: Sequence[Queue], now: Instant) -> None:
    if not found:
        screen.hint("No queue has due runs or workers. Start one with `mainspring worker APP`, or `mainspring up`.")
        return
    columns = ("QUEUE", "STATE", "DUE", "OLDEST", "RUNNING", "BLOCKED", "IN/MIN", "OUT/MIN", "WORKERS", "SLOTS")
    screen.table(columns, [_queue_row(queue, now) for queue in found], fold=("STATE",))


def _queue_row(queue: Queue, now: Instant) -> list[Value]:
    if queue.paused_at is not None:
        state = f"paused: {queue.paused_why}" if queue.paused_why else "paused"
    else:
        state = "active" if queue.workers else "no worker"
    oldest = "" if queue.oldest_due is None else relative(queue.oldest_due, now)
    slots = f"{queue.busy}/{queue.slots}"
    rates = [f"{queue.accepted_per_minute:g}", f"{queue.ended_per_minute:g}"]
    counts = [str(queue.running), str(queue.blocked), *rates, str(queue.workers)]
    return [queue.queue, state_cell(state), str(queue.due), oldest, *counts, slots]


@click.command(cls=RemoteVerb)
@click.option("--limit", default=20, show_default=True, metavar="N", help="How many terms of the history.")
@click.pass_obj
def cluster(session: Session, limit: int) -> None:
    """Show the leader, the nodes that check in, and past terms: their holders, their times, and why each ended."""
    show_answer(session, lambda scheduler: scheduler.cluster.show(limit), _draw_cluster)


def _draw_cluster(screen: Screen, found: records.Cluster, now: Instant) -> None:
    if found.nodes:
        leaders = {term.owner for term in found.terms if term.ended_at is None}
        rows = [_node_row(node, now, leaders) for node in found.nodes]
        screen.table(("NODE", "STATE", "ROLE", "COORDINATION", "CHECK-IN", "LAST", "UP"), rows)
    if not found.terms:
        screen.hint("No node has led yet. Start one with `mainspring up` or `mainspring server`.")
        return
    screen.table(("NAME", "TERM", "LEADER", "BEGAN", "ENDED", "WHY"), [_term_row(term, now) for term in found.terms])


def _node_row(node: records.Node, now: Instant, leaders: Collection[str]) -> list[Value]:
    role = "leads" if node.node in leaders else "stands by" if node.coordination == "leader" else ""
    return [
        node.node,
        state_cell("active" if node.alive else "dead"),
        role if node.alive else "",
        node.coordination,
        node.check_in,
        relative(node.checked_in_at, now),
        relative(node.started_at, now).removesuffix(" ago"),
    ]


def _term_row(term: records.Term, now: Instant) -> list[Value]:
    ended = "leads" if term.ended_at is None else relative(term.ended_at, now)
    return [term.name, str(term.number), term.owner, relative(term.began_at, now), ended, term.reason]


@click.command(cls=RemoteVerb)
@click.pass_obj
def versions(session: Session) -> None:
    """Show which version each process runs, and that of the database's schema."""
    show_answer(session, lambda scheduler: scheduler.versions(), _draw_versions)


def _draw_versions(screen: Screen, found: Versions, now: Instant) -> None:
    since = [None if each.started_at is None else relative(each.started_at, now) for each in found.processes]
    rows = [
        [each.process, each.kind, each.version or "unknown", started or ""]
        for each, started in zip(found.processes, since, strict=True)
    ]
    screen.table(("PROCESS", "KIND", "VERSION", "STARTED"), rows)
    behind = "" if found.schema == found.newest_schema else f", the newest is {found.newest_schema}"
    screen.line(f"The schema of the database has version {found.schema}{behind}.")


@click.command("settings", cls=RemoteVerb)
@click.option("--changed", is_flag=True, help="Only those that are not at their default.")
@click.pass_obj
def show_settings(session: Session, *, changed: bool) -> None:
    """Show the settings that are in effect: of the server, or of this program. Secrets are masked."""

    async def look(scheduler: Backend) -> ShownSettings:
        found = (await scheduler.settings()).items
        return ShownSettings([each for each in found if not (changed and each.is_default)])

    show_answer(session, look, _draw_settings)


def _draw_settings(screen: Screen, shown: ShownSettings, _: Instant) -> None:
    rows = [[each.name, each.value, each.default, each.variable] for each in shown.items]
    screen.table(("SETTING", "VALUE", "DEFAULT", "VARIABLE"), rows)
