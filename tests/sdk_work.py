"""What a worker does, for tests that need runs to end."""

from __future__ import annotations

from typing import Any

from mainspring import Mainspring, RunHandle
from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Job, Report, Run, Worker
from mainspring.core.schedules.triggers import Trigger
from mainspring.core.states import FAILED, SUCCEEDED


async def claim(app: Mainspring) -> list[Claim]:
    """Take what is due in the default queue."""
    store = await app.open()
    return await store.claim(Worker(id="w", tasks=tuple(app.tasks)), 100, 10 * SECOND, "strict")


async def work(app: Mainspring) -> int:
    """Take what is due, run it, report; how many runs that were."""
    claims = await claim(app)
    reports = []
    for each in claims:
        task = app.tasks[each.task]
        try:
            result = task.encode_result(task.function(**task.decode_args(each.args)))
            reports.append(Report(each.run_id, each.token, "succeeded", SUCCEEDED, result=result))
        except Exception as error:
            reports.append(Report(each.run_id, each.token, "failed", FAILED, reason=repr(error)))
    await (await app.open()).report(reports)
    return len(claims)


async def stored(app: Mainspring, handle: RunHandle[Any]) -> Run:
    """The run as the store has it."""
    return await stored_run(app, handle.id)


async def stored_run(app: Mainspring, run_id: str) -> Run:
    """The same, by id."""
    return await (await app.open()).get_run(app.settings.namespace, run_id)


async def row_of(handle: RunHandle[Any]) -> Run:
    """The same, of the app that submitted it."""
    return await stored(handle._app, handle)


async def add_stored(app: Mainspring, name: str, trigger: Trigger, **words: Any) -> Job:
    """Add a job; as the store has it."""
    added = await app.jobs.add(name, trigger, **words)
    return await (await app.open()).get_job(app.settings.namespace, added.job_id)
