"""What an endpoint is: a method, a path, a permission, its input, its answers. One row per endpoint, and nothing is
served that has no row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from mainspring.api.auth.access import Caller, Permission
from mainspring.api.load.limits import DEFINE, Operation
from mainspring.api.problems import Problem, Wrong
from mainspring.api.wire.decoding import Given
from mainspring.core.ids import encode_bits, encode_time
from mainspring.core.instants import Instant
from mainspring.operations.jobs.options import LONGEST_NAME

if TYPE_CHECKING:
    from mainspring.api.context import ApiContext

PUBLIC: Literal["public"] = "public"
"""Needs no token."""
AUTHENTICATED: Literal["authenticated"] = "authenticated"
"""Needs a token, whatever it allows."""

JSON = "application/json"


class Response(NamedTuple):
    """What an endpoint answers."""

    status: int
    body: object = None
    """Bytes are sent unchanged, everything else as JSON."""
    headers: Mapping[str, str] = {}
    media_type: str = JSON
    stream: AsyncIterator[bytes] | None = None
    """Sent chunk by chunk instead of the body."""
    release: Callable[[], object] = lambda: None
    """Called once the response has been sent, or its reader has left."""

    def encode(self) -> bytes:
        """The body as it is sent."""
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else msgspec.json.encode(self.body)


class Stamp(NamedTuple):
    """The source of the ids that a request assigns. The same idempotency key gives the same ids again."""

    key: str | None
    seed: str
    since: Instant

    def ids(self, count: int, fresh: Callable[[int], list[str]]) -> list[str]:
        """Ids for new things, in order."""
        if self.key is None:
            return fresh(count)
        time = encode_time(self.since)
        return [time + encode_bits(_number(f"{self.seed}\0{index}"), 16) for index in range(count)]


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=10).digest(), "big")


class Request(NamedTuple):
    """A request that an endpoint may serve: authorized, admitted and decoded."""

    context: ApiContext
    caller: Caller
    namespace: str
    parameters: Mapping[str, str]
    """The parameters of the path."""
    query: Given
    body: bytes
    given: Given
    """The fields of the body, typed."""
    wrong: Wrong
    """What is wrong with the others."""
    headers: Mapping[str, str]
    request_id: str
    stamp: Stamp
    gone: Callable[[], bool] = lambda: False
    """Whether the caller of a long poll has left."""

    def need(self, permission: Permission) -> None:
        """Refuse the request unless the caller has one more permission."""
        if not self.caller.may(permission, self.namespace):
            raise forbidden(permission, self.namespace)

    async def spend(self, cost: int) -> dict[str, str]:
        """Take an amount from the caller's submission budget; returns the headers that show the rest. Problem if the
        budget is used up."""
        rate = self.caller.rate(self.namespace, self.context.settings.submit_rate, self.context.rates)
        return await self.context.limits.spend(self.caller.subject, cost, rate)

    async def spend_definitions(self, cost: int, operation: Operation = DEFINE) -> dict[str, str]:
        """As `spend`, for the jobs that the caller creates, declares or edits, and for calendars and workers."""
        return await self.context.limits.spend(self.caller.subject, cost, self.context.settings.job_rate, operation)

    def named(self, part: str) -> str:
        """A parameter of the path. Problem (404) if it cannot be a name or an id."""
        text = self.parameters[part]
        if not text.isprintable() or len(text) > LONGEST_NAME:
            raise Problem("not-found", "there is nothing of that name")
        return text


def forbidden(permission: str, namespace: str) -> Problem:
    """The answer to a known caller without the permission."""
    detail = f"this needs the permission {permission} in namespace {namespace}"
    return Problem("forbidden", detail, remedy="ask for a token with that permission, or with a role that has it")


def unless_dry_run(given: Given) -> bool:
    """Whether a body asks for more than to look. For `Endpoint.grows`."""
    return not given.get("dry_run")


class Endpoint(NamedTuple):
    """One row of the table."""

    method: str
    path: str
    act: Callable[[Request], Awaitable[Response]]
    permission: Permission | Literal["public", "authenticated"]
    summary: str
    answers: Mapping[int, Any]
    """The successes: status to what is in the body; None for nothing, a text for another media type than JSON."""
    body: type[msgspec.Struct] | None = None
    needs_body: bool = True
    query: type[msgspec.Struct] | None = None
    ignores_query: bool = False
    """A page, whose query is for its scripts. All other endpoints refuse a query that they do not know."""
    problems: tuple[int, ...] = ()
    """Statuses of refusals beyond those that every endpoint may answer with."""
    grows: bool | Callable[[Given], bool] = False
    """Adds work: refused under the highest level of pressure. Where that depends on the body: whether this one does."""
    history: bool = False
    """Reads history: slowed down under pressure."""
    patient: bool = False
    """A long poll or a stream: it waits on purpose."""
    vital: bool = False
    """Health and metrics: served without a capacity slot, so that they answer when all slots are taken, and without the
    store, so that they answer while it is unreachable."""
    rule: Mapping[str, object] | None = None
    """Rules between fields of the body that its type cannot express, as JSON Schema."""
    example: Mapping[str, object] | None = None
    description: str = ""

    @property
    def operation_id(self) -> str:
        """A name for generated clients."""
        return self.act.__name__.strip("_")
