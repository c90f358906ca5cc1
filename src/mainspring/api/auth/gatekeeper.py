"""Authentication: the caller is a token's bearer, or any process of this machine where no secret is set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from mainspring.api.auth.access import EVERYWHERE, PERMISSIONS, Caller
from mainspring.api.auth.session import read_cookie
from mainspring.api.auth.tokens import KeyWatch, is_loopback, unauthenticated
from mainspring.api.problems import Problem, retry_after
from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.errors import StoreError

FRESH: Duration = 5 * SECOND
"""How old the list of revocations may be before it is read again."""
STALE: Duration = 60 * SECOND
"""The greatest age of the list. Beyond it, every token is refused."""
REFRESH_S = 2.0
"""How long a request waits for the list to be read again."""

LOCAL = Caller("local", {EVERYWHERE: PERMISSIONS})


class Revoked:
    """Revoked tokens, as the store has them."""

    def __init__(self, read: Callable[[], Awaitable[Mapping[str, Instant]]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._known: Mapping[str, Instant] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def left_of(self, caller: Caller, *, without_store: bool = False) -> Caller | None:
        """The caller with what has not been revoked: a token by its id, or all earlier ones of a subject; everywhere,
        or in one namespace. None if nothing is left.

        `without_store`: while the store is unreachable, use the last list, however old it is. Nothing can be revoked
        meanwhile, since revoking writes to the same store; but this process alone may be cut off from it, so only
        answers that reveal little are served like that.
        """
        age = self._age()
        if age is None or age > FRESH:
            try:
                await self._refresh()
            except Problem:
                if not without_store:
                    raise
        if not self._known:
            return caller
        if self._includes("", caller):
            return None
        left = {name: may for name, may in caller.grants.items() if not self._includes(f"{name}\n", caller)}
        if len(left) == len(caller.grants):
            return caller
        return msgspec.structs.replace(caller, grants=left) if left else None

    def _includes(self, where: str, caller: Caller) -> bool:
        since = self._known.get(f"{where}sub:{caller.subject}")
        return f"{where}jti:{caller.token_id}" in self._known or (since is not None and caller.issued_at <= since)

    def _age(self) -> Duration | None:
        return None if self._read_at is None else round((self._clock.monotonic() - self._read_at) * SECOND)

    async def _refresh(self) -> None:
        async with self._reading:
            age = self._age()
            if age is not None and age <= FRESH:
                return
            began = self._clock.monotonic()
            try:
                async with asyncio.timeout(REFRESH_S):
                    self._known = await self._read()
                self._read_at = began
            except (StoreError, TimeoutError):
                if age is None or age > STALE:
                    detail = "it cannot be known whether the token has been revoked"
                    raise Problem("unavailable", detail, remedy="try again soon", headers=retry_after(1)) from None


class Gatekeeper:
    """Identifies the caller of a request."""

    def __init__(self, keys: KeyWatch | None, revoked: Revoked, now: Callable[[], Instant]) -> None:
        self._keys = keys
        self._revoked = revoked
        self._now = now

    async def identify(self, headers: Mapping[str, str], *, without_store: bool = False) -> Caller:
        """The caller; Problem if it cannot be identified."""
        if self._keys is None:
            return _local(headers)
        return await self._check(self._keys, _token_of(headers), without_store=without_store)

    async def identify_token(self, token: str) -> Caller:
        """The bearer of a token; Problem if the token is not valid, or the server uses none."""
        if self._keys is None:
            raise Problem(
                "conflict", "this server has no secret, and needs no sign-in", remedy="use it without a token"
            )
        return await self._check(self._keys, token)

    async def _check(self, keys: KeyWatch, token: str, *, without_store: bool = False) -> Caller:
        caller = keys.verifier().verify(token, self._now())
        left = await self._revoked.left_of(caller, without_store=without_store)
        if left is None:
            raise unauthenticated("the token has been revoked")
        return left


def _token_of(headers: Mapping[str, str]) -> str:
    """The token of a request: of its Authorization header or, only without one, of its session."""
    if "authorization" not in headers:
        session = read_cookie(headers)
        if session:
            return session
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise unauthenticated("there is no token")
    return token.strip()


def _local(headers: Mapping[str, str]) -> Caller:
    """A process of this machine may do everything. A web page in a browser on this machine may not: it is recognized by
    its origin or, if its own host name resolves to this machine, by that name.
    """
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    site = headers.get("sec-fetch-site", "none")
    if not is_loopback(name.lower()) or site not in ("none", "same-origin"):
        raise _stranger()
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        raise _stranger()
    return LOCAL


def _stranger() -> Problem:
    remedy = "call it as 127.0.0.1 or localhost, from no web page; or set a secret and use tokens"
    return Problem("forbidden", "without a secret, the API serves programs on this machine only", remedy=remedy)
