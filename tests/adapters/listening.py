"""A listener to submissions that passes them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mainspring.core.model import NewRun


class Listener:
    """See `store.SubmissionListener`."""

    def __init__(self, accepted: Callable[[Sequence[NewRun]], Any]) -> None:
        self.accepted = accepted
        self.closed = False

    async def close(self) -> None:
        self.closed = True
