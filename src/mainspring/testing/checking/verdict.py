"""What the checker says: which invariants a history breaks, and the part of it that shows so."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mainspring.core.instants import format_instant
from mainspring.testing.history import Record

_SHOWN_VIOLATIONS = 20
_SHOWN_RECORDS = 12
_TOLD_APART = ("what", "actor", "outcome", "seq", "wall", "mono", "store", "data")


class Finding(NamedTuple):
    """One breach, as the function of its invariant found it."""

    message: str
    evidence: tuple[Record, ...]


class Violation(msgspec.Struct, frozen=True):
    """One breach of one invariant. `evidence` is enough to show it: the rest of the history is not needed."""

    number: int
    name: str
    message: str
    evidence: tuple[Record, ...]

    @property
    def invariant(self) -> str:
        """Its number and name."""
        return f"{self.number} ({self.name})"

    def __str__(self) -> str:
        shown = [show(record) for record in self.evidence[:_SHOWN_RECORDS]]
        if len(self.evidence) > _SHOWN_RECORDS:
            shown.append(f"… and {len(self.evidence) - _SHOWN_RECORDS} more records")
        return "\n    ".join([f"{self.invariant}: {self.message}", *shown])


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a check. `judged` are the numbers of the invariants for which the history has the records."""

    violations: list[Violation]
    judged: tuple[int, ...]
    records: int

    @property
    def ok(self) -> bool:
        """Whether no invariant is broken."""
        return not self.violations

    def __str__(self) -> str:
        scope = f"{self.records} records, {len(self.judged)} invariants judged"
        if self.ok:
            return f"ok: {scope}"
        broken = sorted({violation.number for violation in self.violations})
        lines = [f"broken: {', '.join(map(str, broken))} ({scope})"]
        lines += [str(violation) for violation in self.violations[:_SHOWN_VIOLATIONS]]
        if len(self.violations) > _SHOWN_VIOLATIONS:
            lines.append(f"… and {len(self.violations) - _SHOWN_VIOLATIONS} more")
        return "\n".join(lines)


def found(message: str, *evidence: Record | None) -> Finding:
    """A finding with each of the records once, in order."""
    records = {record.seq: record for record in evidence if record is not None}
    return Finding(message, tuple(records[seq] for seq in sorted(records)))


def show(record: Record) -> str:
    """A record on one line, without what is long."""
    fields = [
        f"{name}={value}"
        for name in record.__struct_fields__
        if name not in _TOLD_APART and (value := getattr(record, name)) is not None
    ]
    outcome = "" if record.outcome == "ok" else f" {record.outcome}"
    return f"#{record.seq} {format_instant(record.store)} {record.actor} {record.what}{outcome} {' '.join(fields)}"
