"""Redis, as a URL names it: one server, the master that Sentinels know of, or a cluster.

    redis://user:password@host:6379/0                         rediss:// with TLS
    redis+sentinel://user:password@host1:26379,host2/name/0   rediss+sentinel:// with TLS; `name` is the master's
    redis+cluster://user:password@host1:7000,host2:7001       rediss+cluster:// with TLS

Each event loop has its own client. A call is made once: what to do when it fails is the caller's to decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha1
from typing import Any, Final

import msgspec

from mainspring.core.answers import ServerFacts
from mainspring.drivers.per_loop import PerLoop
from mainspring.drivers.redis.connection import Address, Hear, ReplyError, Wire, Word
from mainspring.drivers.server_url import TLS_OPTIONS, ServerUrl, make_tls, read_server_url
from mainspring.errors import InvalidInput, MainspringError
from mainspring.process.urls import REDIS_SCHEMES as SCHEMES
from mainspring.process.urls import show_url

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
Client = tuple[Callable[..., Awaitable[Any]], Callable[[Sequence[str], Hear], Awaitable[None]]]
"""What carries commands, and what listens."""
_OPTIONS = ("prefix", "timeout", "sentinel_username", "sentinel_password", *TLS_OPTIONS)


class RedisUrl(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL says."""

    shown: str
    hosts: tuple[tuple[str, int], ...]
    kind: str = ""
    """Empty, `sentinel` or `cluster`."""
    tls: bool = False
    username: str | None = None
    password: str | None = None
    master: str = ""
    database: int = 0
    timeout_s: float = 1.0
    prefix: str = ""
    """Before every key: for several installations on one Redis."""
    words: Mapping[str, str] = {}


class Script:
    """A Lua script: its keys are named by the caller, so that a cluster knows where to run it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


_DESCRIBE: Final = Script(
    """
local t = redis.call('TIME')
return {redis.call('INFO', 'server'), t[1] * 1000000 + t[2]}
"""
)


def read_url(url: str, field: str, timeout: str = "1s") -> RedisUrl:
    """What a URL says; InvalidInput names what is wrong with it. `field` is the setting that it was written in,
    `timeout` how long an answer may take unless the URL says otherwise."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        remedy = f"write redis://host:{PORT}; the kinds are {', '.join(SCHEMES)}"
        raise InvalidInput(field, show_url(url), "names no kind of Redis that there is", remedy)
    kind = scheme.partition("+")[2]
    known = read_server_url(url, field, port=SENTINEL_PORT if kind == "sentinel" else PORT, options=_OPTIONS)
    if len(known.hosts) > 1 and not kind:
        remedy = "write redis+sentinel:// or redis+cluster:// if they belong together, redlock:// if they do not"
        raise known.refuse("names several servers", remedy)
    master, database = _read_path(known, kind)
    return RedisUrl(
        shown=known.shown,
        hosts=known.hosts,
        kind=kind,
        tls=scheme.startswith("rediss"),
        username=known.username,
        password=known.password,
        master=master,
        database=database,
        timeout_s=known.seconds("timeout", timeout),
        prefix=known.options.get("prefix", ""),
        words=known.options,
    )


def _read_path(url: ServerUrl, kind: str) -> tuple[str, int]:
    """The name of the master that Sentinels are asked for, and the number of the database."""
    path = url.path.strip("/")
    master, _, number = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "sentinel" and not master:
        remedy = "write it after the hosts: redis+sentinel://host1,host2/mymaster"
        raise url.refuse("does not say which master", remedy)
    if number and not (number.isascii() and number.isdecimal()):
        raise url.refuse("does not end with the number of a database", "write /0, or nothing")
    if kind == "cluster" and int(number or 0) > 0:
        raise url.refuse("names a database, and a cluster has one only", "leave it out")
    return master, int(number or 0)


class RedisLink:
    """Commands and scripts on one Redis. Errors are raised as `unavailable`, and name the server."""

    def __init__(self, place: RedisUrl, unavailable: type[MainspringError]) -> None:
        self.place = place
        self._unavailable = unavailable
        self._clients = PerLoop(partial(_make_client, self.place), _close)
        self._closed = False

    def key(self, name: str) -> str:
        """A key of this installation."""
        return self.place.prefix + name

    async def command(self, *words: str | bytes | float) -> Any:
        """One command."""
        call, _ = await self._client()
        try:
            return await call(*words)
        except Exception as error:
            raise self._explained(error) from error

    async def run(self, script: Script, keys: Sequence[str], *arguments: str | bytes | float) -> Any:
        """One script, atomically. Its text is sent only if the server does not know it yet."""
        call, _ = await self._client()
        try:
            return await call("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except Exception as error:
            if not str(error).startswith(("NOSCRIPT", "No matching script")):
                raise self._explained(error) from error
        try:
            return await call("EVAL", script.text, len(keys), *keys, *arguments)
        except Exception as error:
            raise self._explained(error) from error

    async def describe(self) -> ServerFacts:
        """The version and clock of the server; of a cluster, those of one node."""
        info, now = await self.run(_DESCRIBE, [self.key("doctor")])
        known = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
        if "valkey_version" in known:
            return ServerFacts(f"Valkey {known['valkey_version']}", now)
        return ServerFacts(f"Redis {known.get('redis_version', 'of unknown version')}", now)

    @property
    def counts_listeners(self) -> bool:
        """Whether a script that publishes learns how many subscribers it reached: a cluster's node knows its own."""
        return self.place.kind != "cluster"

    async def listen(self, channels: Sequence[str], hear: Hear) -> None:
        """Call `hear` with None once these channels are listened to, and then with each message, until cancelled or the
        connection is lost."""
        _, listen = await self._client()
        try:
            await listen(channels, hear)
        except Exception as error:
            raise self._explained(error) from error

    async def close(self) -> None:
        """Let go of all connections, on whatever loops they are."""
        self._closed = True
        await self._clients.close()

    async def _client(self) -> Client:
        if self._closed:
            raise self._unavailable(f"{self.place.shown} has been closed by this program")
        client, _ = await self._clients.get()
        return client

    def _explained(self, error: Exception) -> Exception:
        from redis.exceptions import RedisError

        if not isinstance(error, RedisError | ReplyError | OSError | TimeoutError):
            return error
        said = str(error).strip() or type(error).__name__
        return self._unavailable(f"{self.place.shown}: {said}")


async def _close(made: tuple[Client, Sequence[Any]]) -> None:
    for each in made[1]:
        with suppress(Exception):
            await each.aclose()


def _make_client(place: RedisUrl) -> tuple[Client, Sequence[Any]]:
    """The carrier of commands, the driver for all else, and what is to be closed at the end."""
    from redis import asyncio as redis
    from redis.asyncio.sentinel import Sentinel

    login: dict[str, Any] = {"username": place.username, "password": place.password}
    tls: dict[str, Any] = {"ssl": True} if place.tls else {}
    tls |= {word: place.words[word] for word in TLS_OPTIONS if word in place.words}
    socket: dict[str, Any] = {"socket_timeout": place.timeout_s, "socket_connect_timeout": place.timeout_s}
    socket |= {"protocol": 2, **tls}
    if place.kind == "cluster":
        nodes = [redis.cluster.ClusterNode(host, port) for host, port in place.hosts]
        cluster = redis.RedisCluster(startup_nodes=nodes, **login, **socket)
        return (cluster.execute_command, partial(_listen, cluster)), [cluster]
    if place.kind == "sentinel":
        words: dict[str, Any] = {name: place.words.get(f"sentinel_{name}") for name in ("username", "password")}
        kind: Any = Sentinel
        sentinel = kind(list(place.hosts), sentinel_kwargs={**socket, **words}, **socket)
        wire = _make_wire(place, lambda: sentinel.discover_master(place.master))
        return (wire.call, wire.listen), [wire, *sentinel.sentinels]
    host, port = place.hosts[0]

    async def address() -> tuple[str, int]:
        return host, port

    wire = _make_wire(place, address)
    return (wire.call, wire.listen), [wire]


async def _listen(driver: Any, channels: Sequence[str], hear: Hear) -> None:
    await driver.initialize()  # It does not know its nodes otherwise, if this is the first that it is asked for.
    hearing = driver.pubsub()
    try:
        await hearing.subscribe(*channels)
        hear(None)
        async for message in hearing.listen():
            if message["type"] == "message":
                hear(message["data"])
    finally:
        with suppress(Exception):
            await hearing.aclose()


def _make_wire(place: RedisUrl, address: Address) -> Wire:
    greetings: list[tuple[Word, ...]] = []
    if place.password is not None:
        greetings.append(("AUTH", *([place.username] if place.username else []), place.password))
    if place.database:
        greetings.append(("SELECT", place.database))
    return Wire(address, greetings, make_tls(place.words) if place.tls else None, place.timeout_s)
