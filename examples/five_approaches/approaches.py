"""The five approaches, as nothing but settings of one and the same app."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from examples.running import find_service


class Approach(NamedTuple):
    """One way to coordinate nodes."""

    name: str
    settings: Mapping[str, str]
    needs: str
    """What runs beside PostgreSQL."""
    nodes: tuple[str, ...] = ("up", "up")
    """The commands of the processes."""
    schedule: str = "* * * * * *"


def approaches() -> list[Approach]:
    """All five, on the servers that `make services` started, each with names of its own there."""
    mark = secrets.token_hex(4)
    return [
        Approach(
            "Redis lock",
            {
                "MAINSPRING_COORDINATION": "lock",
                "MAINSPRING_LEASE": f"{find_service('redis')}?prefix=example-{mark}:",
            },
            "Redis",
        ),
        Approach("Leader election", {"MAINSPRING_LEASE": f"{find_service('etcd')}/example-{mark}"}, "etcd"),
        Approach("Clustered database", {"MAINSPRING_COORDINATION": "cluster"}, "nothing"),
        Approach(
            "Queue-based",
            {"MAINSPRING_BROKER": f"{find_service('rabbitmq')}?prefix=example-{mark}."},
            "RabbitMQ",
            ("server", "server", "worker", "worker"),
        ),
        # A new process for each run is too slow for jobs of every second, as the source says of CronJobs.
        Approach(
            "CronJob",
            {"MAINSPRING_PROCESS_RUNS": "1"},
            "nothing; a new process for each run",
            schedule="*/3 * * * * *",
        ),
    ]
