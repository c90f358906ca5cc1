"""The caller and its session: its name, its permissions, and signing in and out with a browser."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mainspring.api.auth.access import EVERYWHERE, Caller
from mainspring.api.auth.gatekeeper import LOCAL
from mainspring.api.auth.session import check_same_origin, ended_cookie, session_cookie
from mainspring.api.auth.tokens import LONGEST_TOKEN
from mainspring.api.endpoint import AUTHENTICATED, PUBLIC, Endpoint, Request, Response
from mainspring.core.instants import to_datetime
from mainspring.operations.installation import Me
from mainspring.version import VERSION


class SessionBody(msgspec.Struct, forbid_unknown_fields=True):
    """The token that a session is made of."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TOKEN, description="a token of this server")]


async def get_me(request: Request) -> Response:
    """The caller, its namespaces and permissions, and when its token expires."""
    caller = request.caller
    home = caller.home(request.context.settings.namespace)
    names = sorted({name for name in caller.grants if name != EVERYWHERE} | ({home} & _reachable(caller, home)))
    shown = [*names, *([EVERYWHERE] if EVERYWHERE in caller.grants else [])]
    me = Me(
        subject=caller.subject,
        open=caller is LOCAL,
        home=home,
        namespaces=names,
        permissions={name: _permissions(caller, name) for name in shown},
        expires_at=None if caller.expires_at is None else to_datetime(caller.expires_at),
        version=VERSION,
    )
    return Response(200, me)


def _reachable(caller: Caller, home: str) -> set[str]:
    return {home} if home in caller.grants or EVERYWHERE in caller.grants else set()


def _permissions(caller: Caller, namespace: str) -> list[str]:
    return sorted(caller.grants.get(namespace, frozenset()) | caller.grants.get(EVERYWHERE, frozenset()))


async def begin_session(request: Request) -> Response:
    """Exchange a token for a cookie that scripts cannot read. Only for pages of this server."""
    check_same_origin(request.headers)
    request.wrong.settle()
    token = request.given["token"].strip()
    gatekeeper, now = request.context.gatekeeper, request.context.app.clock.now()
    caller = await gatekeeper.identify_token(token)
    assert caller.expires_at is not None, "every token expires"
    return Response(204, headers={"Set-Cookie": session_cookie(request.headers, token, caller.expires_at, now)})


async def end_session(request: Request) -> Response:
    """Remove the cookie. The token itself stays valid until it expires or is revoked."""
    check_same_origin(request.headers)
    return Response(204, headers={"Set-Cookie": ended_cookie(request.headers)})


ENDPOINTS = (
    Endpoint("GET", "/v1/me", get_me, AUTHENTICATED, "The caller and its permissions.", {200: Me}),
    Endpoint(
        "POST", "/v1/session", begin_session, PUBLIC, "Sign in with a browser.", {204: None}, SessionBody,
        problems=(401, 403), example={"token": "eyJhbGciOi…"},
    ),
    Endpoint(
        "DELETE", "/v1/session", end_session, PUBLIC, "Sign out with a browser.", {204: None}, problems=(403,),
    ),
)  # fmt: skip
