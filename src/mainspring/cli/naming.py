"""Shell completion of names: what the store knows, or nothing if it cannot be asked."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from mainspring.app import Mainspring
from mainspring.cli.opening import with_app
from mainspring.cli.session import Session
from mainspring.errors import MainspringError
from mainspring.lookup import select_jobs, short_id
from mainspring.store import RunFilter

_OFFERED = 50


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of jobs, with their tasks."""

    async def look(app: Mainspring) -> list[CompletionItem]:
        jobs = await select_jobs(app)
        return [CompletionItem(job.name, help=job.task) for job in jobs if job.name.startswith(incomplete)]

    try:
        return with_app(_session(ctx), look)
    except MainspringError:
        return []


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest runs, with what they are and how they are."""

    async def look(app: Mainspring) -> list[CompletionItem]:
        store = await app.open()
        runs = await store.list_runs(RunFilter(app.settings.namespace, limit=_OFFERED))
        offered = {short_id(run.id): f"{run.job or run.task} {run.state}" for run in runs}
        return [CompletionItem(name, help=text) for name, text in offered.items() if name.startswith(incomplete)]

    try:
        return with_app(_session(ctx), look)
    except MainspringError:
        return []


def _session(ctx: click.Context) -> Session:
    return ctx.obj if isinstance(ctx.obj, Session) else Session()
