"""From a command line to an app with an open store, or to a scheduler: operations on a store, or a server's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click

from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.core.model import DEFAULT
from mainspring.core.runs.retry import Retry
from mainspring.errors import NotFound, StoreUnavailable
from mainspring.operations.operations import Operations
from mainspring.sdk.app import Mainspring
from mainspring.sdk.loading import load_app
from mainspring.wiring import database_status, describe_store, sqlite_file

if TYPE_CHECKING:
    from mainspring.client.client import Client

T = TypeVar("T")
Backend: TypeAlias = "Operations | Client"
"""What a command talks to. Both have the same verbs with the same answers, so a command looks the same against both."""

PATIENCE = Retry(2, delay="100ms", factor=3.0, cap="20s", jitter=0.5)
"""A person waits: give up after half a second, unless a server asks for more."""

OWNER = "cli"
"""The app that jobs added by commands belong to. No code declares it, so that no sync calls them undeclared."""
OWNERS = (OWNER, "api")
"""The apps of jobs added by a command or over HTTP."""


def open_app(session: Session, ref: str | None = None, **flags: object) -> Mainspring:
    """The app that `ref` names, or one without tasks, under the settings of this command line."""
    if ref is not None:
        app = load_app(ref)
    else:
        app = Mainspring(name=OWNER) if session.app is None else load_app(session.app).without_tasks(OWNER)
    app.job_origin = "cli"
    where = {"store": session.store, "server": session.server, "token": session.token, "namespace": session.namespace}
    app.configure(**where, **flags)
    return app


def with_app(
    session: Session,
    work: Callable[[Mainspring], Awaitable[T]],
    *,
    app: Mainspring | None = None,
    create: bool = False,
) -> T:
    """Do something with the store, and close it. A missing database is made only if `create` says so."""
    chosen = app or open_app(session)
    if not create:
        check_exists(chosen)

    async def do() -> T:
        try:
            return await work(chosen)
        finally:
            await chosen.close()

    return asyncio.run(do())


def with_scheduler(
    session: Session,
    work: Callable[[Backend], Awaitable[T]],
    *,
    app: Mainspring | None = None,
    create: bool = False,
) -> T:
    """Do something with the scheduler that the command line names: on a server, or on the store."""
    chosen = app or open_app(session)
    served = is_served(session, chosen)
    if not (served or create):
        check_exists(chosen)

    async def do() -> T:
        scheduler: Backend = _client(chosen) if served else Operations(chosen, by="hand")
        try:
            await scheduler.open()
            return await work(scheduler)
        finally:
            await scheduler.close()

    return asyncio.run(do())


def show_answer(
    session: Session,
    ask: Callable[[Backend], Awaitable[T]],
    draw: Callable[[Screen, T, Instant], None],
    *,
    create: bool = False,
) -> None:
    """Ask the scheduler something, and show the answer: as JSON, or as `draw` draws it with the scheduler's time."""

    async def look(scheduler: Backend) -> tuple[T, Instant]:
        return await ask(scheduler), scheduler.now()

    answer, now = with_scheduler(session, look, create=create)
    screen = Screen(session)
    screen.answer(answer, lambda: draw(screen, answer, now))


async def collect(items: AsyncIterable[T]) -> list[T]:
    """The items of a list that is read page by page."""
    return [item async for item in items]


def is_served(session: Session, app: Mainspring) -> bool:
    """Whether a server is asked, not the store. A flag overrides the environment."""
    if session.store is not None and session.server is not None:
        raise click.UsageError("Name a database with --store or a server with --server, not both.")
    return app.settings.server is not None and session.store is None


def _client(app: Mainspring) -> Client:
    from mainspring.client.client import Client

    settings = app.settings
    namespace = None if settings.namespace == DEFAULT else settings.namespace
    return Client(settings.server or "", settings.token, namespace=namespace, retry=PATIENCE)


def check_made(app: Mainspring) -> None:
    """StoreUnavailable if the file of the database does not exist: a worker in the wrong folder must not make another
    one, and wait in it for ever."""
    file = sqlite_file(app.settings)
    if file is not None and not file.exists():
        raise StoreUnavailable(
            f"there is no database {file}: `mainspring up` and `server` make it. If it is elsewhere, change to its "
            "folder, or name it with --store URL or MAINSPRING_STORE"
        )


def check_exists(app: Mainspring) -> None:
    """NotFound if the database does not exist yet: an empty answer would hide a wrong path."""
    if not database_status(app.settings).exists:
        raise NotFound(
            f"there is no database at {describe_store(app.settings)} yet. `mainspring db migrate` makes one, and so do "
            "`up`, `job add` and `run submit`; if there is one elsewhere, name it with --store URL or MAINSPRING_STORE"
        )
