"""`mainspring doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import click

from mainspring.adapter import WITHOUT, AdapterContext, open_adapter
from mainspring.broker import Place
from mainspring.cli.lazy import Verb
from mainspring.cli.opening import open_app
from mainspring.cli.output.errors import FAILED
from mainspring.cli.output.screen import Cell, Screen
from mainspring.cli.session import Session
from mainspring.operations.doctor import (
    Finding,
    compare_clocks,
    examine,
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

    Nothing is created in the store. A broker is given one message that names no run, and workers ignore it. A broker or
    sink may create its queues or topics.
    """
    app, screen = open_app(session, broker=broker, lease=lease, cache=cache, sink=sink), Screen(session)
    findings = asyncio.run(_examine_all(app))
    screen.answer(findings, lambda: _draw(screen, findings))
    return FAILED if any(each.state == "failed" for each in findings) else 0


async def _examine_all(app: Mainspring) -> list[Finding]:
    settings = app.settings
    findings = await _examine_store(app)
    place = Place(settings.namespace, (settings.queues or app.queues())[0], settings.regions[0])
    looks: dict[str, Callable[..., Awaitable[str]]] = {
        "broker": partial(look_at_broker, place=place),
        "lease": look_at_lease,
        "cache": look_at_cache,
        "sink": look_at_sink,
    }
    for part, look in looks.items():
        urls = (getattr(settings, part) or "").split()
        if not urls:
            findings.append(Finding(part=part, state="unused", detail=f"none is named: {WITHOUT[part]}"))
        for url in urls:

            async def open_and_look(
                part: str = part, url: str = url, look: Callable[..., Awaitable[str]] = look
            ) -> str:
                return await look(open_adapter(part, url, AdapterContext(settings, app.clock)))

            findings.append(await examine(part, show_url(url), open_and_look))
    return findings


async def _examine_store(app: Mainspring) -> list[Finding]:
    where = show_url(app.settings.store)
    current: list[bool] = []

    async def look() -> str:
        found = await asyncio.to_thread(database_status, app.settings)  # It has a loop of its own.
        if not found.exists:
            return "there is no database yet: `mainspring db migrate` creates it"
        if not found.usable:
            return f"schema {found.version} is newer than this program understands ({found.latest})"
        if found.version < found.latest:
            return f"schema {found.version} of {found.latest}: `mainspring db migrate` brings it up to date"
        current.append(True)
        return f"schema {found.version}, {found.size / 1_000_000:.1f} MB"

    finding = await examine("store", where, look)
    findings = [finding]
    if current:  # To open an older store would change it.
        store = await app.open()
        try:
            findings.append(compare_clocks(store.surely_now(), app.clock.now()))
        finally:
            await app.close()
    return findings


def _draw(screen: Screen, findings: list[Finding]) -> None:
    for each in findings:
        took = "" if each.took_ms is None else f" ({each.took_ms:.0f} ms)"
        where = f"{each.where}: " if each.where else ""
        screen.facts([(each.part, Cell(f"{each.state:8}{where}{each.detail}{took}", _STYLES[each.state]))])
        if each.remedy and each.state != "good":
            screen.hint(f"{each.part}: {each.remedy}")
