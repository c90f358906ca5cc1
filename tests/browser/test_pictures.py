"""Pictures for the README and the tour, in both themes. MAINSPRING_PICTURES=1 replaces those of docs/images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from backstage import OpenPage
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("name", "path", "waits_for"), [("overview", "/", ".attention"), ("ledger", "/jobs/sync-inventory", ".ledger")]
)
def test_a_picture_is_taken(
    open_page: OpenPage, tmp_path: Path, theme: str, name: str, path: str, waits_for: str
) -> None:
    page = open_page(path, color_scheme=theme, viewport={"width": 1280, "height": 720})
    expect(page.locator(waits_for)).to_be_visible()
    expect(page.get_by_role("button", name="live")).to_be_visible()
    folder = IMAGES if os.environ.get("MAINSPRING_PICTURES") else tmp_path
    page.screenshot(path=folder / f"{name}-{theme}.png")
    assert (folder / f"{name}-{theme}.png").stat().st_size > 10_000
