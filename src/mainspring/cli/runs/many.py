"""`mainspring run act`: cancel or retry all runs that a filter fits, in calls of at most 1,000."""

from __future__ import annotations

from typing import Unpack

import click

from mainspring.cli.filters import RunChoice, bulk_options, confirm, run_filters
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.errors import FAILED as TROUBLE
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.operations.views.records import ActedRuns, RunAction

MOST_CALLS = 1_000


@click.command("act", cls=RemoteVerb)
@click.argument("action", type=click.Choice(["cancel", "retry"]))
@run_filters
@bulk_options
@click.pass_obj
def act(session: Session, action: RunAction, dry_run: bool, yes: bool, reason: str, **words: Unpack[RunChoice]) -> int:
    """Cancel or retry all runs that the options select, 1,000 at a time. A failed run is retried at most once.

    \b
    mainspring run act retry --error 3f2a91c0d4e5b678 --dry-run
    """
    if not any(words.values()):
        raise click.UsageError("Select runs, e.g. with --job NAME, --error ERROR or --state failed.")
    screen = Screen(session)
    looked = with_scheduler(session, lambda scheduler: scheduler.actions.runs(action, **words, dry_run=True))
    if dry_run or not looked.matched:
        screen.answer(looked, lambda: screen.line(f"{action.capitalize()} {looked.matched:,} runs: nothing was done."))
        return 0
    confirm(f"{action.capitalize()} {looked.matched:,} runs?", yes=yes)
    done = with_scheduler(session, lambda scheduler: _all(scheduler, action, words, reason))
    screen.answer(done, lambda: _draw(screen, done))
    return TROUBLE if done.refused else 0


async def _all(scheduler: Backend, action: RunAction, words: RunChoice, reason: str) -> ActedRuns:
    """Go on until all that match are done."""
    before, matched, runs, refused = None, 0, dict[str, str](), dict[str, str]()
    for _ in range(MOST_CALLS):
        part = await scheduler.actions.runs(action, **words, before=before, reason=reason)
        matched += part.matched
        runs |= part.runs
        refused |= part.refused
        before = part.next
        if before is None:
            break
    return ActedRuns(
        action=action, dry_run=False, matched=matched, done=len(runs), runs=runs, refused=refused, next=before
    )


def _draw(screen: Screen, done: ActedRuns) -> None:
    word = "cancelled or asked to stop" if done.action == "cancel" else "run again"
    screen.line(f"{done.done:,} of {done.matched:,} runs were {word}.")
    screen.items("Refused", [f"{run_id}: {why}" for run_id, why in list(done.refused.items())[:20]])
