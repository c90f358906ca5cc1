"""The comparisons behind `mainspring advise`, as data: patterns, queues, electors, design questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

LOW_PER_DAY, HIGH_PER_DAY, ULTRA_PER_DAY = 1_000, 100_000, 10_000_000
"""Where the decision tree branches: runs a day."""
MOST_LOCKING_INSTANCES = 20
"""Beyond this many instances every trigger is contended for too often: one leader is cheaper than a lock each time."""
IMMEDIATE_MS = 1_000
"""A run that must start within this time after it is submitted is not scheduled, it is queued."""
TARGET_UTILISATION = 0.8

Pattern = Literal["single", "lock", "cluster", "kubernetes", "queue", "wheel", "fleet"]
Complexity = Literal["low", "medium", "high"]


class Approach(msgspec.Struct, frozen=True):
    """A way to coordinate, as the literature names it."""

    pattern: Pattern
    known_as: str
    setup: Complexity
    overhead: str
    scales: str
    needs: str
    best_for: str


APPROACHES: Sequence[Approach] = (
    Approach("single", "one instance with a timer", "low", "none", "one machine", "nothing", "no failover"),
    Approach("lock", "distributed lock around each job", "low", "a lock for every firing", "moderate",
             "Redis, or the store", "few jobs, up to 20 instances"),
    Approach("cluster", "cluster on the database (as Quartz)", "low", "row locks of due jobs", "good", "the store",
             "complex schedules, history, no further service"),
    Approach("kubernetes", "leader by Kubernetes lease, or CronJob", "low", "none for a firing", "good", "Kubernetes",
             "containers, isolation of each run"),
    Approach("queue", "message queue and workers", "medium", "low", "excellent", "Kafka, SQS, RabbitMQ or Redis",
             "high volume that starts at once"),
    Approach("wheel", "time wheel and priority queue", "medium", "none for a firing", "excellent",
             "the store; a queue with priorities", "high volume at given times"),
    Approach("fleet", "leader, message queue, worker pool, autoscaling", "high", "none for a firing", "excellent",
             "PostgreSQL, Kafka, an elector", "more than 10 million runs a day"),
)  # fmt: skip

QueueName = Literal["kafka", "sqs", "rabbitmq", "redis"]


class Queue(msgspec.Struct, frozen=True):
    """A message queue beside the others."""

    name: QueueName
    per_second: int
    latency_ms: int
    """The upper end of what is usual."""
    ordering: str
    retention: str
    setup: str
    cost: str
    priorities: bool
    best_for: str
    url: str


QUEUES: Sequence[Queue] = (
    Queue("kafka", 1_000_000, 10, "by partition", "days or weeks", "complex", "self-hosted", False, "high volume",
          "kafka://broker1:9092,broker2:9092"),
    Queue("sqs", 3_000, 100, "FIFO queues", "14 days at most", "none (managed)", "$0.40 a million", False, "AWS",
          "sqs://eu-central-1"),
    Queue("rabbitmq", 50_000, 5, "by queue", "until consumed", "medium", "self-hosted", True, "priorities, routing",
          "amqp://user@rabbitmq:5672/"),
    Queue("redis", 50_000, 5, "by key", "until consumed", "simple", "self-hosted", True, "where Redis is there already",
          "redis://redis:6379/0"),
)  # fmt: skip

ElectorName = Literal["store", "redis", "kubernetes", "zookeeper", "etcd"]


class Elector(msgspec.Struct, frozen=True):
    """A way to elect a leader beside the others."""

    name: ElectorName
    failover_s: float
    """The upper end of what is usual; of the store's own lease, what Mainspring keeps by default."""
    setup: str
    complexity: Complexity
    url: str


ELECTORS: Sequence[Elector] = (
    Elector("store", 2, "none", "low", ""),
    Elector("redis", 30, "simple", "low", "redis://redis:6379/0"),
    Elector("kubernetes", 5, "none (native)", "low", "kubernetes://default/mainspring"),
    Elector("zookeeper", 1, "complex", "high", "zookeeper://zk1,zk2,zk3/mainspring"),
    Elector("etcd", 2, "medium", "medium", "etcd://etcd1:2379,etcd2:2379,etcd3:2379"),
)


class Question(msgspec.Struct, frozen=True):
    """A design question, and its two answers with an example each."""

    question: str
    first: str
    second: str


QUESTIONS: Sequence[Question] = (
    Question("Immediate or delayed?", "within seconds: a queue (video encoding)", "later: time wheel (weekly reports)"),
    Question("One instance or several?", "one: a timer (a personal site)", "several: lock or leader (a service)"),
    Question("Push or pull?", "push: workers listen to a queue", "pull: workers claim from the store"),
    Question("Priorities or first come?", "priorities: payments before analytics", "first come: log processing"),
)
