"""Redis for tests: without the program they are skipped, or fail where it was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable

from mainspring.testing.chaos.redis import RedisServer, is_installed
from missing import miss

Start = Callable[..., RedisServer]
"""Starts a server with these options, which ends with the test."""


def need_redis() -> None:
    """`make test` asks for Redis where it could be installed."""
    if not is_installed():
        miss("no Redis: `make services` installs one", asked="MAINSPRING_TEST_REDIS" in os.environ)
