"""A Chromium without a window, and pages that report whatever goes wrong in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from backstage import OpenPage, Stage, open_stage
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, ViewportSize, expect, sync_playwright

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

SCREEN: ViewportSize = {"width": 1440, "height": 900}
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
    """One browser for all tests of this folder, and in it one profile for all pages that need no other. Its cache and
    its window stay: a new window costs Chromium as much as a page."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._profile: BrowserContext | None = None
        self._kept: Page | None = None

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
        """For pages that need nothing of their own. An empty page keeps its window open."""
        if self._profile is None:
            self._profile = self.new_profile()
            self._kept = self._profile.new_page()
        return self._profile

    def new_profile(self, **words: Any) -> BrowserContext:
        """Cookies, storage, a cache and a screen, shared with no other profile."""
        context = self.browser.new_context(viewport=SCREEN, **words)
        context.set_default_timeout(PATIENCE_MS)
        return context

    def clear(self) -> None:
        """Close the pages of the profile, and forget who signed in."""
        if self._profile is not None:
            for page in self._profile.pages:
                if page is not self._kept:
                    page.close()
            self._profile.clear_cookies()

    def close(self) -> None:
        """End it. Playwright's loop must not outlive the tests that use it: others need the thread for their own."""
        if self._browser is not None and self._playwright is not None:
            self._browser.close()
            self._playwright.stop()
        self._playwright = self._browser = self._profile = self._kept = None


CHROMIUM = Chromium()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """The last test of this folder, or of this process, ends the browser."""
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        CHROMIUM.close()


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Opens pages; at the end, none of them may have had a fault that the test did not expect."""
    profiles, faults = list[BrowserContext](), Faults()

    def open_it(
        path: str = "/",
        *,
        at: str | None = None,
        expects_faults: bool = False,
        viewport: ViewportSize | None = None,
        color_scheme: Literal["light", "dark"] | None = None,
        **words: Any,
    ) -> Page:
        url = at or request.getfixturevalue("stage").url
        if words:
            profiles.append(CHROMIUM.new_profile(**words))
        page = (profiles[-1] if words else CHROMIUM.profile).new_page()
        if viewport:
            page.set_viewport_size(viewport)
        if color_scheme:
            page.emulate_media(color_scheme=color_scheme)
        if not expects_faults:
            page.on("console", lambda message: faults.append(f"{page.url}: {message.text}"))
            page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
            page.on("request", lambda asked: faults.extend(elsewhere(asked.url, url)))
        page.goto(f"{url}/ui{path}")
        return page

    yield open_it
    for each in profiles:
        each.close()
    CHROMIUM.clear()
    assert faults == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    file = Path(__file__).parents[2] / ".venv" / "ui-tools" / "node_modules" / "axe-core" / "axe.min.js"
    assert file.exists(), "run `make setup`: it fetches axe-core with npm"
    return file.read_text(encoding="utf-8")
