"""The five approaches, as nothing but settings of one and the same app."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from examples.running import find_service


class Source(NamedTuple):
    """One column of the comparison matrix of the source."""

    name: str
    set_up: str
    overhead: str
    scalability: str
    dependencies: str
    recovery: str


class Approach(NamedTuple):
    """One way to coordinate nodes."""

    name: str
    source: Source
    settings: Mapping[str, str]
    needs: str
    """What runs beside PostgreSQL."""
    nodes: tuple[str, ...] = ("up", "up")
    """The commands of the processes."""
    schedule: str = "* * * * * *"


REDIS = Source("Redis lock", "low", "every execution", "moderate", "Redis", "TTL")
LEADER = Source("Leader election", "medium", "zero", "excellent", "Kubernetes, ZooKeeper, etcd", "election")
QUARTZ = Source("Quartz", "low to medium", "database polling", "good", "database", "cluster")
QUEUE = Source("Queue-based", "medium", "low", "excellent", "Kafka, SQS", "retry")
CRONJOB = Source("K8s CronJob", "low, if Kubernetes exists", "zero", "good", "Kubernetes", "Kubernetes")


def approaches() -> list[Approach]:
    """All five, on the servers that `make services` started, each with names of its own there."""
    mark = secrets.token_hex(4)
    lock = {"MAINSPRING_COORDINATION": "lock", "MAINSPRING_LEASE": f"{find_service('redis')}?prefix=example-{mark}:"}
    election = {"MAINSPRING_LEASE": f"{find_service('etcd')}/example-{mark}"}
    queue = {"MAINSPRING_BROKER": f"{find_service('rabbitmq')}?prefix=example-{mark}."}
    return [
        Approach("Redis lock", REDIS, lock, "Redis"),
        Approach("Leader election", LEADER, election, "etcd"),
        Approach("Clustered database", QUARTZ, {"MAINSPRING_COORDINATION": "cluster"}, "nothing"),
        Approach("Queue-based", QUEUE, queue, "RabbitMQ", ("server", "server", "worker", "worker")),
        # A new process for each run is too slow for jobs of every second, as the source says of CronJobs.
        Approach("CronJob", CRONJOB, {"MAINSPRING_PROCESS_RUNS": "1"}, "nothing", schedule="*/3 * * * * *"),
    ]
