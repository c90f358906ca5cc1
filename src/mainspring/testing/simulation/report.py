"""What came of many seeds: whether every promise was kept, and what the seeds have seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mainspring.testing.simulation.runner import Result, command_of
from mainspring.testing.simulation.sometimes import FAULTS, demanded


class Report:
    """The results of a batch. A batch of enough seeds must have seen everything that its profiles contain: where
    nothing rare happened, nothing was shown."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self.seeds = 0
        self.failed: list[Result] = []
        self.sometimes: Counter[str] = Counter()
        """How often each fault and each rare path happened."""
        self.virtual_seconds = 0.0
        self._whole: Counter[str] = Counter()
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        """One more seed."""
        self.seeds += 1
        self.sometimes += result.sometimes
        self.virtual_seconds += result.virtual_seconds
        if not result.ok:
            self.failed.append(result)
        self._whole[result.scenario.profile] += result.scenario.is_whole

    @property
    def ok(self) -> bool:
        """Whether every promise was kept, and the seeds have shown what they had to."""
        return not self.failed and not self.unseen

    @property
    def faults(self) -> dict[str, int]:
        """How often each kind of fault struck."""
        return {kind: self.sometimes[kind] for kind in FAULTS}

    @property
    def unseen(self) -> list[str]:
        """What should have happened in this many seeds, and never did."""
        names = dict.fromkeys(name for profile, seeds in self._whole.items() for name in demanded(profile, seeds))
        return [name for name in names if not self.sometimes[name]]

    def __str__(self) -> str:
        hours = self.virtual_seconds / 3600
        lines = [f"{'ok' if self.ok else 'broken'}: {self.seeds} seeds, {hours:.1f} virtual hours"]
        for result in self.failed:
            lines += [f"seed {result.scenario.seed}: {result.verdict}", *result.errors]
            lines.append(f"replay it with: {command_of(result.scenario)}")
        if self.unseen:
            lines.append(f"never happened: {', '.join(self.unseen)}")
        return "\n".join(lines)
