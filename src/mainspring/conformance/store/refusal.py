"""Saying that a call must be refused, without a test framework: the suites run under any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainspring.errors import MainspringError


class Refusal:
    """What the refused call raised, once it has."""

    error: MainspringError | None = None

    def __str__(self) -> str:
        return str(self.error)


@contextmanager
def refused(expected: type[MainspringError]) -> Iterator[Refusal]:
    """The block must raise this error, or a kind of it; any other error passes through."""
    refusal = Refusal()
    try:
        yield refusal
    except expected as error:
        refusal.error = error
        return
    raise AssertionError(f"nothing was refused; {expected.__name__} was expected")
