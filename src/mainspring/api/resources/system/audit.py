"""The audit trail, and the tokens that are revoked."""

from __future__ import annotations

from mainspring.api.auth.access import EVERYWHERE
from mainspring.api.auth.tokens import LONGEST_LIFE
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.bodies import RevokeBody
from mainspring.api.schemas.paging import limit_of, page, read_number
from mainspring.api.schemas.queries import AuditQuery
from mainspring.operations import records
from mainspring.operations.audit import Audit


async def list_audit(call: Call) -> Answer:
    """The audit trail of a namespace, newest first."""
    words = {name: call.query[name] for name in ("subject", "target") if name in call.query}
    trail = Audit(Acting(call).context)
    return page(await trail.page(**words, before=read_number(call.query), limit=limit_of(call.query)))


async def revoke_tokens(call: Call) -> Answer:
    """Revoke tokens, on every server within seconds: one by its id, or all that a subject got until now. What they
    allow in other namespaces stays, unless the caller may revoke tokens in every namespace."""
    names = [
        f"{prefix}:{call.given[field]}"
        for field, prefix in (("token_id", "jti"), ("subject", "sub"))
        if field in call.given
    ]
    if not names and not call.wrong.faults:
        call.wrong.add("token_id", "is missing", "give a token_id, a subject, or both")
    call.wrong.settle()
    context, store = Acting(call).context, call.desk.store
    where = "" if call.caller.may("tokens:write", EVERYWHERE) else f"{call.namespace}\n"
    for name in names:
        await store.revoke(where + name, LONGEST_LIFE, audit=context.audit("token.revoke", name))
    return Answer(200, records.Revoked(names))


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
