"""Addresses of pages of the web UI, which commands print and open."""

from __future__ import annotations

import webbrowser
from urllib.parse import quote, urlencode

import click

from mainspring.cli.opening import is_served, open_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.model import DEFAULT
from mainspring.sdk.app import Mainspring

web_option = click.option("--web", is_flag=True, help="Open its page of the web UI in the browser.")
NO_SERVER = "--web needs a server: name it with --server URL, or its address for people with MAINSPRING_PUBLIC_URL"


class Pages:
    """The addresses of pages, if this command line knows a server."""

    def __init__(self, session: Session, app: Mainspring | None = None, *, web: bool = False) -> None:
        """UsageError if a page is to be opened and no server is known: before anything is done."""
        app = app or open_app(session)
        settings = app.settings
        servers = (settings.server or "").split(",")[0] if is_served(session, app) else ""
        self._base = (settings.public_url or servers).rstrip("/")
        self._namespace, self._opens = settings.namespace, web
        if web and not self._base:
            raise click.UsageError(NO_SERVER)

    def job(self, name: str, job_id: str) -> str:
        """The path of a job. A slash in a path is a separator, so a name with one is replaced by its id."""
        return f"/jobs/{quote(job_id if '/' in name else name, safe='')}"

    def run(self, run_id: str) -> str:
        """The path of a run."""
        return f"/runs/{run_id}"

    def address(self, path: str) -> str | None:
        """The address of a page; None if no server is known."""
        words = "" if self._namespace == DEFAULT else f"?{urlencode({'ns': self._namespace})}"
        return f"{self._base}/ui{path}{words}" if self._base else None

    def show(self, screen: Screen, path: str) -> None:
        """Print the address of a page, and open it if the command line asks for it."""
        address = self.address(path)
        if address is not None:
            screen.hint(f"Page: {address}")
        if address is not None and self._opens and not webbrowser.open(address):
            screen.warn("no browser could be started: open the address yourself")
