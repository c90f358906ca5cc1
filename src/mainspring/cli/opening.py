"""From a command line to an app with an open store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mainspring.app import Mainspring
from mainspring.cli.session import Session
from mainspring.errors import NotFound
from mainspring.loading import load_app
from mainspring.urls import show_url
from mainspring.wiring import database_status

T = TypeVar("T")

OWNER = "cli"
"""The app that jobs added by hand belong to: not one of code, whose sync would call them undeclared."""


def open_app(session: Session, ref: str | None = None, **flags: object) -> Mainspring:
    """The app that `ref` names, or one without tasks, under the settings of this command line."""
    app = Mainspring(name=OWNER) if ref is None else load_app(ref)
    app.configure(store=session.store, **flags)
    return app


def with_app(
    session: Session,
    work: Callable[[Mainspring], Awaitable[T]],
    *,
    app: Mainspring | None = None,
    create: bool = False,
) -> T:
    """Do something with the store, and let go of it. A missing database is made only if `create` says so."""
    chosen = app or open_app(session)
    if not create:
        check_exists(chosen)

    async def do() -> T:
        try:
            return await work(chosen)
        finally:
            await chosen.close()

    return asyncio.run(do())


def check_exists(app: Mainspring) -> None:
    """Refuse to look into a database that nobody has made yet: an empty answer would hide a wrong path."""
    url = show_url(app.settings.store)
    if not database_status(app.settings).exists:
        raise NotFound(
            f"there is no database at {url} yet. `mainspring db migrate` makes one, and so do `up`, `job add` and "
            "`run submit`; if there is one elsewhere, name it with --store URL or MAINSPRING_STORE"
        )
