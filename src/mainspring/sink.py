"""The sink port: where events are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mainspring.core.model import EventBatch


class Sink(Protocol):
    """One verb. Batches come in order of position; after an error the same batch comes again, so delivery must be
    idempotent."""

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        """Pass the events on; return when they are safe."""
