"""`mainspring run cancel` and `run retry`: by id, or all that a filter fits; and `run act`: all, 1,000 in a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Unpack

import click

from mainspring.cli.filters import RunChoice, bulk_options, confirm, count_of, run_filters
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_run, find_run
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.errors import FAILED as TROUBLE
from mainspring.cli.output.screen import Screen, Value, state_cell
from mainspring.cli.runs.tables import describe_run, draw_runs
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.core.states import FAILED, FINAL, RUNNING, STATES, State
from mainspring.errors import Conflict, NotFound
from mainspring.operations import records
from mainspring.operations.views.explain import short_id
from mainspring.operations.views.records import ActedRuns, RunAction

Act = Callable[[Backend, records.Run], Awaitable["Done"]]

REFUSED = "refused"
MOST_CALLS = 1_000


class Done(NamedTuple):
    """What became of one run."""

    run: records.Run
    state: str
    """Its state now, or what was done; REFUSED if nothing could be."""
    note: str = ""
    new_id: str | None = None


class Choice(NamedTuple):
    """Which runs to act on, and how careful to be."""

    run_ids: Sequence[str]
    words: RunChoice
    fallback: tuple[State, ...]
    """The states to select if none was named."""
    dry_run: bool
    yes: bool


@click.command(cls=RemoteVerb)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@run_filters
@bulk_options
@click.pass_obj
def cancel(
    session: Session, run_ids: Sequence[str], dry_run: bool, yes: bool, reason: str, **words: Unpack[RunChoice]
) -> int:
    """Cancel RUNs, or all unfinished ones that the options select. A running one is asked to stop."""

    async def act(scheduler: Backend, run: records.Run) -> Done:
        state = await scheduler.runs.cancel(run.run_id, reason)
        return Done(run, state, "asked to stop" if state == RUNNING else "")

    unfinished = tuple(state for state in STATES if state not in FINAL)
    return _act(session, "Cancel", Choice(run_ids, words, unfinished, dry_run, yes), act)


@click.command(cls=RemoteVerb)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@run_filters
@bulk_options
@click.pass_obj
def retry(
    session: Session, run_ids: Sequence[str], dry_run: bool, yes: bool, reason: str, **words: Unpack[RunChoice]
) -> int:
    """Run RUNs again that did not succeed, or all failed ones that the options select: as a new run each."""

    async def act(scheduler: Backend, run: records.Run) -> Done:
        again = await scheduler.runs.retry(run.run_id, reason)
        return Done(run, "retried", f"as {short_id(again.run_id)}", again.run_id)

    return _act(session, "Retry", Choice(run_ids, words, (FAILED,), dry_run, yes), act)


def _act(session: Session, verb: str, choice: Choice, act: Act) -> int:
    selected = any(choice.words.values())
    if selected == bool(choice.run_ids):
        how = "not both" if selected else "e.g. --job NAME or --state failed"
        raise click.UsageError(
            "Name runs, or select them with --job, --task, --tag, --queue, --worker, --region, --since, --until, "
            f"--error or --state: {how}."
        )
    screen = Screen(session)
    runs, now = with_scheduler(session, lambda scheduler: _choose(scheduler, choice))
    if choice.dry_run or not runs:
        screen.answer(runs, lambda: draw_runs(screen, runs, now) if runs else None)
        screen.hint(f"{verb} {count_of(runs, 'run')}: nothing was done{', for this was a dry run' if runs else ''}.")
        return 0
    if selected:
        confirm(f"{verb} {count_of(runs, 'run')}?", yes=choice.yes)
    done = with_scheduler(session, lambda scheduler: _each(scheduler, screen, verb, runs, act))
    screen.answer([_view(each) for each in done], lambda: _draw(screen, done))
    return TROUBLE if any(each.state == REFUSED for each in done) else 0


async def _choose(scheduler: Backend, choice: Choice) -> tuple[list[records.Run], Instant]:
    if choice.run_ids:
        runs = [await find_run(scheduler, each) for each in dict.fromkeys(choice.run_ids)]
    else:
        words: RunChoice = {**choice.words, "states": choice.words["states"] or choice.fallback}
        runs = [run async for run in scheduler.runs.list(**words)]
    return runs, scheduler.now()


async def _each(scheduler: Backend, screen: Screen, verb: str, runs: Sequence[records.Run], act: Act) -> list[Done]:
    """One after the other; that one cannot be helped does not keep the others from it."""
    done = []
    for run in screen.track(runs, verb):
        try:
            done.append(await act(scheduler, run))
        except (Conflict, NotFound) as error:
            if len(runs) == 1:
                raise
            done.append(Done(run, REFUSED, str(error)))
    return done


def _view(done: Done) -> dict[str, object]:
    return {"run_id": done.run.run_id, "state": done.state, "note": done.note, "new_run_id": done.new_id}


def _draw(screen: Screen, done: Sequence[Done]) -> None:
    rows: list[list[Value]] = [
        [short_id(each.run.run_id), describe_run(each.run), state_cell(each.state), each.note] for each in done
    ]
    screen.table(("RUN", "WHAT", "STATE", "NOTE"), rows, cut=("WHAT",), fold=("NOTE",))


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
    screen.answer(done, lambda: _draw_many(screen, done))
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


def _draw_many(screen: Screen, done: ActedRuns) -> None:
    word = "cancelled or asked to stop" if done.action == "cancel" else "run again"
    screen.line(f"{done.done:,} of {done.matched:,} runs were {word}.")
    screen.items("Refused", [f"{run_id}: {why}" for run_id, why in list(done.refused.items())[:20]])
