"""Idempotency keys: the same key and body get the same answer, however often they are sent, and to which server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import blake2b

import msgspec

from mainspring.api.endpoint import Response, Stamp
from mainspring.api.problems import Problem, retry_after
from mainspring.core.instants import DAY, SECOND, Duration
from mainspring.errors import Conflict, MainspringError, StoreError
from mainspring.operations.jobs.options import LONGEST_NAME
from mainspring.store import Reply, Store

HOLD: Duration = 5 * SECOND
"""If the server that computes an answer is silent for this long, the next server that gets the key computes it. Shorter
than a client's timeout. If the first server is only slow, both compute the same."""
KEEP: Duration = DAY


def fresh_stamp() -> Stamp:
    """The stamp of a request without an idempotency key."""
    return Stamp(None, "", 0)


async def answer_once(
    store: Store, scope: str, key: str, request: bytes, act: Callable[[Stamp], Awaitable[Response]]
) -> Response:
    """The answer to a key: the one that it got before, or a new one that is kept if it is a success.

    A server that dies half-way leaves its key to the next; that one makes the same ids, and so nothing twice.
    """
    if not (0 < len(key) <= LONGEST_NAME and key.isprintable()):
        remedy = f"use 1 to {LONGEST_NAME} printable characters"
        raise Problem("bad-request", "the Idempotency-Key cannot be used", remedy=remedy)
    fingerprint = blake2b(request, digest_size=16).hexdigest()
    try:
        reserved = await store.reserve_reply(scope, key, fingerprint, hold=HOLD, keep=KEEP)
    except Conflict as error:
        raise Problem("idempotency-conflict", str(error), remedy="use a new key for each new request") from None
    if reserved.reply is not None:
        headers, body = _unpack(reserved.reply.body)
        return Response(reserved.reply.status, body, {**headers, "Idempotency-Replayed": "true"})
    if reserved.busy:
        detail = f"a request with the key {key!r} is being worked on"
        raise Problem("in-progress", detail, remedy="ask again soon", headers=retry_after(1))
    try:
        answer = await act(Stamp(key, f"{scope}\0{key}\0{fingerprint}", reserved.since))
    except (Problem, MainspringError) as error:
        # A refusal leaves nothing. But what a store did that did not answer is unknown: then the key stays,
        # and the next request with it, once the hold is over, makes the same.
        if not isinstance(error, StoreError):
            await store.keep_reply(scope, key, fingerprint, None)
        raise
    await store.keep_reply(scope, key, fingerprint, Reply(answer.status, _pack(answer)), keep=KEEP)
    return answer


def _pack(answer: Response) -> str:
    """What is kept of an answer: the headers that describe what was made, on a line before the body."""
    kept = {name: value for name, value in answer.headers.items() if name in ("Location", "ETag")}
    return (msgspec.json.encode(kept) + b"\n" + answer.encode()).decode()


def _unpack(text: str) -> tuple[dict[str, str], bytes]:
    headers, _, body = text.partition("\n")
    return msgspec.json.decode(headers, type=dict[str, str]), body.encode()
