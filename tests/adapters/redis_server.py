"""Redis for tests: without the program they are skipped, or fail where it was asked for."""

from __future__ import annotations

import os

from mainspring.testing.chaos.redis import is_installed
from missing import miss


def need_redis() -> None:
    """`make test` asks for Redis where it could be installed."""
    if not is_installed():
        miss("no Redis: `make services` installs one", asked="MAINSPRING_TEST_REDIS" in os.environ)
