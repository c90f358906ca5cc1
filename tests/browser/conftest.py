"""A Chromium without a window, and pages that report whatever goes wrong in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backstage import OpenPage, Stage, open_stage
from playwright.sync_api import Browser, Page, expect, sync_playwright

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


class Faults(list[str]):
    """What the console of a page says, and requests to other hosts."""


def elsewhere(asked: str, own: str) -> list[str]:
    """A request to another host, as a fault."""
    return [] if asked.startswith(own) else [f"asked for {asked}"]


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server that needs no token, on a store with a past."""
    with open_stage(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One per file: playwright's loop must not outlive the tests that use it."""
    program = shutil.which("chromium")
    assert program is not None, "install chromium: scripts/services start"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Opens pages; at the end, none of them may have had a fault that the test did not expect."""
    contexts, faults = [], Faults()

    def open_it(path: str = "/", *, at: str | None = None, expects_faults: bool = False, **words: Any) -> Page:
        url = at or request.getfixturevalue("stage").url
        context = browser.new_context(viewport=words.pop("viewport", {"width": 1440, "height": 900}), **words)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        if not expects_faults:
            page.on("console", lambda message: faults.append(f"{page.url}: {message.text}"))
            page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
            page.on("request", lambda asked: faults.extend(elsewhere(asked.url, url)))
        page.goto(f"{url}/ui{path}")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    file = Path(__file__).parents[2] / ".venv" / "ui-tools" / "node_modules" / "axe-core" / "axe.min.js"
    assert file.exists(), "run `make setup`: it fetches axe-core with npm"
    return file.read_text(encoding="utf-8")
