"""The history checker: a pure function from a history to a verdict. `INVARIANTS` is what it judges."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from mainspring.core.instants import SECOND, Duration
from mainspring.testing.checking.invariants import INVARIANTS, Invariant
from mainspring.testing.checking.stories.stories import Bounds, Stories
from mainspring.testing.checking.verdict import Verdict, Violation
from mainspring.testing.history import Record

__all__ = ["INVARIANTS", "Invariant", "Verdict", "Violation", "check"]

MOST_VIOLATIONS = 100
"""The most violations that are kept of each invariant: a bug that breaks one usually breaks it everywhere."""


def check(
    records: Iterable[Record],
    *,
    lateness_bound: Duration | None = None,
    deadline_bound: Duration = 30 * SECOND,
    fence_bound: Duration | None = None,
    passing_bound: Duration = 0,
    unfit_bound: Duration | None = None,
) -> Verdict:
    """Judge a history, in one pass and a look at each run and job.

    Sound: what it finds, no legal history has; replies that were lost, crashes, losses and returns are accounted for.
    Not complete: each invariant's function says what it cannot see. The bounds hold where nothing goes wrong:
    `lateness_bound` for how late a run may begin (not judged without it), `deadline_bound` for how long after its
    timeout work may go on. `fence_bound` (not judged without it either) holds always: for how long after its claim has
    run out work may go on. `passing_bound` is how long a run may be passed over, where claimers do not wait for each
    other; `unfit_bound` how long a run waits for a worker whose code takes its arguments (not judged without it).
    InvalidInput for a record that is not as `testing.history` has it.
    """
    stories = Stories(records, Bounds(lateness_bound, deadline_bound, fence_bound, passing_bound, unfit_bound))
    judged = [invariant for invariant in INVARIANTS if all(kind in stories.kinds for kind in invariant.needs)]
    violations = [
        Violation(invariant.number, invariant.name, finding.message, finding.evidence)
        for invariant in judged
        for finding in islice(invariant.judge(stories), MOST_VIOLATIONS)
    ]
    return Verdict(violations, tuple(invariant.number for invariant in judged), stories.count)
