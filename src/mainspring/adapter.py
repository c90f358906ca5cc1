"""What every adapter is constructed with: `Adapter(url, context)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mainspring.clock import Clock, SystemClock
from mainspring.settings import Settings


def uncounted(_name: str, _label: str) -> None:
    """Counts nothing."""


@dataclass(frozen=True)
class AdapterContext:
    """What adapters need beside their URL. An adapter takes what it needs and connects when it is first used."""

    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=SystemClock)
    count: Callable[[str, str], None] = uncounted
    """Count one more of a metric, by name and label: `count("leases", "taken")`."""
