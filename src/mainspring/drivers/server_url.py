"""What a URL of a server says: hosts, credentials, a path and options, each checked.

scheme://user:password@host1:port,host2/path?option=value
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from mainspring.core.instants import SECOND, parse_duration
from mainspring.errors import BackendUnavailable, InvalidInput
from mainspring.process.urls import show_url

TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")


class ServerUrl(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a URL. Options with wrong values are refused when they are read."""

    field: str
    """The setting that the URL was written in, for errors."""
    shown: str
    """The URL without its password."""
    scheme: str
    hosts: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = None
    path: str = ""
    options: Mapping[str, str] = {}

    def refuse(self, problem: str, remedy: str) -> InvalidInput:
        """The error to raise for something in this URL."""
        return InvalidInput(self.field, self.shown, problem, remedy)

    def choice(self, option: str, choices: Collection[str], default: str) -> str:
        """The value of an option that is one of a few words."""
        chosen = self.options.get(option, default)
        if chosen not in choices:
            raise self.refuse(f"has {option}={chosen!r}", f"write one of {', '.join(choices)}")
        return chosen

    def number(self, option: str, default: int, *, least: int = 1, most: int = 1_000_000) -> int:
        """The value of an option that is a whole number within bounds."""
        written = self.options.get(option, str(default))
        if not (written.isascii() and written.isdecimal() and least <= int(written) <= most):
            raise self.refuse(f"has {option}={written!r}", f"write a whole number from {least} to {most}")
        return int(written)

    def seconds(self, option: str, default: str) -> float:
        """The value of an option that is a duration, such as 250ms."""
        return parse_duration(self.options.get(option, default), f"{self.field}: {option}") / SECOND


class ServerLink:
    """A server or cluster, as its URL names it. What fails there is raised as `unavailable`, and names it."""

    errors: ClassVar[tuple[type[Exception], ...]]
    """What the library raises about the server."""

    def __init__(self, url: ServerUrl, unavailable: type[BackendUnavailable], timeout: str) -> None:
        """`timeout`: how long an answer may take, unless the URL says otherwise."""
        self.url = url
        self.timeout_s = url.seconds("timeout", timeout)
        self._unavailable = unavailable

    def unavailable(self, why: str) -> BackendUnavailable:
        """The error that says why the server could not do it."""
        return self._unavailable(f"{self.url.shown}: {why}")

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """What the body raises about the server is raised as unavailable."""
        try:
            yield
        except self.errors as error:
            raise self.unavailable(describe(error)) from error


def read_server_url(url: str, field: str, *, port: int, options: Collection[str]) -> ServerUrl:
    """The parts of a URL. `port` is that of hosts without one; options that are not in `options` are refused."""
    scheme, _, rest = url.partition("://")
    parts = urlsplit(f"//{rest}")
    user, _, where = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    known = ServerUrl(
        field=field,
        shown=show_url(url),
        scheme=scheme,
        hosts=tuple(_read_host(url, field, each, port) for each in where.split(",")),
        username=unquote(name) or None,
        password=unquote(password) or None,
        path=unquote(parts.path.removeprefix("/")),
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )
    for option in known.options.keys() - set(options):
        raise known.refuse(f"has an option {option!r}", f"the options are {', '.join(sorted(options))}")
    return known


def _read_host(url: str, field: str, written: str, port: int) -> tuple[str, int]:
    with suppress(ValueError):
        parts = urlsplit(f"//{written}")
        if parts.hostname:
            return parts.hostname, parts.port or port
    raise InvalidInput(field, show_url(url), f"names no host: {written!r}", f"write host:{port}")


def make_tls(options: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS settings that the options of a URL ask for."""
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if (certificate := options.get("ssl_certfile")) is not None:
        context.load_cert_chain(certificate, options.get("ssl_keyfile"))
    return context


def describe(error: Exception) -> str:
    """What an error of a driver says, for people. Many timeouts say nothing."""
    return str(error).strip() or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
