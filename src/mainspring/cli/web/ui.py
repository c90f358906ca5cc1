"""`mainspring ui`: open the web UI, signed in."""

from __future__ import annotations

import getpass
import html
import os
import webbrowser
from pathlib import Path
from typing import Final

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.opening import open_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.instants import HOUR
from mainspring.sdk.app import Mainspring

LIFETIME: Final = 12 * HOUR
"""A working day: the browser keeps the token until it expires."""
ROLES: Final = ("viewer", "submitter", "operator", "admin")


@click.command(cls=Verb)
@click.option("--role", type=click.Choice(ROLES), default="admin", show_default=True, help="What the session allows.")
@click.option("--print", "only_print", is_flag=True, help="Print the address, and open no browser.")
@click.pass_obj
def ui(session: Session, role: str, only_print: bool) -> None:
    """Open the web UI in the browser, signed in for 12 hours.

    The server is MAINSPRING_PUBLIC_URL, MAINSPRING_SERVER, or the one of this machine. The browser gets
    MAINSPRING_TOKEN; without one, the secret (MAINSPRING_SECRET) signs a new token. A server without a secret
    needs none.
    """
    app = open_app(session)
    token = app.settings.token or _issue(app, role)
    login = f"/login#token={token}" if token else "/"
    address = f"{_base(app)}/ui{login}"
    screen = Screen(session)
    if only_print or session.as_json:
        screen.answer({"address": address}, lambda: click.echo(address))
        return
    screen.hint(f"Opening {_base(app)}/ui/")
    if not webbrowser.open(_private(address) if token else address):
        screen.warn("no browser could be started: `mainspring ui --print` prints the address")


def _private(address: str) -> str:
    """The address of a file that only this user can read, and that leads to the address.

    Every user of the machine can read the browser's command line, and the address holds a token. The next call replaces
    the file: a browser may start slowly, so this one cannot remove it.
    """
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache") / "mainspring"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "sign-in.html"
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as page:
        page.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
    return file.as_uri()


def _base(app: Mainspring) -> str:
    settings = app.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    served = (settings.server or f"http://{host}:{settings.port}{settings.base_path}").split(",")[0]
    return (settings.public_url or served).rstrip("/")


def _issue(app: Mainspring, role: str) -> str | None:
    from mainspring.api.auth.tokens import issue, load_keys

    keys = load_keys(app.settings)
    if keys is None:
        return None
    granted = {app.settings.namespace: [role]}
    subject = getpass.getuser()
    token, _ = issue(keys, app.settings, subject=subject, roles=granted, lifetime=LIFETIME, now=app.clock.now())
    return token
