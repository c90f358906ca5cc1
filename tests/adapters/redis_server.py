"""Redis for tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainspring.testing.chaos.redis import RedisServer, is_installed

Start = Callable[..., RedisServer]
"""Starts a server with these options, which ends with the test."""


def need_redis() -> None:
    """Say what is missing, if it is."""
    if not is_installed():
        pytest.fail("no Redis: `make services` installs one")
