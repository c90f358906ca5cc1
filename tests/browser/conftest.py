"""A Chromium without a window, and pages that report whatever goes wrong in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backstage import OpenPage, Stage, open_stage
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

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


class Chromium:
    """One browser for all tests of this folder, and in it one profile for all pages of the stage: its cache stays."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._profile: BrowserContext | None = None

    @property
    def browser(self) -> Browser:
        """Started when it is first needed."""
        if self._browser is None:
            program = shutil.which("chromium")
            assert program is not None, "install chromium: scripts/services start"
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=program, args=FLAGS)
        return self._browser

    @property
    def profile(self) -> BrowserContext:
        """For pages that need nothing of their own."""
        self._profile = self._profile or self.new_profile()
        return self._profile

    def new_profile(self, **words: Any) -> BrowserContext:
        """Cookies, storage, a cache and a screen, shared with no other profile."""
        context = self.browser.new_context(viewport=words.pop("viewport", {"width": 1440, "height": 900}), **words)
        context.set_default_timeout(PATIENCE_MS)
        return context

    def close(self) -> None:
        """End it. Playwright's loop must not outlive the tests that use it: others need the thread for their own."""
        if self._browser is not None and self._playwright is not None:
            self._browser.close()
            self._playwright.stop()
        self._playwright = self._browser = self._profile = None


CHROMIUM = Chromium()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """The last test of this folder, or of this process, ends the browser."""
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        CHROMIUM.close()


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Opens pages; at the end, none of them may have had a fault that the test did not expect."""
    pages, contexts, faults = [], [], Faults()

    def open_it(path: str = "/", *, at: str | None = None, expects_faults: bool = False, **words: Any) -> Page:
        url = at or request.getfixturevalue("stage").url
        is_own = at is not None or words
        context = CHROMIUM.new_profile(**words) if is_own else CHROMIUM.profile
        page = context.new_page()
        pages.append(page)
        if is_own:
            contexts.append(context)
        if not expects_faults:
            page.on("console", lambda message: faults.append(f"{page.url}: {message.text}"))
            page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
            page.on("request", lambda asked: faults.extend(elsewhere(asked.url, url)))
        page.goto(f"{url}/ui{path}")
        return page

    yield open_it
    for each in (*pages, *contexts):
        each.close()
    assert faults == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    file = Path(__file__).parents[2] / ".venv" / "ui-tools" / "node_modules" / "axe-core" / "axe.min.js"
    assert file.exists(), "run `make setup`: it fetches axe-core with npm"
    return file.read_text(encoding="utf-8")
