"""`mainspring token create` and `token revoke`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.opening import open_app, with_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.instants import DAY, format_instant, parse_duration
from mainspring.errors import InvalidInput
from mainspring.operations.jobs.options import check_name
from mainspring.sdk.app import Mainspring

ROLES = ("viewer", "submitter", "operator", "admin", "worker")
LONGEST = 400 * DAY
"""Equal to `api.auth.tokens.LONGEST_LIFE`; importing that would load all code that checks tokens."""


@click.command(cls=Verb)
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="What it allows; repeat for several.")
@click.option("--allow", "extras", multiple=True, metavar="PERMISSION", help="One permission more, e.g. run:command.")
@click.option("--subject", required=True, help="The holder's name: limits and the audit trail go by it.")
@click.option("--namespace", "namespaces", multiple=True, help="Where it holds; repeat for several, or * for all.")
@click.option("--expires", default="30d", show_default=True, metavar="DURATION", help="How long it is good.")
@click.pass_obj
def create(
    session: Session,
    roles: Sequence[str],
    extras: Sequence[str],
    subject: str,
    namespaces: Sequence[str],
    expires: str,
) -> None:
    """Make a token for the API, signed with the secret (MAINSPRING_SECRET), or by the file of `token_keys`.

    It is shown once and stored nowhere. Its id is what `mainspring token revoke` takes.
    """
    from mainspring.api.auth.tokens import MAKE_ONE, issue, load_keys

    if not roles and not extras:
        raise click.UsageError(f"Say what it allows: --role {'|'.join(ROLES)}.")
    app = open_app(session)
    keys = load_keys(app.settings)
    if keys is None:
        raise InvalidInput("secret", "", "cannot sign a token; a server without a secret asks for none", MAKE_ONE)
    lifetime = parse_duration(expires, "expires")
    if not 0 < lifetime <= LONGEST:
        raise InvalidInput("expires", expires, "is not a lifetime", "choose up to 400d")
    now = app.clock.now()
    where = namespaces or (app.settings.namespace,)
    granted = {namespace: [*roles, *extras] for namespace in where}
    token, token_id = issue(
        keys, app.settings, subject=check_name("subject", subject), roles=granted, lifetime=lifetime, now=now
    )
    screen = Screen(session)
    until = format_instant(now + lifetime)
    view = {"token": token, "token_id": token_id, "subject": subject, "roles": granted, "expires_at": until}
    screen.answer(view, lambda: click.echo(token))
    screen.hint(f"Token {token_id} for {subject}: {', '.join([*roles, *extras])} in {', '.join(where)}, until {until}.")


@click.command(cls=Verb)
@click.argument("token_id", required=False)
@click.option("--subject", help="All tokens that this subject got until now.")
@click.pass_obj
def revoke(session: Session, token_id: str | None, subject: str | None) -> None:
    """Make the token TOKEN_ID worthless, or all that a subject got until now. Every server knows within seconds."""
    named = {"jti": token_id, "sub": subject}
    names = [f"{prefix}:{value}" for prefix, value in named.items() if value]
    if not names:
        raise click.UsageError("Name a token by its id, or a subject with --subject.")

    async def act(app: Mainspring) -> None:
        store = await app.open()
        for name in names:
            await store.revoke(name, LONGEST)

    with_app(session, act)
    Screen(session).answer({"revoked": names}, lambda: None)
    Screen(session).hint(f"Revoked {', '.join(names)}.")
