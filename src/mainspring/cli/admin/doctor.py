"""`mainspring doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import click

from mainspring.adapter import WITHOUT, AdapterContext, open_adapter
from mainspring.broker import Place
from mainspring.cli.lazy import Verb
from mainspring.cli.opening import open_app
from mainspring.cli.output.errors import FAILED
from mainspring.cli.output.screen import Cell, Screen
from mainspring.cli.session import Session
from mainspring.errors import StoreMismatch, StoreRefused
from mainspring.operations.doctor import (
    Finding,
    Seen,
    examine,
    look_at_adapter,
    look_at_broker,
    look_at_cache,
    look_at_lease,
    look_at_sink,
)
from mainspring.process.urls import show_url
from mainspring.sdk.app import Mainspring
from mainspring.wiring import database_status

_STYLES = {"good": "green", "warning": "yellow", "failed": "red", "unused": "dim"}


@click.command(cls=Verb)
@click.option("--broker", help="Look at this broker instead of the one of the settings.")
@click.option("--lease", help="Look at this lease instead of the one of the settings.")
@click.option("--cache", help="Look at this status cache instead of the one of the settings.")
@click.option("--sink", help="Look at these sinks instead of those of the settings.")
@click.pass_obj
def doctor(session: Session, broker: str | None, lease: str | None, cache: str | None, sink: str | None) -> int:
    """Check that the store, broker, lease, cache and sinks of the settings work, and say what to do if one does not.

    It shows the version of each server as far as the server states it, looks for missing permissions, and compares
    clocks. Nothing is created in the store. A broker is given one message that names no run, and workers ignore it; a
    cache is given an entry that expires after a second. A broker or sink may create its queues or topics.
    """
    app, screen = open_app(session, broker=broker, lease=lease, cache=cache, sink=sink), Screen(session)
    findings = asyncio.run(_examine_all(app))
    screen.answer(findings, lambda: _draw(screen, findings))
    return FAILED if any(each.state == "failed" for each in findings) else 0


async def _examine_all(app: Mainspring) -> list[Finding]:
    settings = app.settings
    findings = await examine("store", show_url(settings.store), partial(_look_at_store, app))
    place = Place(settings.namespace, (settings.queues or app.queues())[0], settings.regions[0])
    looks: dict[str, Callable[[Any], Awaitable[str]]] = {
        "broker": partial(look_at_broker, place=place),
        "lease": look_at_lease,
        "cache": look_at_cache,
        "sink": look_at_sink,
    }
    context = AdapterContext(settings, app.clock)
    for part, look in looks.items():
        urls = (getattr(settings, part) or "").split()
        if not urls:
            findings.append(Finding(part=part, state="unused", detail=f"none is named: {WITHOUT[part]}"))
        for url in urls:
            open_it = partial(open_adapter, part, url, context)
            findings += await examine(part, show_url(url), partial(look_at_adapter, open_it, look, app.clock.now))
    return findings


async def _look_at_store(app: Mainspring) -> Seen:
    found = await asyncio.to_thread(database_status, app.settings)  # It has a loop of its own.
    if not found.exists:
        return Seen("there is no database yet: `mainspring db migrate` creates it", found.server)
    if found.refusal:
        raise StoreMismatch(f"it {found.refusal}")
    if found.denied:
        raise StoreRefused(f"permission is missing: {', '.join(found.denied)}")
    if found.version < found.latest:  # To open it would change it.
        detail = f"schema {found.version} of {found.latest}: `mainspring db migrate` brings it up to date"
        return Seen(detail, found.server)
    store = await app.open()
    try:
        skew = app.clock.now() - store.surely_now()
    finally:
        await app.close()
    return Seen(f"schema {found.version}, {found.size / 1_000_000:.1f} MB", found.server, skew)


def _draw(screen: Screen, findings: list[Finding]) -> None:
    for each in findings:
        took = "" if each.took_ms is None else f" ({each.took_ms:.0f} ms)"
        where = "" if each.where in each.detail else each.where
        words = ": ".join(word for word in (where, each.version, each.detail) if word)
        screen.facts([(each.part, Cell(f"{each.state:8}{words}{took}", _STYLES[each.state]))])
        if each.remedy and each.state != "good":
            screen.hint(f"{each.part}: {each.remedy}")
