"""A broker's server in a folder of its own: where it is for Mainspring and for its peers; killed, and started again."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from bench.cluster.servers import services
from bench.harness.running import Failed

PID_FILES = {"rabbitmq": "rabbitmq/pid", "kafka": "kafka/*/kafka.pid", "sqs": "sqs/sqs.pid"}
LABELS = {"rabbitmq": "RabbitMQ", "kafka": "Kafka", "sqs": "SQS"}


class BrokerServer(NamedTuple):
    """One that `scripts/services` has started."""

    name: str
    folder: Path

    @property
    def label(self) -> str:
        """What people call it."""
        return LABELS[self.name]

    @property
    def url(self) -> str:
        """As Mainspring reads it."""
        found = re.search(rf"^MAINSPRING_TEST_{self.name.upper()}=(.*)$", (self.folder / "urls").read_text(), re.M)
        if found is None:
            raise Failed(f"{self.name} has no URL")
        return found[1]

    @property
    def endpoint(self) -> str:
        """Of SQS: the address for HTTP."""
        return parse_qs(urlsplit(self.url).query)["endpoint"][0]

    def own(self, prefix: str, **options: str) -> str:
        """As Mainspring reads it, with a prefix that keeps one measure's messages from the next."""
        words = "&".join(f"{name}={value}" for name, value in {"prefix": prefix, **options}.items())
        return f"{self.url}{'&' if '?' in self.url else '?'}{words}"

    def for_peers(self) -> str:
        """As Celery and Dramatiq (RabbitMQ, SQS) and Taskiq (Kafka) read it."""
        if self.name == "kafka":
            return self.url.removeprefix("kafka://")
        if self.name == "sqs":
            return f"sqs://key:secret@{urlsplit(self.endpoint).netloc}"
        return self.url

    def kill(self) -> None:
        """At once."""
        for file in self.folder.glob(PID_FILES[self.name]):
            os.kill(int(file.read_text().split()[0]), signal.SIGKILL)

    def start(self) -> None:
        """Again, with the data that it has; returns when it answers."""
        services(self.folder, "start", self.name)


@contextmanager
def serving_broker(name: str, folder: Path) -> Iterator[BrokerServer]:
    """A new server, until this is left."""
    folder.mkdir(parents=True)
    server = BrokerServer(name, folder)
    try:
        server.start()
        yield server
    finally:
        services(folder, "stop", name)
