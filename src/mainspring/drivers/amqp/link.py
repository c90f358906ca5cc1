"""RabbitMQ, as a URL names it: one node, or several of a cluster.

    amqp://user:password@host1:5672,host2/vhost       amqps:// with TLS

It uses aiormq, the protocol layer below aio-pika: what to do when a connection is lost is the adapter's to decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPError
from yarl import URL

from mainspring.core.answers import ServerFacts
from mainspring.drivers.server_url import TLS_OPTIONS, ServerLink, make_tls, read_server_url
from mainspring.errors import BackendUnavailable
from mainspring.process.background import is_cancelled

TIMEOUT: Final = "250ms"
"""How long an answer may take, unless the URL says otherwise: the store answers sooner."""
CONNECT_S: Final = 5.0
CLOSE_S: Final = 1.0
HEARTBEAT_S: Final = 5
OPTIONS: Final = ("timeout", "prefix", "heartbeat", *TLS_OPTIONS)

# It logs an error for each failed attempt to connect, which is raised as well.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class AmqpLink(ServerLink):
    """Opens connections."""

    errors = (AMQPError, OSError, RuntimeError)

    def __init__(self, url: str, field: str, options: Collection[str], unavailable: type[BackendUnavailable]) -> None:
        port = 5671 if url.startswith("amqps") else 5672
        super().__init__(read_server_url(url, field, port=port, options=options), unavailable, TIMEOUT)
        self._heartbeat = self.url.number("heartbeat", HEARTBEAT_S)
        self._tls = make_tls(self.url.options) if self.url.scheme == "amqps" else None
        self._next = 0

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        try:
            async with super().explained():
                yield
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            # The client cancels the futures of a connection that it loses.
            raise self.unavailable("the connection was lost") from error

    async def connect(self, purpose: str) -> AbstractConnection:
        """A connection to the first node that answers; the next call begins with the next node."""
        problems = []
        for _ in self.url.hosts:
            host, port = self.url.hosts[self._next % len(self.url.hosts)]
            try:
                async with self.explained(), asyncio.timeout(CONNECT_S):
                    return await self._open(host, port, purpose)
            except BackendUnavailable as error:
                problems.append(f"{host}:{port}: {error.__cause__ or error}")
                self._next += 1
        raise self.unavailable("; ".join(problems))

    async def _open(self, host: str, port: int, purpose: str) -> AbstractConnection:
        url = URL.build(
            scheme=self.url.scheme,
            user=self.url.username or "guest",
            password=self.url.password or "guest",
            host=host,
            port=port,
            path="/" + (self.url.path.replace("/", "%2F") or "%2F"),
            query={"heartbeat": str(self._heartbeat), "name": f"mainspring {purpose}"},
            encoded=False,
        )
        connection = aiormq.Connection(url, context=self._tls)
        await connection.connect()
        return connection

    async def close(self, connection: AbstractConnection) -> None:
        """Close a connection, also one that does not answer any more."""
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_S):
                await connection.close()


async def open_channel(connection: AbstractConnection, *, confirms: bool) -> AbstractChannel:
    """A channel; with publisher confirms if asked for."""
    return await connection.channel(publisher_confirms=confirms)


def describe_node(connection: AbstractConnection | None) -> ServerFacts:
    """What a node said of itself when this connection was made."""
    said = getattr(connection, "server_properties", None) or {}
    words = (said.get("product"), said.get("version"))
    return ServerFacts(" ".join(str(word) for word in words if word))
