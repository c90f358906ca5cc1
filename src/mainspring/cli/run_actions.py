"""`mainspring run cancel` and `run retry`: by id, or all that a filter fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Unpack

import click
import msgspec

from mainspring.app import Mainspring
from mainspring.cli.filters import RunWords, care_options, confirm, count_of, run_filters, to_filter
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_run
from mainspring.cli.opening import open_app, with_app
from mainspring.cli.run_tables import describe_run, draw_runs
from mainspring.cli.screen import Screen, Value, state_cell
from mainspring.cli.session import Session
from mainspring.cli.trouble import FAILED as TROUBLE
from mainspring.core.instants import Instant
from mainspring.core.model import Event, Run
from mainspring.core.states import FAILED, FINAL, RUNNING, STATES, State
from mainspring.errors import Conflict, NotFound
from mainspring.lookup import find_run, select_runs, short_id
from mainspring.views import View, run_view

Act = Callable[[Mainspring, Run], Awaitable["Done"]]

REFUSED = "refused"


class Done(NamedTuple):
    """What became of one run."""

    run: Run
    state: str
    """Its state now, or what was done; REFUSED if nothing could be."""
    note: str = ""
    new_id: str | None = None


class Choice(NamedTuple):
    """Which runs to act on, and how careful to be."""

    run_ids: Sequence[str]
    words: RunWords
    fallback: tuple[State, ...]
    """The states to select if none was named."""
    dry_run: bool
    yes: bool


@click.command(cls=Verb)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@run_filters
@care_options
@click.pass_obj
def cancel(
    session: Session, run_ids: Sequence[str], dry_run: bool, yes: bool, reason: str, **words: Unpack[RunWords]
) -> int:
    """Cancel RUNs, or all unfinished ones that the options select. A running one is asked to stop."""

    async def act(app: Mainspring, run: Run) -> Done:
        store = await app.open()
        state = await store.request_cancel(run.namespace, run.id, reason or "cancelled by hand")
        return Done(run, state, "asked to stop" if state == RUNNING else "")

    unfinished = tuple(state for state in STATES if state not in FINAL)
    return _act(session, "Cancel", Choice(run_ids, words, unfinished, dry_run, yes), act)


@click.command(cls=Verb)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@run_filters
@care_options
@click.pass_obj
def retry(
    session: Session, run_ids: Sequence[str], dry_run: bool, yes: bool, reason: str, **words: Unpack[RunWords]
) -> int:
    """Run RUNs again that did not succeed, or all failed ones that the options select: as a new run each."""

    async def act(app: Mainspring, run: Run) -> Done:
        handle = await app.retry(run.id)
        if reason:
            store = await app.open()
            note = Event(
                "run.noted", store.now(), run.namespace, handle.id, run.job_id, run.job, run.task, reason=reason
            )
            await store.tell([note])
        return Done(run, "retried", f"as {short_id(handle.id)}", handle.id)

    return _act(session, "Retry", Choice(run_ids, words, (FAILED,), dry_run, yes), act)


def _act(session: Session, verb: str, choice: Choice, act: Act) -> int:
    selected = any(choice.words.values())
    if selected == bool(choice.run_ids):
        how = "not both" if selected else "e.g. --job NAME or --state failed"
        raise click.UsageError(f"Name runs, or select them with --job, --task, --tag or --state: {how}.")
    app, screen = open_app(session), Screen(session)
    runs, now = with_app(session, lambda app: _choose(app, choice), app=app)
    if choice.dry_run or not runs:
        screen.answer([run_view(run) for run in runs], lambda: draw_runs(screen, runs, now) if runs else None)
        screen.hint(f"{verb} {count_of(runs, 'run')}: nothing was done{', for this was a dry run' if runs else ''}.")
        return 0
    if selected:
        confirm(f"{verb} {count_of(runs, 'run')}?", yes=choice.yes)
    done = with_app(session, lambda app: _each(app, screen, verb, runs, act), app=app)
    screen.answer([_view(each) for each in done], lambda: _draw(screen, done))
    return TROUBLE if any(each.state == REFUSED for each in done) else 0


async def _choose(app: Mainspring, choice: Choice) -> tuple[list[Run], Instant]:
    now = (await app.open()).now()
    if choice.run_ids:
        return [await find_run(app, each) for each in dict.fromkeys(choice.run_ids)], now
    where = to_filter(app.settings.namespace, choice.words)
    return await select_runs(app, msgspec.structs.replace(where, states=where.states or choice.fallback)), now


async def _each(app: Mainspring, screen: Screen, verb: str, runs: Sequence[Run], act: Act) -> list[Done]:
    """One after the other; that one cannot be helped does not keep the others from it."""
    done = []
    for run in screen.track(runs, verb):
        try:
            done.append(await act(app, run))
        except (Conflict, NotFound) as error:
            if len(runs) == 1:
                raise
            done.append(Done(run, REFUSED, str(error)))
    return done


def _view(done: Done) -> View:
    return {"run_id": done.run.id, "state": done.state, "note": done.note, "new_run_id": done.new_id}


def _draw(screen: Screen, done: Sequence[Done]) -> None:
    rows: list[list[Value]] = [
        [short_id(each.run.id), describe_run(each.run), state_cell(each.state), each.note] for each in done
    ]
    screen.table(("RUN", "WHAT", "STATE", "NOTE"), rows, cut=("WHAT",), fold=("NOTE",))
