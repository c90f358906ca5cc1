"""The audit trail, and the tokens that are revoked."""

from __future__ import annotations

from mainspring.api.auth.access import EVERYWHERE
from mainspring.api.auth.tokens import LONGEST_LIFE
from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.bodies import RevokeBody
from mainspring.api.schemas.paging import limit_of, page, read_number
from mainspring.api.schemas.queries import AuditQuery, PageQuery
from mainspring.operations import records
from mainspring.operations.audit import Audit, Revoked


async def list_audit(request: Request) -> Response:
    """The audit trail of a namespace, newest first."""
    trail, words = Audit(Acting(request).context), asked(request)
    return page(await trail.page(**words, before=read_number(request.query), limit=limit_of(request.query)))


async def list_versions(request: Request) -> Response:
    """The changes of a job that were made over the API, newest first, each with the definition before and after it."""
    trail, job = Audit(Acting(request).context), request.named("job_id")
    await request.context.store.get_job(request.namespace, job)  # That there is no such job matters most.
    return page(await trail.page_of_job(job, before=read_number(request.query), limit=limit_of(request.query)))


async def revoke_tokens(request: Request) -> Response:
    """Revoke tokens, on every server within seconds: one by its id, or all that a subject got until now. What they
    allow in other namespaces stays, unless the caller may revoke tokens in every namespace."""
    names = [
        f"{prefix}:{request.given[field]}"
        for field, prefix in (("token_id", "jti"), ("subject", "sub"))
        if field in request.given
    ]
    if not names and not request.wrong.faults:
        request.wrong.add("token_id", "is missing", "give a token_id, a subject, or both")
    request.wrong.settle()
    context, store = Acting(request).context, request.context.store
    where = "" if request.caller.may("tokens:write", EVERYWHERE) else f"{request.namespace}\n"
    for name in names:
        await store.revoke(where + name, LONGEST_LIFE, audit=context.audit("token.revoke", name))
    return Response(200, Revoked(names))


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/audit", list_audit, "audit:read", "Changes: what, when, and by which caller.",
        {200: records.Page[records.Change]}, query=AuditQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/versions", list_versions, "jobs:read", "The changes of a job, each with its caller.",
        {200: records.Page[records.Change]}, query=PageQuery, history=True,
    ),
    Endpoint(
        "POST", "/v1/tokens:revoke", revoke_tokens, "tokens:write", "Make tokens worthless.",
        {200: Revoked}, RevokeBody, rule={"anyOf": [{"required": ["token_id"]}, {"required": ["subject"]}]},
        example={"subject": "ann"},
    ),
)  # fmt: skip
