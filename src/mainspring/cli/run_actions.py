"""`mainspring run cancel` and `run retry`: by id, or all that a filter fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Unpack

import click
import msgspec

from mainspring.app import Mainspring
from mainspring.cli.filters import RunWords, care_options, confirm, run_filters, to_filter
from mainspring.cli.lazy import Verb
from mainspring.cli.lookup import find_run, select_runs, short_id
from mainspring.cli.naming import complete_run
from mainspring.cli.opening import with_app
from mainspring.cli.run_tables import draw_runs
from mainspring.cli.screen import Cell, Screen, Value, state_cell
from mainspring.cli.session import Session
from mainspring.cli.trouble import FAILED
from mainspring.cli.views import View, run_view
from mainspring.core.model import Event, Run
from mainspring.core.states import STATES, FINAL, State
from mainspring.errors import Conflict, NotFound

Act = Callable[[Mainspring, Run], Awaitable["Done"]]


class Done(NamedTuple):
    """What became of one run."""

    run: Run
    state: str
    """Its state now; `refused` if nothing could be done."""
    note: str = ""
    new_id: str | None = None


class Care(NamedTuple):
    """How careful to be."""

    dry_run: bool
    yes: bool
    reason: str


@click.command(cls=Verb)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@run_filters
@care_options
@click.pass_obj
def cancel(session: Session, run_ids: Sequence[str], dry_run: bool, yes: bool, reason: str, **words: Unpack[RunWords]) -> int:
    """Cancel RUNs, or all unfinished ones that the options select. A running one is asked to stop."""
    why = reason or "cancelled by hand"

    async def act(app: Mainspring, run: Run) -> Done:
        state = await (await app.open()).request_cancel(run.namespace, run.id, why)
        return Done(run, state, "asked to stop" if state == "running" else "")

    words["states"] = words["states"] or tuple(state for state in STATES if state not in FINAL)
    return _act(session, "Cancel", run_ids, words, Care(dry_run, yes, reason), act)


@click.command(cls=Verb)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@run_filters
@care_options
@click.pass_obj
def retry(session: Session, run_ids: Sequence[str], dry_run: bool, yes: bool, reason: str, **words: Unpack[RunWords]) -> int:
    """Run RUNs again that did not succeed, or all failed ones that the options select: a new run of the same work each."""

    async def act(app: Mainspring, run: Run) -> Done:
        handle = await app.retry(run.id)
        store = await app.open()
        if reason:
            told = Event("run.noted", store.now(), run.namespace, handle.id, run.job_id, run.job, run.task, reason=reason)
            await store.tell([told])
        return Done(run, "retried", f"as {short_id(handle.id)}", handle.id)

    words["states"] = words["states"] or ("failed",)
    return _act(session, "Retry", run_ids, words, Care(dry_run, yes, reason), act)


def _act(session: Session, verb: str, run_ids: Sequence[str], words: RunWords, care: Care, act: Act) -> int:
    ...
