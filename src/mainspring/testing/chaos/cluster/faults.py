"""What is done to the processes, and when: drawn from the seed before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Final

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """Something that is done to a process, or to all of them, once."""

    at_s: float
    kind: str
    target: int
    """Which process, counted round and round those for which it makes sense."""
    length_s: float
    """How long it is gone, or stopped."""


RATES: Final = MappingProxyType(
    {
        "kill": (14.0, 0.0, 2.0),
        "kill leader": (3.0, 0.0, 3.0),
        "stop": (7.0, 0.5, 6.0),
        "stop leader": (2.5, 1.0, 5.0),
        "drain": (2.5, 0.0, 1.0),
        "roll": (0.7, 0.0, 0.3),
        "power cut": (0.5, 0.5, 3.0),
    }
)
"""How often in a minute; and how long, at least and at most. Claims last two seconds, leases one and a half."""

SERVER_RATES: Final = MappingProxyType(
    {
        "kill server": (1.0, 0.0, 2.0),
        "restart server": (0.7, 0.0, 1.0),
        "kill backend": (1.0, 0.0, 0.1),
        "cut wire": (2.0, 0.0, 0.1),
        "lose commits": (2.0, 1.0, 3.0),
        "slow wire": (1.0, 1.0, 4.0),
        "block wire": (1.0, 0.5, 4.0),
        "replace wire": (0.7, 0.5, 3.0),
    }
)
"""The rates of faults of a PostgreSQL server that the driver starts, and of the connection to it."""


def plan_faults(seed: int, seconds: float, rates: Mapping[str, tuple[float, float, float]] = RATES) -> list[Fault]:
    """All of them in order. Each kind is drawn by itself; even in a short time each comes at least once."""
    faults = []
    for kind, (rate, shortest_s, longest_s) in rates.items():
        random = Random(f"{seed}:{kind}")
        count = max(1, round(rate * seconds / 60))
        for _ in range(count):
            at_s = random.uniform(0.0, seconds)
            faults.append(Fault(at_s, kind, random.randrange(1_000), random.uniform(shortest_s, longest_s)))
    return sorted(faults, key=lambda fault: (fault.at_s, fault.kind))
