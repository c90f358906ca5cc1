"""The contestants on each broker. A peer is measured twice where it can keep results in PostgreSQL, as Mainspring does:
with them, and without."""

from __future__ import annotations

from dataclasses import replace

from bench.cluster.contestants import CELERY, DRAMATIQ, MAINSPRING, TASKIQ, Contestant

CELERY_RESULTS = replace(
    CELERY,
    label="Celery, results",
    unfinished="SELECT {count} - count(*) FROM celery_taskmeta WHERE status = 'SUCCESS'",
    count=2_000,
)
DRAMATIQ_RESULTS = replace(
    DRAMATIQ, label="Dramatiq, results", unfinished="SELECT {count} - count(*) FROM results", count=10_000
)
TASKIQ_RESULTS = replace(
    TASKIQ, label="Taskiq, results", unfinished="SELECT {count} - count(*) FROM taskiq_results", count=10_000
)
SLOW, SLOWER = 2_000, 1_000
"""Runs of a backlog on SQS: peers send one message by a request."""
ON: dict[str, tuple[Contestant, ...]] = {
    "rabbitmq": (MAINSPRING, CELERY_RESULTS, CELERY, DRAMATIQ_RESULTS, DRAMATIQ),
    "kafka": (MAINSPRING, TASKIQ_RESULTS, TASKIQ),
    "sqs": (MAINSPRING, replace(CELERY_RESULTS, count=SLOWER), replace(CELERY, count=SLOW)),
}


def keeps_results(contestant: Contestant) -> bool:
    """Whether its results are in PostgreSQL."""
    return contestant.on_postgres


def counting(contestant: Contestant, count: int) -> Contestant:
    """The same, whose table of results is full after this many runs."""
    if "{count}" not in contestant.unfinished:
        return contestant
    return replace(contestant, unfinished=contestant.unfinished.format(count=count))
