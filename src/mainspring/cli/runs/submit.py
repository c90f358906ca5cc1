"""`mainspring run submit`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click
import msgspec

from mainspring.cli.jobs.triggers import read_instant
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import find_run
from mainspring.cli.opening import Backend, is_served, open_app, with_scheduler
from mainspring.cli.option_flags import flags_of
from mainspring.cli.output.screen import Screen
from mainspring.cli.runs.arguments import read_work
from mainspring.cli.runs.tables import describe_run
from mainspring.cli.session import Session
from mainspring.cli.web.addresses import Pages, web_option
from mainspring.core.instants import DAY, format_duration, from_datetime, to_datetime
from mainspring.core.model import PROVIDED_TASKS, Worker
from mainspring.core.runs.retry import Retry
from mainspring.core.runs.why import Crowd, worker_trouble
from mainspring.errors import InvalidInput, NotAllowed
from mainspring.operations import records
from mainspring.operations.jobs.options import OPTIONS, RUN, SOME_DURATION, Defaults, RunWords
from mainspring.operations.views.explain import short_id
from mainspring.sdk.app import Mainspring

LONG_AGO = 100_000 * DAY
"""Whether workers are alive is in their states already."""


@click.command(cls=RemoteVerb)
@click.argument("task", required=False)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--app", "ref", metavar="APP", help="The app that declares the task: its options hold, and arguments are checked."
)
@click.option("--command", metavar="TEXT", help="Instead of a task: a command, split into words as a shell would.")
@click.option("--http", metavar="URL", help="Or an HTTP call; --arg says more of it, as in --arg method=PUT.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument: JSON, or else text.")
@flags_of(RUN)
@click.option("--tz", metavar="ZONE", help="The zone of --at, if that has no offset.")
@web_option
@click.pass_obj
def submit(session: Session, /, task: str | None, argv: Sequence[str], **words: Any) -> None:
    """Submit one run of TASK, or of a command, and print its id.

    \b
    mainspring run submit encode --arg video=v1 --arg size=4
    mainspring run submit --command 'sleep 10' --timeout 5s
    mainspring run submit --timeout 1h -- sh -c 'pg_dump shop | gzip > shop.gz'
    """
    task, argv = _after_dashes(session, task, argv)
    work = read_work(task, words.pop("command"), argv, words.pop("pairs"), words.pop("http"))
    if work.task is None:
        raise click.UsageError("Say what: a task, --command, or a command after --.")
    named, ref, web = work.task, words.pop("ref"), words.pop("web")
    options = _read(words)

    app = open_app(session, ref)
    pages = Pages(session, app, web=web)
    if ref is not None:
        _check_known(app, named)
    if is_served(session, app) and (task_here := app.tasks.get(named)) is not None:
        task_here.encode_args(work.args or {})
        options = {**_defaults(task_here.defaults), **options}

    async def send(scheduler: Backend) -> tuple[records.Run, str | None]:
        if "after" in options:
            options["after"] = [(await find_run(scheduler, each)).run_id for each in options["after"]]
        run = await scheduler.runs.submit(named, work.args, **options)
        try:
            return await scheduler.runs.poll(run.run_id, 0), await _trouble(scheduler, run)
        except NotAllowed:
            return run, None  # The caller may submit and yet not be allowed to read.

    run, trouble = with_scheduler(session, send, app=app, create=True)
    screen = Screen(session)
    screen.answer(run, lambda: click.echo(run.run_id))
    screen.hint(f"Submitted {describe_run(run)}. Watch it: mainspring run wait {short_id(run.run_id)}")
    pages.show(screen, pages.run(run.run_id))
    if trouble and not session.as_json:
        screen.warn(trouble)


def _after_dashes(session: Session, task: str | None, argv: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """What follows `--` is a command, even if no task stands before it: click would take its first word for one."""
    if task is not None and "--" in session.args:
        words = session.args[session.args.index("--") + 1 :]
        if words == (task, *argv):
            return None, words
    return task, argv


def _check_known(app: Mainspring, task: str) -> None:
    """With an app, the task must be one of its own: a misspelt one would wait for a worker for ever."""
    if task in app.tasks or task in PROVIDED_TASKS:
        return
    near = get_close_matches(task, app.tasks, n=1)
    known = f"its tasks are {', '.join(sorted(app.tasks))}" if app.tasks else "it has no tasks"
    remedy = f"did you mean {near[0]}?" if near else f"{known}; for a task of another program leave out --app"
    raise InvalidInput("task", task, f"is not a task of app {app.name}", remedy)


async def _trouble(scheduler: Backend, run: records.Run) -> str | None:
    """Why no worker at all could take the run; None if one could."""
    workers = [_as_announced(worker) for worker in await scheduler.workers.list()]
    cause = worker_trouble(run.queue, run.region, run.task, Crowd(workers, scheduler.now(), LONG_AGO))
    return None if cause is None else cause.sentence


def _as_announced(worker: records.Worker) -> Worker:
    return Worker(
        id=worker.worker,
        queues=tuple(worker.queues),
        regions=tuple(worker.regions),
        tasks=tuple(worker.tasks),
        state=worker.state,
        heartbeat_at=from_datetime(worker.heartbeat_at),
    )


def _defaults(defaults: Defaults) -> dict[str, Any]:
    """A task's own options, as words."""
    words = {"priority": defaults.priority, "queue": defaults.queue, **msgspec.structs.asdict(defaults.options)}
    return {
        name: format_duration(value) if OPTIONS[name].kind is SOME_DURATION and value is not None else value
        for name, value in words.items()
        if name in RunWords.__annotations__
    }


def _read(words: dict[str, Any]) -> dict[str, Any]:
    """Options as `app.submit` takes them."""
    zone = words.pop("tz")
    options = {name: value for name, value in words.items() if value is not None and value != ()}
    if "at" in options:
        options["at"] = to_datetime(read_instant(options["at"], "at", zone))
    if "retries" in options or "retry_policy" in options:
        options["retry"] = Retry(options.pop("retries", None), policy=options.pop("retry_policy", None))
    return options
