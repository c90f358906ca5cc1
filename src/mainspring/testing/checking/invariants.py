"""All invariants: their numbers, names, and the records without which there is nothing to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mainspring.testing.checking.rules import (
    acceptance,
    causes,
    claims,
    firings,
    keys,
    lateness,
    limits,
    order,
    paces,
    queues,
    relations,
    results,
    tallies,
    terms,
)
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding


class Invariant(NamedTuple):
    """One promise. `judge` finds where a history breaks it; its docstring says what it cannot see."""

    number: int
    name: str
    judge: Callable[[Stories], Iterator[Finding]]
    needs: tuple[str, ...]
    """Kinds of records, all of which a history must have to be judged."""


INVARIANTS = (
    Invariant(1, "one record per due instant", firings.each_due_instant_has_one_record, ()),
    Invariant(2, "no run without cause", causes.no_run_without_cause, ()),
    Invariant(3, "accepted work is kept and ends", acceptance.accepted_work_is_kept_and_ends, ()),
    Invariant(4, "tokens grow", claims.tokens_grow, ("claim",)),
    Invariant(5, "claims never overlap", claims.claims_never_overlap, ("claim",)),
    Invariant(6, "one accepted result", results.one_result_is_accepted, ("report",)),
    Invariant(7, "executions within claims", claims.executions_stay_within_claims, ("start",)),
    Invariant(8, "nothing starts after the end", claims.nothing_starts_after_the_end, ("start",)),
    Invariant(9, "attempts within limits", results.attempts_and_losses_stay_within_limits, ()),
    Invariant(10, "only transitions of the table", results.only_transitions_of_the_table, ()),
    Invariant(11, "neither early nor late", lateness.nothing_begins_early_or_late, ("claim",)),
    Invariant(12, "deadlines end the work", lateness.deadlines_end_the_work, ("start", "end")),
    Invariant(13, "priority order", order.the_best_run_goes_first, ("claim",)),
    Invariant(14, "overlap policies", limits.jobs_overlap_as_they_may, ("job", "run", "claim")),
    Invariant(15, "dependencies", relations.dependencies_come_first, ()),
    Invariant(16, "concurrency limits", limits.concurrency_stays_within_limits, ("claim",)),
    Invariant(17, "terms fence", terms.terms_grow_and_fence, ("term",)),
    Invariant(18, "acknowledged cancels hold", acceptance.acknowledged_cancels_hold, ("cancel",)),
    Invariant(19, "nothing eligible is left", acceptance.nothing_eligible_is_left, ("run", "fault")),
    Invariant(20, "rate limits", paces.spending_stays_within_its_pace, ("spend",)),
    Invariant(21, "daylight saving", causes.fire_times_follow_the_clocks, ("job",)),
    Invariant(22, "key order", keys.runs_of_one_key_go_in_order, ("claim",)),
    Invariant(23, "paused queues", queues.a_paused_queue_gives_no_run, ("queue", "claim")),
    Invariant(24, "tallies", tallies.tallies_count_what_ended, ("tally",)),
)
