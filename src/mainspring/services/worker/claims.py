"""The claims that a worker holds, until when it may trust them, and how long its runs take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from mainspring.core.instants import SECOND
from mainspring.core.model import Report
from mainspring.core.runs.outcome import is_suspect
from mainspring.core.runs.pacing import typical
from mainspring.executor import AttemptContext


class Claims:
    """Claims from the moment the store grants them until it has acknowledged their end. Used on the worker's own loop,
    except for `promise`."""

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[AttemptContext, float]] = {}
        self._promised: deque[tuple[Sequence[AttemptContext], float]] = deque()
        self._ended: set[tuple[str, int]] = set()
        self._solitary = 0
        self.total = 0
        """How many were granted since the start."""
        self.run_s: float | None = None
        """How long recent runs took; None before the first has ended."""
        self.on_doubt: Callable[[float], None] = lambda _: None
        """Called with the time until which new claims can be trusted."""
        self.on_removed: Callable[[Sequence[tuple[str, int]]], None] = lambda _: None
        """Called with run id and token of claims that have ended."""

    def promise(self, attempts: Sequence[AttemptContext], trusted_until: float) -> None:
        """Add claims that were just granted. Callable from any thread; they count from the next look on."""
        self._promised.append((attempts, trusted_until))

    def _look(self) -> dict[str, tuple[AttemptContext, float]]:
        while self._promised:
            self.add(*self._promised.popleft())
        return self._attempts

    def __len__(self) -> int:
        return len(self._look())

    @property
    def solitary(self) -> bool:
        """Whether a run is among them that may have killed its workers: it must not take others down with it."""
        self._look()
        return self._solitary > 0

    def token_of(self, run_id: str) -> int | None:
        """The token of a held run; None if it is not held."""
        held = self._look().get(run_id)
        return None if held is None else held[0].claim.token

    def attempt_of(self, run_id: str) -> AttemptContext | None:
        """The attempt of a held run; None if it is not held."""
        held = self._look().get(run_id)
        return None if held is None else held[0]

    def priorities(self) -> Iterable[int]:
        """The priorities of the held runs."""
        return (attempt.claim.priority for attempt, _ in self._look().values())

    def add(self, attempts: Sequence[AttemptContext], trusted_until: float) -> None:
        """Add claims that were just granted."""
        for attempt in attempts:
            self._attempts[attempt.claim.run_id] = (attempt, trusted_until)
            self._solitary += _is_suspect(attempt)
        self.total += len(attempts)
        self.on_doubt(trusted_until)

    def remove(self, claims: Sequence[tuple[str, int]]) -> None:
        """Remove claims that have ended."""
        self._look()
        self.on_removed(claims)
        for run_id, token in claims:
            self._ended.discard((run_id, token))
            held = self._attempts.get(run_id)
            if held is not None and held[0].claim.token == token:
                del self._attempts[run_id]
                self._solitary -= _is_suspect(held[0])

    def has_ended(self, claim: tuple[str, int]) -> bool:
        """Whether the work of a claim is over and only the answer of the store is awaited."""
        return claim in self._ended

    def note(self, reports: Sequence[Report]) -> None:
        """Note runs that have ended and are about to be reported, and learn from them how long runs take."""
        self._ended.update([(report.run_id, report.token) for report in reports])
        lengths = [it.finished_at - it.started_at for it in reports if it.started_at and it.finished_at]
        self.run_s = typical(self.run_s, sum(lengths) / SECOND, len(lengths))

    def pairs(self) -> list[tuple[str, int]]:
        """Run id and token of each claim."""
        return [(run_id, attempt.claim.token) for run_id, (attempt, _) in self._look().items()]

    def trust(self, claims: Iterable[tuple[str, int]], until: float) -> None:
        """Trust renewed claims for longer."""
        for run_id, token in claims:
            held = self._attempts.get(run_id)
            if held is not None and held[0].claim.token == token:
                self._attempts[run_id] = (held[0], until)

    def untrusted(self, now: float) -> list[tuple[str, int]]:
        """Claims that another worker may have by now."""
        return [(run_id, attempt.claim.token) for run_id, (attempt, until) in self._look().items() if until <= now]

    def earliest_doubt(self) -> float | None:
        """When the first claim expires."""
        return min((until for _, until in self._look().values()), default=None)


def _is_suspect(attempt: AttemptContext) -> bool:
    return attempt.claim.losses > 0 and is_suspect(attempt.claim.losses, attempt.options)
