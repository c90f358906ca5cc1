"""The audit trail: each change with who made it, what it was before and what it is after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mainspring.api.auth.access import EVERYWHERE
from mainspring.api.auth.tokens import LONGEST_LIFE
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.schemas.bodies import RevokeBody
from mainspring.api.schemas.paging import limit_of, page, read_number
from mainspring.api.schemas.queries import AuditQuery
from mainspring.operations import records
from mainspring.operations.views import change_view
from mainspring.store import Audit, Change


def audit_of(
    call: Call,
    action: str,
    target: str,
    before: Mapping[str, object] | None = None,
    after: Callable[[Any], Mapping[str, object] | None] = lambda _: None,
) -> Audit[Any]:
    """The audit row of a change that the caller makes: the store commits it with the change, or not at all. `after`
    shows the store's answer."""

    def audit(answer: Any) -> list[Change]:
        shown = after(answer)
        return [
            Change(
                namespace=call.namespace,
                subject=call.caller.subject,
                action=action,
                target=target,
                before=None if before is None else msgspec.json.encode(before).decode(),
                after=None if shown is None else msgspec.json.encode(shown).decode(),
                request_id=call.request_id,
            )
        ]

    return audit


async def list_audit(call: Call) -> Answer:
    """The audit trail of a namespace, newest first."""
    words = {name: call.query[name] for name in ("subject", "target") if name in call.query}
    limit = limit_of(call.query)
    found = await call.desk.store.list_changes(call.namespace, before=read_number(call.query), limit=limit + 1, **words)
    following = str(found[limit - 1][0]) if len(found) > limit else None
    return page([change_view(number, change) for number, change in found[:limit]], following)


async def revoke_tokens(call: Call) -> Answer:
    """Make tokens worthless, on every server within seconds: one by its id, or all that a subject got until now. What
    they allow in other namespaces stays, unless the caller may do this in every namespace."""
    names = [
        f"{prefix}:{call.given[field]}"
        for field, prefix in (("token_id", "jti"), ("subject", "sub"))
        if field in call.given
    ]
    if not names and not call.wrong.faults:
        call.wrong.add("token_id", "is missing", "give a token_id, a subject, or both")
    call.wrong.settle()
    where = "" if call.caller.may("tokens:write", EVERYWHERE) else f"{call.namespace}\n"
    for name in names:
        await call.desk.store.revoke(where + name, LONGEST_LIFE, audit=audit_of(call, "token.revoke", name))
    return Answer(200, {"revoked": names})


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/audit", list_audit, "audit:read", "Who changed what.",
        {200: records.Page[records.Change]}, query=AuditQuery, history=True,
    ),
    Endpoint(
        "POST", "/v1/tokens:revoke", revoke_tokens, "tokens:write", "Make tokens worthless.",
        {200: records.Revoked}, RevokeBody, rule={"anyOf": [{"required": ["token_id"]}, {"required": ["subject"]}]},
        example={"subject": "ann"},
    ),
)  # fmt: skip
