"""How much is worked on at once: beyond it requests are turned away at once, instead of waiting in a growing queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainspring.api.problems import Problem, retry_after


class Capacity:
    """Requests that work, and requests that wait on purpose, are counted apart."""

    def __init__(self, requests: int, watchers: int) -> None:
        self._limits = {False: requests, True: watchers}
        self.busy = {False: 0, True: 0}
        self.refused = 0

    @contextmanager
    def enter(self, *, patient: bool) -> Iterator[None]:
        """Take a place for the duration of a request; Problem if there is none."""
        self.take(patient=patient)
        try:
            yield
        finally:
            self.leave(patient=patient)

    def take(self, *, patient: bool) -> None:
        """Take a place."""
        if self.busy[patient] >= self._limits[patient]:
            self.refused += 1
            what = "long polls and streams are open" if patient else "requests are being worked on"
            detail = f"{self._limits[patient]} {what} already"
            raise Problem("overloaded", detail, remedy="try again soon", headers=retry_after(1))
        self.busy[patient] += 1

    def leave(self, *, patient: bool) -> None:
        """Give it back."""
        self.busy[patient] -= 1
