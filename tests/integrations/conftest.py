"""What tests of integrations share: the examples, loaded in a folder of their own."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from store_places import places

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "integrations"


@pytest.fixture
def load_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Runs a file of examples/integrations in an empty folder, and gives its names."""
    monkeypatch.chdir(tmp_path)
    loaded: list[dict[str, Any]] = []

    def load(name: str) -> dict[str, Any]:
        loaded.append(runpy.run_path(str(EXAMPLES / name)))
        return loaded[-1]

    yield load
    for names in loaded:
        app = names["app"]
        assert isinstance(app, Mainspring)
        if app.opened is not None:
            app.sync.close()


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    """A new and empty database on PostgreSQL."""
    with places("postgres", tmp_path) as make:
        yield make()
