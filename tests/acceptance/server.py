"""A PostgreSQL server for tests that kill it. Without its programs they are skipped, or fail where it was asked for."""

import os

from mainspring.testing.chaos.postgres import Postgres, find_programs
from mainspring.testing.chaos.timing import FAKETIME
from missing import miss

ASKED = "MAINSPRING_TEST_POSTGRES" in os.environ
"""`make test` sets it where the servers are to be had."""


def make_server(settings: dict[str, str] | None = None) -> Postgres:
    """A new one, running."""
    if find_programs() is None:
        miss("PostgreSQL is not installed: `make services` does", asked=ASKED)
    server = Postgres(settings=settings)
    server.make()
    return server


def need_faketime() -> None:
    """What shows processes other wall clocks."""
    if FAKETIME is None:
        miss("libfaketime is not installed: `make services` does")
