"""A URL that names several servers of one cluster: `scheme://user:password@host1:port,host2/path?option=value`."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from mainspring.core.instants import SECOND, parse_duration
from mainspring.errors import InvalidInput
from mainspring.process.urls import show_url

TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL says."""

    shown: str
    """The URL without its password."""
    hosts: tuple[tuple[str, int], ...]
    tls: bool
    username: str | None
    password: str | None
    path: str
    """Without slashes at its ends; empty if the URL has none."""
    timeout_s: float
    options: Mapping[str, str]


def read_address(url: str, field: str, *, scheme: str, port: int, options: Collection[str], timeout: str) -> Address:
    """Read a URL of `scheme`, or of the scheme with an `s` for TLS. `field` is the setting that holds it, `timeout` the
    default of the option of that name. InvalidInput says what is wrong with the URL."""
    given, separator, rest = url.partition("://")
    if not separator or given not in (scheme, scheme + "s"):
        raise InvalidInput(field, show_url(url), f"is no URL of {scheme}", f"write {scheme}://host:{port}")
    parts = urlsplit(f"//{rest}")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    allowed = ("timeout", *options, *TLS_OPTIONS)
    words = dict(parse_qsl(parts.query))
    for word in words.keys() - set(allowed):
        raise InvalidInput(field, show_url(url), f"has an option {word!r}", f"the options are {', '.join(allowed)}")
    return Address(
        shown=show_url(url),
        hosts=tuple(_read_host(url, field, each, port) for each in hosts.split(",")),
        tls=given.endswith("s"),
        username=unquote(username) or None,
        password=unquote(password) or None,
        path=unquote(parts.path.strip("/")),
        timeout_s=parse_duration(words.get("timeout", timeout), f"{field}: timeout") / SECOND,
        options=words,
    )


def _read_host(url: str, field: str, written: str, port: int) -> tuple[str, int]:
    with suppress(ValueError):
        parts = urlsplit(f"//{written}")
        if parts.hostname:
            return parts.hostname, parts.port or port
    raise InvalidInput(field, show_url(url), f"names no host: {written!r}", f"write host:{port}")


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """TLS as the options of a URL ask for it: authorities, a certificate of the client, `ssl_cert_reqs=none`."""
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if (certificate := options.get("ssl_certfile")) is not None:
        context.load_cert_chain(certificate, options.get("ssl_keyfile"))
    return context
