"""Which coordination, queue, store and how many workers fit a situation, why, and what would change the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Literal, NamedTuple, get_args

import msgspec

from mainspring.ops.advice.matrices import (
    APPROACHES,
    ELECTORS,
    HIGH_PER_DAY,
    IMMEDIATE_MS,
    LOW_PER_DAY,
    MOST_LOCKING_INSTANCES,
    QUEUES,
    TARGET_UTILISATION,
    ULTRA_PER_DAY,
    Approach,
    Elector,
    Pattern,
    Queue,
)

Infrastructure = Literal["postgres", "redis", "kubernetes", "kafka", "aws", "rabbitmq", "etcd", "zookeeper"]
INFRASTRUCTURE: Sequence[Infrastructure] = get_args(Infrastructure)
DAY_S = 86_400


class Situation(msgspec.Struct, frozen=True):
    """What is known of a system."""

    runs_per_day: int
    instances: int = 1
    latency_ms: int = 60_000
    """How long after it is due a run may start."""
    run_s: float = 1.0
    """How long a run takes."""
    peak: float = 10.0
    """How many times the mean rate the busiest minutes have."""
    complex_schedules: bool = False
    priorities: bool = False
    have: tuple[Infrastructure, ...] = ()
    concurrency: int = 10
    """Runs at once in one worker."""


class Change(msgspec.Struct, frozen=True):
    """What would change the answer, and to what."""

    if_: str = msgspec.field(name="if")
    then: str


class Advice(msgspec.Struct, frozen=True):
    """The answer."""

    approach: Approach
    coordination: Literal["leader", "cluster", "lock"]
    elector: Elector
    queue: Queue | None
    """None: workers claim from the store."""
    store: Literal["sqlite", "postgres"]
    workers: int
    places: int
    settings: dict[str, str]
    reasons: list[str]
    changes: list[Change]


class Branch(NamedTuple):
    """A leaf of the decision tree, and when it is reached."""

    when: str
    applies: Callable[[Situation], bool]
    pattern: Pattern


TREE: Sequence[Branch] = (
    Branch("more than 10,000,000 runs a day", lambda it: it.runs_per_day > ULTRA_PER_DAY, "fleet"),
    Branch("one instance", lambda it: it.instances <= 1, "single"),
    Branch(
        "fewer than 1,000 runs a day on up to 20 instances",
        lambda it: it.runs_per_day < LOW_PER_DAY and it.instances <= MOST_LOCKING_INSTANCES,
        "lock",
    ),
    Branch(
        "up to 100,000 runs a day, simple schedules, Kubernetes",
        lambda it: (
            LOW_PER_DAY <= it.runs_per_day <= HIGH_PER_DAY and not it.complex_schedules and "kubernetes" in it.have
        ),
        "kubernetes",
    ),
    Branch("up to 100,000 runs a day", lambda it: it.runs_per_day <= HIGH_PER_DAY, "cluster"),
    Branch("more runs that start within a second", lambda it: it.latency_ms <= IMMEDIATE_MS, "queue"),
    Branch("more runs that are due at given times", lambda it: True, "wheel"),
)
"""The decision tree, flat: the first branch that applies is the leaf."""


def choose_pattern(situation: Situation) -> tuple[Pattern, str]:
    """Walk the decision tree; the reason is the branch that was taken."""
    branch = next(branch for branch in TREE if branch.applies(situation))
    return branch.pattern, f"{situation.runs_per_day:,} runs a day on {situation.instances} instance(s): {branch.when}"


def choose_queue(situation: Situation, pattern: Pattern) -> tuple[Queue | None, str]:
    """The queue that carries the peak in time, of those that exist or, for the largest volumes, of all."""
    peak = situation.runs_per_day / DAY_S * situation.peak
    if pattern not in ("queue", "wheel", "fleet"):
        return None, "workers claim from the store: at this volume a queue adds a service and no speed"
    owned = {"kafka": "kafka", "aws": "sqs", "rabbitmq": "rabbitmq", "redis": "redis"}
    present = {owned[each] for each in situation.have if each in owned}
    fitting = [each for each in QUEUES if each.per_second >= peak and each.latency_ms <= situation.latency_ms]
    if situation.priorities and any(each.priorities for each in fitting):
        fitting = [each for each in fitting if each.priorities]
    # Kafka for the largest volumes, RabbitMQ for priorities, before what happens to be there.
    wanted = "rabbitmq" if situation.priorities else "kafka"
    ranked = sorted(fitting, key=lambda each: (each.name not in present, each.name != wanted, each.latency_ms))
    if not ranked:
        return (
            None,
            f"no queue carries {peak:,.0f} runs a second within {situation.latency_ms} ms: claim from the store",
        )
    best = ranked[0]
    if best.name not in present and pattern == "wheel":
        return None, "the store's own priorities and time wheel carry this volume; add a queue where one exists"
    place = "it is there already" if best.name in present else "nothing that is there fits"
    return (
        best,
        f"{best.name} carries {best.per_second:,} a second in {best.latency_ms} ms; the peak is {peak:,.0f}; {place}",
    )


def choose_elector(situation: Situation, pattern: Pattern) -> tuple[Elector, str]:
    """The elector: the store's own, unless the pattern names another one that is there."""
    by_name = {each.name: each for each in ELECTORS}
    if pattern == "kubernetes":
        return by_name["kubernetes"], "Kubernetes has leases: nothing to set up, failover within 5 s"
    if pattern == "lock" and "redis" in situation.have:
        return by_name["redis"], "Redis is there: a lock costs less than a millisecond"
    if pattern == "fleet":
        for name in ("etcd", "zookeeper"):
            if name in situation.have:
                return by_name[name], f"{name} is there: elections put no load on the store"
    return by_name["store"], "the store's own lease: nothing to set up, failover within 2 s"


def advise(situation: Situation) -> Advice:
    """The advice for a situation, with what would change it."""
    here = _decide(situation)
    differences = [(name, _difference(here, other)) for name, other in _variations(situation)]
    return msgspec.structs.replace(here, changes=[Change(name, other) for name, other in differences if other])


def _decide(situation: Situation) -> Advice:
    pattern, why = choose_pattern(situation)
    queue, why_queue = choose_queue(situation, pattern)
    elector, why_elector = choose_elector(situation, pattern)
    coordination: Literal["leader", "cluster", "lock"] = "leader"
    if pattern in ("lock", "cluster"):
        coordination = "lock" if pattern == "lock" else "cluster"
    store: Literal["sqlite", "postgres"] = "sqlite" if pattern == "single" else "postgres"
    why_store = "one file is enough for one machine" if store == "sqlite" else "several instances share one database"
    places = max(ceil(situation.runs_per_day / DAY_S * situation.peak * situation.run_s / TARGET_UTILISATION), 1)
    workers = max(ceil(places / situation.concurrency), 1 if pattern == "single" else 2)
    why_workers = (
        f"{places:,} runs at once in the peak ({situation.peak:g} times the mean, {situation.run_s:.3g} s each, "
        f"{TARGET_UTILISATION:.0%} used), {situation.concurrency} in a worker"
    )
    settings = _settings(pattern, coordination, store, elector, queue)
    approach = next(each for each in APPROACHES if each.pattern == pattern)
    reasons = [why, f"queue: {why_queue}", f"elector: {why_elector}", f"store: {why_store}", f"workers: {why_workers}"]
    return Advice(approach, coordination, elector, queue, store, workers, places, settings, reasons, [])


def _settings(pattern: Pattern, coordination: str, store: str, elector: Elector, queue: Queue | None) -> dict[str, str]:
    urls = {"sqlite": "sqlite:///mainspring.db", "postgres": "postgresql://mainspring@db/mainspring"}
    settings = {"MAINSPRING_STORE": urls[store]}
    if coordination != "leader":
        settings["MAINSPRING_COORDINATION"] = coordination
    if elector.url:
        settings["MAINSPRING_LEASE"] = elector.url
    if queue is not None:
        settings["MAINSPRING_BROKER"] = queue.url
    if pattern == "fleet":
        settings["MAINSPRING_SHARDS"] = "4"
    return settings


def _variations(situation: Situation) -> Iterator[tuple[str, Advice]]:
    def varied(**changes: object) -> Advice:
        return _decide(msgspec.structs.replace(situation, **changes))

    for limit in (LOW_PER_DAY, HIGH_PER_DAY, ULTRA_PER_DAY):
        if situation.runs_per_day > limit:
            yield f"fewer than {limit:,} runs a day", varied(runs_per_day=limit - 1)
        else:
            yield f"more than {limit:,} runs a day", varied(runs_per_day=limit + 1)
    if situation.instances > 1:
        yield "one instance", varied(instances=1)
    else:
        yield "several instances", varied(instances=3)
    if situation.latency_ms > IMMEDIATE_MS:
        yield f"runs must start within {IMMEDIATE_MS} ms", varied(latency_ms=IMMEDIATE_MS)
    else:
        yield "runs may start a minute late", varied(latency_ms=60_000)
    flips = {"complex_schedules": "complex schedules", "priorities": "priorities"}
    for field, name in flips.items():
        now = getattr(situation, field)
        yield f"{'no ' if now else ''}{name}", varied(**{field: not now})
    for each in INFRASTRUCTURE:
        if each not in situation.have:
            yield f"{each} is there", varied(have=(*situation.have, each))


def _summary(advice: Advice) -> tuple[str, str, str, str]:
    queue = "no queue" if advice.queue is None else advice.queue.name
    return advice.approach.known_as, queue, f"elected by {advice.elector.name}", advice.store


def _difference(one: Advice, other: Advice) -> str:
    return "; ".join(new for old, new in zip(_summary(one), _summary(other), strict=True) if old != new)
