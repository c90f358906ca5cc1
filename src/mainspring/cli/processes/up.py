"""`mainspring up` and `mainspring worker`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypedDict, Unpack, get_args

import click

from mainspring.cli.filters import count_of
from mainspring.cli.jobs.sync import Undeclared, compare_jobs, describe_saved, sync_jobs, undeclared_option
from mainspring.cli.lazy import Verb, stack
from mainspring.cli.opening import open_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import moment, relative
from mainspring.cli.processes.live import ServeOptions, serve
from mainspring.cli.processes.reload import reload
from mainspring.cli.processes.server import (
    api_options,
    broker_option,
    cache_option,
    health_beside,
    lease_option,
    log_options,
    serve_beside,
)
from mainspring.cli.session import Session
from mainspring.core.instants import LATEST, SECOND, parse_duration
from mainspring.core.schedules.triggers import CronTrigger
from mainspring.operations.operations import Operations
from mainspring.process.urls import show_url
from mainspring.sdk.app import Mainspring
from mainspring.sdk.name_clashes import check_twins
from mainspring.settings import Coordination
from mainspring.version import VERSION
from mainspring.wiring import describe_commands, describe_exposure, describe_host, describe_store, protect_process


class WorkerWords(TypedDict):
    """The values of a worker's options."""

    concurrency: int | None
    pools: tuple[str, ...]
    queues: tuple[str, ...]
    regions: tuple[str, ...]
    broker: str | None
    log_level: str | None
    log_format: str | None
    duration: str | None
    quiet: bool


class UpWords(WorkerWords):
    """The values of the options of `up`."""

    coordination: str | None
    lease: str | None
    cache: str | None
    host: str | None
    port: int | None


def _reload(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        raise click.exceptions.Exit(reload(ctx.obj))


worker_options = stack(
    click.option("--concurrency", type=int, help="How many runs to execute at once."),
    click.option(
        "--pool",
        "pools",
        metavar="PRIORITY=PLACES",
        multiple=True,
        help="Places reserved for runs of a priority, instead of --concurrency; repeatable.",
    ),
    click.option("--queue", "queues", multiple=True, help="A queue to serve; repeatable."),
    click.option("--region", "regions", multiple=True, help="A region to serve; repeatable."),
    broker_option,
    log_options,
    click.option("--for", "duration", metavar="DURATION", help="Stop after this long."),
    click.option("--quiet", is_flag=True, help="Print nothing but warnings and errors."),
    click.option(
        "--reload",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_reload,
        help="Restart when a file of code below this folder changes; for development.",
    ),
)
"""The options that `up` and `worker` share."""


@click.command(cls=Verb)
@click.argument("ref", metavar="[APP]", required=False)
@worker_options
@undeclared_option
@api_options
@click.option("--no-api", is_flag=True, help="Do not serve the API.")
@lease_option
@cache_option
@click.option(
    "--coordination",
    type=click.Choice(get_args(Coordination)),
    help="Which nodes plan: one leader, all nodes, or the holder of each job's lease.",
)
@click.pass_obj
def up(session: Session, ref: str | None, undeclared: Undeclared, no_api: bool, **words: Unpack[UpWords]) -> int:
    """Run the scheduler, a worker and the API in one process.

    APP is `module:app` or `file.py`; its jobs are stored first. Without one, only commands are run. The first Ctrl-C
    lets running work finish, the second stops at once.
    """
    session.keep_stdout()
    app = open_app(session, ref, **_flags(words))
    screen = Screen(session)
    protect_process(app, signs=not no_api)
    beside = None if no_api else serve_beside(app, screen, quiet=words["quiet"], must=words["port"] is not None)

    async def prepare() -> None:
        await _warn_of_twins(screen, app)
        saved = None if ref is None else await sync_jobs(Operations(app), app, undeclared)
        if not words["quiet"]:
            _introduce(screen, app, ref)
            if saved is not None:
                screen.hint(f"jobs   {describe_saved(saved)}")
            screen.hint(f"next   {await _next_firing(app)}")

    return serve(_service(app, screen, prepare, schedule=True, words=words)._replace(beside=beside))


@click.command(cls=Verb)
@click.argument("ref", metavar="[APP]", required=False)
@worker_options
@click.option("--burst", is_flag=True, help="Stop when the queues are empty: nothing is due, and nothing runs in them.")
@click.option("--health-host", help="The address of health and metrics, without tokens; 127.0.0.1 by default.")
@click.option("--health-port", type=int, help="The port of health and metrics; not served without one.")
@click.pass_obj
def worker(
    session: Session,
    ref: str | None,
    burst: bool,
    health_host: str | None,
    health_port: int | None,
    **words: Unpack[WorkerWords],
) -> int:
    """Run a worker: it executes runs of the tasks of APP (`module:app` or `file.py`), and commands.

    It schedules nothing, and stores no jobs: where those that APP declares differ from the stored ones, it warns.

    With --burst it exits with 0 once the queues and regions that it serves are empty, whatever became of the runs. It
    exits with 1 if it was stopped before. Runs that other workers execute there count. Retries and runs of the future
    do not count, nor do runs of paused queues or of tasks that APP does not have.
    """
    session.keep_stdout()
    app = open_app(session, ref, health_host=health_host, health_port=health_port, **_flags(words))
    screen = Screen(session)
    protect_process(app, signs=False)

    async def prepare() -> None:
        await _warn_of_twins(screen, app)
        if not words["quiet"]:
            _introduce(screen, app, ref)
        for difference in await compare_jobs(app):
            screen.warn(f"{difference}: `mainspring job sync {ref}` stores what is declared.")

    service = _service(app, screen, prepare, schedule=False, words=words)
    return serve(service._replace(beside=health_beside(app), create=False, burst=burst))


async def _warn_of_twins(screen: Screen, app: Mainspring) -> None:
    for warning in await check_twins(app):
        screen.warn(f"{warning}. Give one of them another name, or a namespace of its own.")


def _flags(words: WorkerWords) -> dict[str, object]:
    if words["pools"] and words["concurrency"] is not None:
        raise click.UsageError("--pool and --concurrency exclude each other: a worker has the places of its pools")
    return {name: value for name, value in words.items() if name not in ("duration", "quiet") and value != ()}


def _service(
    app: Mainspring, screen: Screen, prepare: Callable[[], Awaitable[None]], *, schedule: bool, words: WorkerWords
) -> ServeOptions:
    seconds = None if words["duration"] is None else parse_duration(words["duration"], "for") / SECOND
    return ServeOptions(app, screen, prepare, schedule, seconds, words["quiet"])


def _introduce(screen: Screen, app: Mainspring, ref: str | None) -> None:
    settings = app.settings
    what = f"app {app.name} ({ref}), {count_of(app.tasks, 'task')}" if ref else "no app: commands only"
    screen.hint(f"mainspring {VERSION}")
    screen.hint(f"store  {describe_store(settings)}")
    if settings.lease is not None:
        screen.hint(f"lease  {show_url(settings.lease)}")
    if settings.broker is not None:
        screen.hint(f"broker {show_url(settings.broker)}")
    shares = "".join(f" · {places} for priority {priority}" for priority, places in settings.pools)
    serves = f"queue {', '.join(settings.queues or app.queues())} · region {', '.join(settings.regions)}"
    screen.hint(f"work   {what} · {serves} · {settings.concurrency} at once{shares}")
    host = describe_host(app, settings)
    if confinement := describe_commands(settings):
        host.append(confinement)
    if host:
        screen.hint(f"host   {'; '.join(host)}")
    for exposure in describe_exposure(settings, work=True):
        screen.warn(exposure)


async def _next_firing(app: Mainspring) -> str:
    store = await app.open()
    due = await store.due_jobs(LATEST, 1)
    if not due or due[0].next_fire_at is None:
        return "no job is due; add one with `mainspring job add`"
    job, at = due[0], due[0].next_fire_at
    zone = job.trigger.tz if isinstance(job.trigger, CronTrigger) else None
    return f"{job.name}, {relative(at, store.now())} ({moment(at, zone)})"
