"""A real server on a real port, and clients with and without tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from door import Door, open_door


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server with a secret, shared by the tests of a file."""
    with open_door(tmp_path_factory.mktemp("api")) as door:
        yield door


@pytest.fixture
def private_door(tmp_path: Path) -> Iterator[Door]:
    """A server with a secret, for one test."""
    with open_door(tmp_path) as door:
        yield door
