"""The session of a browser: a token in a cookie that scripts cannot read, and the checks that make it count.

The server keeps no state: the cookie is the token. So every server understands it, and a revocation ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainspring.api.auth.tokens import LEEWAY, unauthenticated
from mainspring.api.problems import Problem
from mainspring.core.instants import SECOND, Instant

UI_HEADER: Final = "mainspring-ui"
"""A page of another origin cannot add it to a request: the server allows no origin to do so (CORS)."""
SECURE_COOKIE: Final = "__Host-mainspring"
PLAIN_COOKIE: Final = "mainspring"
"""Over plain HTTP, where browsers refuse a `__Host-` cookie."""
LONGEST_COOKIE: Final = 3_800
"""Browsers store at most 4096 bytes of a cookie, with its name and attributes."""


def check_same_origin(headers: Mapping[str, str]) -> None:
    """Problem unless the request comes from a page of this server."""
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    is_own_origin = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
    is_own_site = headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if headers.get(UI_HEADER) != "1" or not is_own_origin or not is_own_site:
        remedy = "send `Mainspring-UI: 1` from a page of this server, or a token as `Authorization: Bearer TOKEN`"
        raise Problem("forbidden", "a session is only for pages of this server", remedy=remedy)


def read_cookie(headers: Mapping[str, str]) -> str | None:
    """The token of the session, if the request has one that counts.

    A cookie counts only with the header of the UI and from this origin: browsers add cookies to requests that foreign
    pages make. Otherwise the request is treated as one without a token.
    """
    if "cookie" not in headers:
        return None
    try:
        check_same_origin(headers)
    except Problem:
        return None
    pairs = [pair.strip().partition("=") for pair in headers["cookie"].split(";")]
    for name in (SECURE_COOKIE, PLAIN_COOKIE):
        found = [value for key, _, value in pairs if key == name]
        if len(found) > 1:
            # A neighbouring host may have added one: the server cannot know which of them is its own.
            raise unauthenticated(f"the cookie {name} was sent more than once")
        if found:
            return found[0]
    return None


def session_cookie(headers: Mapping[str, str], token: str, expires_at: Instant, now: Instant) -> str:
    """The header that begins a session; Problem if the token does not fit a cookie."""
    if len(token) > LONGEST_COOKIE:
        detail = f"the token has {len(token)} characters, and a cookie holds {LONGEST_COOKIE}"
        raise Problem("too-large", detail, remedy="make a token with fewer namespaces and roles")
    return _cookie(headers, token, max(expires_at + LEEWAY - now, 0) // SECOND)


def ended_cookie(headers: Mapping[str, str]) -> str:
    """The header that ends a session in the browser."""
    return _cookie(headers, "", 0)


def _cookie(headers: Mapping[str, str], value: str, max_age_s: int) -> str:
    is_plain = headers.get("origin", "").lower().startswith("http://")
    name, secure = (PLAIN_COOKIE, "") if is_plain else (SECURE_COOKIE, "; Secure")
    return f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"
