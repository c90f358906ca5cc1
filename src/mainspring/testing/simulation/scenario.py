"""What makes a world: a seed, a kind of weather, how long, how many processes, and what does not happen."""

from __future__ import annotations

import msgspec

from mainspring.errors import InvalidInput
from mainspring.testing.simulation.faults import CALLS, EVENTS, HABITS, PROFILES


class Scenario(msgspec.Struct, frozen=True):
    """The same scenario gives the same history, byte for byte. InvalidInput for a profile or fault that is not one."""

    seed: int
    profile: str = "chaos"
    minutes: float = 10.0
    nodes: int = 3
    workers: int = 4
    without: tuple[str, ...] = ()
    """Faults that do not happen."""

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise InvalidInput("profile", self.profile, "is not a profile", f"choose one of {', '.join(PROFILES)}")
        faults = (*CALLS, *EVENTS, *HABITS)
        if unknown := [kind for kind in self.without if kind not in faults]:
            raise InvalidInput("without", unknown[0], "is not a fault", f"choose among {', '.join(faults)}")

    @property
    def is_whole(self) -> bool:
        """Whether nothing was taken from it: long enough, with all processes, and with all faults of its profile."""
        plain = Scenario(self.seed, self.profile)
        sizes = (self.minutes, self.nodes, self.workers), (plain.minutes, plain.nodes, plain.workers)
        return not self.without and all(own >= usual for own, usual in zip(*sizes, strict=True))
