"""Redis for tests: without the program they are skipped, or fail where it was asked for."""

from __future__ import annotations

import os

import pytest

from mainspring.testing.chaos.redis import is_installed


def need_redis() -> None:
    """`make test` asks for Redis where it could be installed."""
    if not is_installed():
        if "MAINSPRING_TEST_REDIS" in os.environ:
            pytest.fail("redis-server is not installed, though MAINSPRING_TEST_REDIS asks for Redis")
        pytest.skip("no Redis: `make services` installs one")
