"""Cron for all data centers: one elected controller schedules, workers of each region execute.

Settings: `MAINSPRING_STORE`, `MAINSPRING_LEASE` (`etcd://` or `zookeeper://`), `MAINSPRING_BROKER`
(`kafka://…?names=cron-jobs-{region}&bands=1-10`), `DATABASE_URL`, `CRON_CONFIG`, and `DATACENTER` for workers.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from mainspring import Mainspring, Retry, cron, current_run

CONFIG = Path(os.environ.get("CRON_CONFIG", Path(__file__).with_name("jobs.toml")))
DATACENTER = os.environ.get("DATACENTER", "none")
log = logging.getLogger("google")

app = Mainspring(name="google")


class CronJob(msgspec.Struct, forbid_unknown_fields=True):
    """One job of the configuration."""

    name: str
    type: str
    schedule: str


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The configuration file."""

    regions: list[str]
    job: list[CronJob]


@app.lifespan
async def database() -> AsyncIterator[Any]:
    """The connection pool of each worker."""
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=5) as pool:
        yield pool


@app.on_leader
def on_become_leader(term: Any) -> None:
    """Runs in the controller that begins to lead. The scheduler itself starts and stops without it."""
    log.warning("this controller leads, term %d", term.number)


@app.task(name="CACHE_CLEAR", retry=Retry(3, delay="1s"))
async def clear_cache() -> int:
    """Empty the cache of this data center."""
    answer = await app.state.execute("DELETE FROM google.cache WHERE region = $1", DATACENTER)
    return await _done(int(answer.split()[-1]))


@app.task(name="METRICS_EXPORT", retry=Retry(3, delay="1s"))
async def export_metrics() -> int:
    """Export how many objects this data center holds."""
    return await _done(await app.state.fetchval("SELECT count(*) FROM google.objects WHERE region = $1", DATACENTER))


@app.task(name="GARBAGE_COLLECTION", retry=Retry(3, delay="1s"))
async def collect_garbage() -> int:
    """Delete the objects of this data center that nothing refers to."""
    answer = await app.state.execute("DELETE FROM google.objects WHERE region = $1 AND NOT referenced", DATACENTER)
    return await _done(int(answer.split()[-1]))


@app.task(batch=500, batch_wait="20ms")
async def probe(probes: list[tuple[int, float]]) -> list[bool]:
    """Note health probes: very many small tasks, with one statement for a batch of them."""
    await app.state.execute(
        "INSERT INTO google.probes SELECT *, clock_timestamp() FROM unnest($1::bigint[], $2::double precision[])"
        " ON CONFLICT DO NOTHING",
        [number for number, _ in probes],
        [sent_at for _, sent_at in probes],
    )
    return [True] * len(probes)


async def _done(figure: int) -> int:
    run = current_run()
    await app.state.execute(
        "INSERT INTO google.done VALUES ($1, $2, $3, $4, $5, $6)",
        run.job, DATACENTER, run.fire_at, run.id, os.getpid(), figure,
    )  # fmt: skip
    return figure


def declare_jobs(config: Config) -> None:
    """Declare each job of the configuration: one run for each region and instant."""
    tasks = {task.name: task for task in (clear_cache, export_metrics, collect_garbage)}
    for job in config.job:
        if job.type not in tasks:
            raise ValueError(f"{CONFIG}: job {job.name} has the unknown type {job.type}: use one of {sorted(tasks)}")
        declare = app.job(cron(job.schedule), name=job.name, regions=config.regions, misfire="all", grace="5s")
        declare(tasks[job.type])


declare_jobs(msgspec.convert(tomllib.loads(CONFIG.read_text()), Config))
