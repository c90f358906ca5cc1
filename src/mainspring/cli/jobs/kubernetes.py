"""`mainspring export`: jobs as CronJobs of Kubernetes. `mainspring import kubernetes` is the way back."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import with_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.model import Job
from mainspring.errors import InvalidInput
from mainspring.sdk.app import Mainspring

MOST = 10_000
"""How many jobs are exported at once."""


@click.command(cls=Verb)
@click.argument("names", nargs=-1, metavar="[JOB]...", shell_complete=complete_job)
@click.option("--kubernetes", is_flag=True, required=True, help="As CronJobs of Kubernetes.")
@click.option("--image", help="The image that has the programs of jobs which run a command.")
@click.option("--strict", is_flag=True, help="Fail if a manifest does not say all of its job.")
@click.pass_obj
def export(session: Session, names: Sequence[str], kubernetes: bool, image: str | None, strict: bool) -> int:
    """Print jobs (all, unless named) as CronJobs, in JSON, which kubectl takes as it takes YAML.

    \b
    mainspring export --kubernetes nightly --image registry/tools:1 | kubectl apply -f -

    What a CronJob cannot say is named on stderr. A job that cannot be a CronJob at all is an error if it is named, and
    is left out with a warning otherwise.
    """
    from mainspring.ops.kubernetes.writing import write_cronjob

    screen = Screen(session)
    manifests, lossy = [], False
    for job in with_app(session, lambda app: _find(app, names)):
        try:
            exported = write_cronjob(job, image)
        except InvalidInput as error:
            if names:
                raise
            screen.warn(f"job {job.name!r} is left out: {error}")
            lossy = True
            continue
        for each in exported.lost:
            screen.warn(f"job {job.name!r}: {each}")
            lossy = True
        manifests.append(exported.manifest)
    single = len(names) == 1 and len(manifests) == 1
    screen.json(manifests[0] if single else {"apiVersion": "v1", "kind": "List", "items": manifests})
    return 1 if strict and lossy else 0


async def _find(app: Mainspring, names: Sequence[str]) -> list[Job]:
    store, namespace = await app.open(), app.settings.namespace
    if names:
        return [await store.get_job(namespace, name) for name in names]
    return await store.list_jobs(namespace, limit=MOST)
