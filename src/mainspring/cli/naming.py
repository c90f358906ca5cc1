"""Names that people type: ids in part, and shell completion of what the scheduler knows, or nothing if it cannot be
asked."""

from __future__ import annotations

from difflib import get_close_matches

import click
from click.shell_completion import CompletionItem

from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.session import Session
from mainspring.core.ids import LENGTH
from mainspring.errors import InvalidInput, MainspringError, NotFound
from mainspring.operations import records
from mainspring.operations.views.explain import short_id

_OFFERED = 50
_SHOWN_MATCHES = 4
_LOOKED_THROUGH = 5_000
"""How many names a mistyped one is compared with: the answer comes at once, however many jobs there are."""


async def find_run(scheduler: Backend, text: str) -> records.Run:
    """The run whose id is, begins or ends with the given text."""
    typed = text.strip()
    found = await scheduler.runs.find(typed, _SHOWN_MATCHES) if typed else []
    if not found and len(typed) == LENGTH:
        return await scheduler.runs.get(typed)  # If it is no longer kept, the error says what the ledger knows.
    if not found:
        raise NotFound(f"there is no run {text!r}: `mainspring run list` shows those that are kept")
    if len(found) > 1:
        several = f"fits several runs, among them {', '.join(run.run_id for run in found)}"
        raise InvalidInput("run", text, several, "give more of its characters")
    return found[0]


async def find_job(scheduler: Backend, name: str) -> records.JobStory:
    """The job of this name or id; NotFound says which name may have been meant."""
    try:
        return await scheduler.jobs.get(name)
    except NotFound:
        names: list[str] = []
        async for job in scheduler.jobs.list():
            names.append(job.name)
            if len(names) == _LOOKED_THROUGH:
                break
        if not (near := get_close_matches(name, names, n=1)):
            raise
    raise NotFound(f"there is no job {name!r}: did you mean {near[0]}?")


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of jobs, with their tasks."""

    async def look(scheduler: Backend) -> list[CompletionItem]:
        jobs = [job async for job in scheduler.jobs.list()]
        return [CompletionItem(job.name, help=job.task) for job in jobs if job.name.startswith(incomplete)]

    try:
        return with_scheduler(_session(ctx), look)
    except MainspringError:
        return []


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest runs, with what they are and how they are."""

    async def look(scheduler: Backend) -> list[CompletionItem]:
        runs = [run async for run in scheduler.runs.list(limit=_OFFERED)]
        offered = {short_id(run.run_id): f"{run.job or run.task} {run.state}" for run in runs}
        return [CompletionItem(name, help=text) for name, text in offered.items() if name.startswith(incomplete)]

    try:
        return with_scheduler(_session(ctx), look)
    except MainspringError:
        return []


def _session(ctx: click.Context) -> Session:
    return ctx.obj if isinstance(ctx.obj, Session) else Session()
