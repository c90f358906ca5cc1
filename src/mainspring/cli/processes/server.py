"""`mainspring server`, and the API that `up` serves beside its node."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, get_args

import click

from mainspring.cli.jobs.sync import Undeclared, describe_saved, sync_jobs, undeclared_option
from mainspring.cli.lazy import Verb, stack
from mainspring.cli.opening import open_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.processes.live import ServeOptions, serve
from mainspring.cli.session import Session
from mainspring.core.instants import SECOND, parse_duration
from mainspring.errors import MainspringError
from mainspring.operations.operations import Operations
from mainspring.sdk.app import Mainspring
from mainspring.services.runtime import Runtime
from mainspring.settings import LogFormat, LogLevel, Settings
from mainspring.version import VERSION
from mainspring.wiring import describe_exposure, describe_store, protect_process

if TYPE_CHECKING:
    from mainspring.api.server import Server

Stop = Callable[[], Awaitable[None]]

PORT_RETRY_S = 0.5
"""How often a stand-by tries the port of the API: often enough that clients hardly notice a change."""

api_options = stack(
    click.option("--host", help="The address of the API; 127.0.0.1 by default."),
    click.option("--port", type=int, help="The port of the API; 0 for any free one."),
)
lease_option = click.option(
    "--lease",
    metavar="URL",
    help="What elects the leader instead of the store: redis://…, etcd://…, zookeeper://…, kubernetes://…",
)
"""The options that `up` and `server` share."""
cache_option = click.option("--cache", metavar="URL", help="The status cache of the API: redis://…")
log_options = stack(
    click.option("--log-level", type=click.Choice(get_args(LogLevel)), help="The lowest level to log; warning."),
    click.option("--log-format", type=click.Choice(get_args(LogFormat)), help="Log as text, or as JSON lines."),
)
broker_option = click.option(
    "--broker", metavar="URL", help="What carries runs to workers: redis://…, amqp://…, kafka://…, sqs://…"
)
"""The option that `up`, `worker` and `server` share."""


@click.command(cls=Verb)
@click.argument("ref", metavar="[APP]", required=False)
@api_options
@lease_option
@broker_option
@cache_option
@undeclared_option
@log_options
@click.option("--for", "duration", metavar="DURATION", help="Stop after this long.")
@click.option("--quiet", is_flag=True, help="Write no access log.")
@click.pass_obj
def server(
    session: Session, /, ref: str | None, undeclared: Undeclared, duration: str | None, quiet: bool, **flags: object
) -> int:
    """Serve the API, and schedule. Workers are other processes: `mainspring worker APP`.

    APP is `module:app` or `file.py`; its jobs are stored first, and arguments are checked against its tasks. Without a
    secret (MAINSPRING_SECRET) only programs on this machine are served.
    """
    session.keep_stdout()
    app = open_app(session, ref, **flags)
    screen = Screen(session)
    check_exposure(app)
    protect_process(app, signs=True)
    if not quiet:
        _log_access()

    async def prepare() -> None:
        saved = None if ref is None else await sync_jobs(Operations(app), app, undeclared)
        screen.hint(f"mainspring {VERSION}")
        screen.hint(f"store  {describe_store(app.settings)}")
        if saved is not None:
            screen.hint(f"jobs   {describe_saved(saved)}")
        for exposure in describe_exposure(app.settings, work=False):
            screen.warn(exposure)

    seconds = None if duration is None else parse_duration(duration, "for") / SECOND
    beside = serve_beside(app, screen, quiet=False, must=True)
    return serve(ServeOptions(app, screen, prepare, True, seconds, True, work=False, beside=beside))


def check_exposure(app: Mainspring) -> None:
    """Refuse to listen to other machines without a secret, before anything starts. The defaults need no check."""
    defaults, settings = Settings(), app.settings
    if any(getattr(settings, name) != getattr(defaults, name) for name in ("host", "secret", "token_keys")):
        from mainspring.api.auth.tokens import check_exposure as check
        from mainspring.api.auth.tokens import load_keys

        check(settings, load_keys(settings))


def _log_access() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("mainspring.access").addHandler(handler)


def serve_beside(app: Mainspring, screen: Screen, *, quiet: bool, must: bool) -> Callable[[Runtime], Awaitable[Stop]]:
    """Start the API once the node runs. Unless it `must`, a taken port is no error: a second process on the same
    machine stands by, and serves the API as soon as the port is free."""
    check_exposure(app)

    async def start(runtime: Runtime) -> Stop:
        # Half a second of imports, for which the node need not wait.
        begin = await asyncio.to_thread(_import_server)
        from mainspring.api.server import PortTaken

        api = begin(app, lambda: runtime.node)

        def introduce() -> None:
            api.watched_by(runtime.watchdog, runtime.on_failed)
            if not quiet:
                screen.hint(f"api    {api.url}{' (this machine only, no token needed)' if api.is_open else ''}")
            if not quiet and app.settings.ui:
                address = app.settings.public_url or f"{api.url}{app.settings.base_path}"
                screen.hint(f"ui     {address}/ui/")

        try:
            await api.start()
        except PortTaken:
            if must:
                raise
            where = f"port {app.settings.port} of {app.settings.host}"
            screen.hint(f"api    stands by: {where} is taken; this process serves it once it is free")
            waiting = asyncio.create_task(_start_when_free(api, introduce, screen))
            return partial(_stop_both, waiting, api)
        introduce()
        return api.stop

    return start


async def _start_when_free(api: Server, introduce: Callable[[], None], screen: Screen) -> None:
    """Try until the port is free: nothing announces the end of the process that has it."""
    from mainspring.api.server import PortTaken

    while True:
        await asyncio.sleep(PORT_RETRY_S)
        try:
            await api.start()
        except PortTaken:
            continue
        except MainspringError as error:
            screen.warn(f"the API is not served by this process: {error}")
            return
        introduce()
        return


async def _stop_both(waiting: asyncio.Task[None], api: Server) -> None:
    waiting.cancel()
    await asyncio.wait({waiting})
    await api.stop()


def health_beside(app: Mainspring) -> Callable[[Runtime], Awaitable[Stop]] | None:
    """Serve health and metrics of a worker, if it has a port for them."""
    if app.settings.health_port is None:
        return None

    async def start(runtime: Runtime) -> Stop:
        begin = await asyncio.to_thread(_import_server)
        health = begin(app, lambda: runtime.node, health_only=True)
        await health.start()
        health.watched_by(runtime.watchdog, runtime.on_failed)
        return health.stop

    return start


def _import_server() -> type[Server]:
    from mainspring.api.server import Server

    return Server
