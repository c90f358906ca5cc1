"""What every measure on servers is given, and how contestants take turns at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cluster.contestants import MAINSPRING, PGQUEUER, Contestant
from bench.cluster.servers import Servers
from bench.harness.figures import Series
from bench.harness.running import Failed
from bench.harness.script import Answer

OURS = MAINSPRING.label
CLOSE = (MAINSPRING.name, PGQUEUER.name)


@dataclass(frozen=True)
class Arena:
    """The servers, a folder for files that go away, the peers, and how long to look."""

    servers: Servers
    folder: Path
    peers: Sequence[Contestant]
    quick: bool = False

    @property
    def everybody(self) -> list[Contestant]:
        """Mainspring first."""
        return [MAINSPRING, *self.peers]

    def size(self, full: int, quick: int) -> int:
        """How much of something."""
        return quick if self.quick else full


def take_turns(
    everybody: Sequence[Contestant], rounds: int, what: str, measure: Callable[[Contestant], Answer]
) -> dict[str, Series]:
    """Round by round, so that a slow minute hits all; a contestant that fails is named with the reason, and sits out.

    Those that are far apart take part in one round: their distance is larger than the noise.
    """
    series = {each.label: Series() for each in everybody}
    for number in range(rounds):
        for each in everybody:
            own = series[each.label]
            if own.trouble or (number and each.name not in CLOSE):
                continue
            print(f"  {what} {number + 1}/{rounds}: {each.label}", file=sys.stderr)
            try:
                own.answers.append(measure(each))
            except Failed as failure:
                own.trouble = str(failure)
    return series
