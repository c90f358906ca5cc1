"""ZooKeeper as a URL names it: `zookeeper://user:password@host1:2181,host2,host3/path`, `zookeepers://` with TLS.

`path` is the node below which everything is kept (`/mainspring` unless given). A user and password log in by the digest
scheme, or by SASL with `?auth=sasl`; nodes then belong to that user alone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from mainspring.drivers.server_url import TLS_OPTIONS, ServerUrl, make_tls, read_server_url
from mainspring.errors import LeaseUnavailable

T = TypeVar("T")

PORT: Final = 2181
MILLISECONDS: Final = 1000
ASK_S: Final = 3.0
_quiet = logging.getLogger("mainspring.zookeeper")
_quiet.setLevel(logging.CRITICAL)  # kazoo logs each attempt to reconnect; callers get the error.

__all__ = ["NoNodeError", "NodeExistsError", "Session", "ask_about_server", "read_url"]


def read_url(url: str) -> ServerUrl:
    """What a ZooKeeper URL says; InvalidInput names what is wrong with it."""
    address = read_server_url(url, "lease", port=PORT, options=("timeout", "auth", *TLS_OPTIONS))
    address.choice("auth", ("digest", "sasl"), "digest")
    return address


class Session:
    """One session, on threads of kazoo, which keep it alive. Its methods are awaited on any event loop."""

    def __init__(self, address: ServerUrl, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = address.seconds("timeout", "1s")
        self.timeout_s = timeout_s
        """What the servers granted, once connected: they have a least and a greatest timeout."""
        self._doubts: set[Callable[[str], None]] = set()
        self._connector = _Connector(make_tls(address.options) if address.scheme == "zookeepers" else None)
        self._client = _make_client(address, timeout_s, self._connector)
        self._client.add_listener(self._hear)
        self._note_granted_timeout()
        self._arrivals: set[Callable[[], None]] = set()
        self._arrived = False
        self._client.start_async()

    @property
    def id(self) -> int:
        """The session's id: the owner of its ephemeral nodes. 0 before the first connection."""
        found = self._client.client_id
        return int(found[0]) if found else 0

    @property
    def connected(self) -> bool:
        """Whether a server answers now."""
        return bool(self._client.state == KazooState.CONNECTED)

    def on_doubt(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback(reason)`, on a thread of kazoo, when the session is suspended or lost. The answer stops it."""
        self._doubts.add(callback)
        return lambda: self._doubts.discard(callback)

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """A call of kazoo's by its name, such as `create`. NoNodeError and NodeExistsError pass; every other failure is
        LeaseUnavailable. What a call that took too long does in the end is not known."""
        await self._connect()
        result = getattr(self._client, f"{method}_async")(*args, **options)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def finish() -> None:
            if not answer.done():
                answer.set_exception(result.exception) if result.exception else answer.set_result(result.value)

        result.rawlink(lambda _: _call_on(loop, finish))
        try:
            return await asyncio.wait_for(answer, self._timeout_s)
        except (NoNodeError, NodeExistsError):
            raise
        except (KazooException, KazooTimeoutError, TimeoutError) as error:
            raise LeaseUnavailable(f"{self._address.shown}: {_explain(error)}") from error

    def call_now(self, method: str, *args: Any) -> Any:
        """As `call`, blocking, for a thread of the adapter."""
        return getattr(self._client, f"{method}_async")(*args).get(timeout=self._timeout_s)

    async def watch(self, path: str) -> tuple[Any, asyncio.Event]:
        """The node's state, or None without one; and an event that is set when that changes, or may have."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        stat = await self.call("exists", path, watch=lambda _: _call_on(loop, changed.set))
        return stat, changed

    async def _connect(self) -> None:
        if not self._arrived:
            await self._arrive()
        if not self.connected:  # kazoo would queue the call, and send it once its caller has given up.
            why = self._connector.trouble or self._client.state.lower()
            raise LeaseUnavailable(f"{self._address.shown}: not connected: {why}")

    async def _arrive(self) -> None:
        """Wait for the first connection."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        arrival = partial(_call_on, loop, arrived.set)
        self._arrivals.add(arrival)
        try:
            if not self._arrived:
                await asyncio.wait_for(arrived.wait(), self._timeout_s)
        except TimeoutError:
            return
        finally:
            self._arrivals.discard(arrival)

    def _hear(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._arrived = True
            for arrival in tuple(self._arrivals):
                arrival()
        if state in (KazooState.SUSPENDED, KazooState.LOST):
            for callback in tuple(self._doubts):
                callback(f"the ZooKeeper session is {state.lower()}")

    def _note_granted_timeout(self) -> None:
        """kazoo does not say which timeout the servers granted: its connection derives its read timeout from that."""
        connection = self._client._connection
        connect = connection._connect

        def noted(*args: Any) -> Any:
            times = connect(*args)
            self.timeout_s = times[0] * 1.5 / MILLISECONDS
            return times

        connection._connect = noted

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes. It blocks."""
        self._client.stop()
        self._client.close()


def ask_about_server(address: ServerUrl) -> str:
    """The answer of the first server that answers to the command `srvr`, which ZooKeeper allows unless its whitelist
    leaves it out. It blocks."""
    connector = _Connector(make_tls(address.options) if address.scheme == "zookeepers" else None)
    for host, port in address.hosts:
        with suppress(OSError), connector.create_connection((host, port), host, ASK_S) as connection:
            connection.sendall(b"srvr")
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace").strip()
    raise LeaseUnavailable(f"{address.shown}: {connector.trouble or 'no answer'}")


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return  # The loop has ended, and with it the caller.


def _explain(error: BaseException) -> str:
    if isinstance(error, AuthFailedError):
        return "the user or its password is wrong"
    return str(error) or f"no answer ({type(error).__name__})"


class _Connector(SequentialThreadingHandler):
    """kazoo's handler on threads, with its own connections: TLS as for every other server, and the last failure."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.trouble = ""
        """Why the last attempt to connect failed."""

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> socket.socket:
        """A connection; where the URL asks for TLS, one whose handshake is done."""
        connection = None
        try:
            connection = socket.create_connection(address, timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=hostname)
        except OSError as error:
            if connection is not None:
                connection.close()
            self.trouble = str(error)
            raise
        self.trouble = ""
        return connection


def _make_client(address: ServerUrl, timeout_s: float, connector: _Connector) -> KazooClient:
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.hosts)
    login: dict[str, Any] = {}
    if address.username is not None:
        name, password = address.username, address.password or ""
        login["default_acl"] = CREATOR_ALL_ACL
        if address.options.get("auth") == "sasl":
            login["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": name, "password": password}
        else:
            login["auth_data"] = [("digest", f"{name}:{password}")]
    again = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0)
    return KazooClient(
        hosts=hosts, timeout=timeout_s, connection_retry=again, logger=_quiet, handler=connector, **login
    )
