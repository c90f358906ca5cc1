"""The sink port: a system outside Mainspring that receives all events, such as Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mainspring.core.model import EventBatch


class Sink(Protocol):
    """Batches come in order of position. After an error the same batch comes again, so delivery must be idempotent: an
    event's position is its identity."""

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        """Send the events; return once the sink has stored them."""

    async def ping(self) -> None:
        """Return if the sink answers."""

    async def close(self) -> None:
        """Close all connections."""
