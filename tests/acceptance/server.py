"""A PostgreSQL server for tests that kill it."""

import pytest

from mainspring.testing.chaos.inside.timing import FAKETIME
from mainspring.testing.servers.postgres import Postgres, find_programs


def make_server(settings: dict[str, str] | None = None) -> Postgres:
    """A new one, running."""
    if find_programs() is None:
        pytest.fail("PostgreSQL is not installed: `make services` does")
    server = Postgres(settings=settings)
    server.make()
    return server


def need_faketime() -> None:
    """What shows processes other wall clocks."""
    if FAKETIME is None:
        pytest.fail("libfaketime is not installed: `make services` does")
