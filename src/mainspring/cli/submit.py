"""`mainspring run submit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import click

from mainspring.app import Mainspring
from mainspring.cli.arguments import read_work
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_run
from mainspring.cli.opening import open_app, with_app
from mainspring.cli.run_tables import describe_run
from mainspring.cli.screen import Screen
from mainspring.cli.session import Session
from mainspring.cli.triggering import check_to_come, read_instant
from mainspring.core.instants import to_datetime
from mainspring.core.model import Run
from mainspring.core.retry import Retry
from mainspring.core.triggers import OnFailure, When
from mainspring.core.why import worker_trouble
from mainspring.lookup import find_run, look_around, short_id
from mainspring.views import run_view


@click.command(cls=Verb)
@click.argument("task", required=False)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--app", "ref", metavar="APP", help="The app that declares the task: its options hold, and arguments are checked."
)
@click.option("--command", metavar="TEXT", help="Instead of a task: a command, split into words as a shell would.")
@click.option("--http", metavar="URL", help="Or an HTTP call; --arg says more of it, as in --arg method=PUT.")
@click.option("--isolation", metavar="LEVEL[,LIMIT...]", help="none, process, limits or sandbox,memory=1GB,network.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument: JSON, or else text.")
@click.option("--priority", type=int, help="1 (highest) to 10; 5 unless given.")
@click.option("--delay", metavar="DURATION", help="Due this long from now.")
@click.option("--at", metavar="INSTANT", help="Due at this instant.")
@click.option("--tz", metavar="ZONE", help="The zone of --at, if that has no offset.")
@click.option("--expires", metavar="DURATION", help="Skipped if it has not started this long after it was due.")
@click.option("--key", help="Runs of one key run one after the other.")
@click.option("--queue", help="The queue whose workers run it.")
@click.option("--region", help="Where it must run.")
@click.option("--timeout", metavar="DURATION", help="Kill an attempt that takes longer.")
@click.option("--retries", type=int, help="How often to try again after a failure.")
@click.option(
    "--after", multiple=True, metavar="RUN", shell_complete=complete_run, help="Wait for this run; or for several."
)
@click.option("--when", type=click.Choice(get_args(When)), help="With --after: all of them, or any.")
@click.option("--on-failure", type=click.Choice(get_args(OnFailure)), help="With --after: if one of them fails.")
@click.option("--tag", "tags", multiple=True, help="A tag, to select by; repeat for several.")
@click.option("--idempotency-key", metavar="KEY", help="Submitted again with the same key, it is the same run.")
@click.pass_obj
def submit(session: Session, /, task: str | None, argv: Sequence[str], **words: Any) -> None:
    """Submit one run of TASK, or of a command, and print its id.

    \b
    mainspring run submit encode --arg video=v1 --arg size=4
    mainspring run submit --command 'sleep 10' --timeout 5s
    """
    work = read_work(task, words.pop("command"), argv, words.pop("pairs"), words.pop("http"))
    if work.task is None:
        raise click.UsageError("Say what: a task, --command, or a command after --.")
    named, ref = work.task, words.pop("ref")
    options = _read(words)

    async def send(app: Mainspring) -> tuple[Run, str | None]:
        if "after" in options:
            options["after"] = [(await find_run(app, each)).id for each in options["after"]]
        handle = await app.submit(named, work.args, **options)
        run = await app.get_run(handle.id)
        return run, worker_trouble(run.queue, run.region, run.task, await look_around(app))

    run, trouble = with_app(session, send, app=open_app(session, ref), create=True)
    screen = Screen(session)
    screen.answer(run_view(run), lambda: click.echo(run.id))
    screen.hint(f"Submitted {describe_run(run)}. {trouble or f'Watch it: mainspring run wait {short_id(run.id)}'}")


def _read(words: dict[str, Any]) -> dict[str, Any]:
    """Options as `app.submit` takes them."""
    zone = words.pop("tz")
    options = {name: value for name, value in words.items() if value is not None and value != ()}
    if "at" in options:
        instant = read_instant(options["at"], "at", zone)
        check_to_come(options["at"], "at", instant, "choose a later instant, or leave it out to run it now")
        options["at"] = to_datetime(instant)
    if "retries" in options:
        options["retry"] = Retry(options.pop("retries"))
    return options
