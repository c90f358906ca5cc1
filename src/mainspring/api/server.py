"""The server: the application on a thread and loop of its own, so that no task of a user can keep it from answering."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable

import msgspec
import uvicorn

from mainspring.api.application import ENDPOINTS, Application
from mainspring.api.assets import Assets
from mainspring.api.auth.tokens import check_exposure, is_loopback, load_keys
from mainspring.api.context import ApiContext
from mainspring.api.endpoint import PUBLIC
from mainspring.api.resources.pages import pages
from mainspring.api.resources.system.health import ENDPOINTS as HEALTH
from mainspring.api.wire.protocol import BoundedProtocol
from mainspring.errors import Conflict, InvalidInput
from mainspring.process.eventloop import new_loop
from mainspring.process.watchdog import Watchdog
from mainspring.sdk.app import Mainspring
from mainspring.services.node import Node
from mainspring.settings import Settings

log = logging.getLogger("mainspring")

NAME = "the API"
BACKLOG = 1_024
KEEP_ALIVE_S = 75
STOP_S = 5.0
"""How long requests that are under way when the server is stopped may take."""
START_S = 30.0


class PortTaken(Conflict):
    """Another program listens there."""


class _Telling(uvicorn.Server):
    """Calls back when it serves."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


class Server:
    """Starts and stops the API of one app."""

    def __init__(
        self, app: Mainspring, node: Callable[[], Node | None] = lambda: None, *, health_only: bool = False
    ) -> None:
        """Reads the settings of the app. Refuses settings that would expose the API without authentication.

        `health_only`: serve liveness, readiness and metrics only, without tokens, at the settings `health_host` and
        `health_port`; for workers.
        """
        settings, endpoints = app.settings, ENDPOINTS
        if health_only:
            settings, endpoints = _health_settings(settings), HEALTH
            if not is_loopback(settings.host):  # A scraper elsewhere has no token for it.
                endpoints = tuple(each._replace(permission=PUBLIC) for each in HEALTH)
        keys = load_keys(settings)
        if not health_only:
            check_exposure(settings, keys)
        self.is_open = keys is None
        """Whether every process of this machine may use the server without a token."""
        self._host, self._port = settings.host, settings.port
        self.context = ApiContext(app, settings, keys, node)
        self.assets = Assets()
        self._has_ui = settings.ui and not health_only
        served = (*endpoints, *pages(self.assets, settings.base_path)) if self._has_ui else endpoints
        self.application = Application(self.context, served)
        self._server: uvicorn.Server | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._forget: Callable[[], None] = lambda: None
        self._error: BaseException | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def watched_by(self, watchdog: Watchdog, on_failed: Callable[[str], None]) -> None:
        """Let a watchdog report if this no longer serves although it was not stopped."""
        assert self.loop is not None, "it has not been started"
        assert self._thread is not None
        watchdog.watch(NAME, self.loop, self._thread, on_failed)
        self._forget = lambda: watchdog.forget(NAME)

    @property
    def stopped(self) -> bool:
        """Whether the server has stopped."""
        return self._thread is None or not self._thread.is_alive()

    async def start(self) -> None:
        """Listen and serve; returns once requests are answered. PortTaken if another program listens there."""
        listener = _listen(self._host, self._port)
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.application,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=round(STOP_S),
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = _Telling(config, self._ready.set)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="mainspring-api", daemon=True)
        self._thread.start()
        try:
            await asyncio.gather(asyncio.to_thread(self._ready.wait, START_S), asyncio.to_thread(self._read_assets))
        except (asyncio.CancelledError, OSError):
            await self.stop()  # Otherwise it would open its app's store again while that is being closed.
            raise
        if self._error is not None:
            raise self._error

    def _read_assets(self) -> None:
        """Read and compress the files of the UI meanwhile, so that the first viewer does not wait for it."""
        if self._has_ui:
            _ = self.assets.digest

    def _run(self, listener: socket.socket) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._serve(listener))
        except BaseException as error:
            if self._ready.is_set():
                log.critical("the API has failed", exc_info=error)
            self._error = error
        finally:
            listener.close()
            self._ready.set()

    async def _serve(self, listener: socket.socket) -> None:
        assert self._server is not None
        self.loop = asyncio.get_running_loop()
        await self.context.open()
        try:
            await self._server.serve([listener])
        finally:
            self.context.close()

    async def stop(self) -> None:
        """Accept no more requests, let those under way end, and end the thread."""
        if self._server is None or self._thread is None:
            return
        self._forget()
        self.context.waking.end()
        self._server.should_exit = True
        await asyncio.to_thread(self._thread.join, STOP_S + 5.0)


def _health_settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(
        settings,
        host=settings.health_host,
        port=settings.health_port or 0,
        secret=None,
        token_algorithm="HS256",
        token_keys=None,
    )


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; InvalidInput for an address that is not this machine's."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise InvalidInput("host", host, f"is no address: {error.strerror}", "use e.g. 127.0.0.1") from None
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            detail = f"port {port} of {host} is taken by another program: choose another with --port"
            raise PortTaken(detail) from None
        raise InvalidInput("host", f"{host}:{port}", f"cannot be used: {error.strerror}", "use 127.0.0.1") from None
    return listener
