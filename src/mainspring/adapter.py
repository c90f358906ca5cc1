"""The table of adapters: which class serves a URL scheme, which packages it needs, and how it is constructed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from mainspring.clock import Clock, SystemClock
from mainspring.core.answers import ServerFacts
from mainspring.errors import InvalidInput
from mainspring.process.urls import REDIS_SCHEMES, show_url
from mainspring.settings import Settings


def uncounted(_name: str, _label: str) -> None:
    """The counter of a context without metrics: does nothing."""


@dataclass(frozen=True)
class AdapterContext:
    """What adapters need beside their URL. An adapter takes what it needs and connects when it is first used."""

    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=SystemClock)
    count: Callable[[str, str], None] = uncounted
    """Count one more of a metric, by name and label: `count("leases", "taken")`."""


@runtime_checkable
class Describes(Protocol):
    """What an adapter of any port may offer besides: `mainspring doctor` asks for it."""

    async def describe(self) -> ServerFacts:
        """What the server says of itself."""


GROUP: Final = "mainspring.adapters"
"""The entry point group of adapters in other packages: `"broker.scheme" = "package.module:Class"`."""


class Adapter(NamedTuple):
    """The class of an adapter, and the packages that it needs."""

    module: str
    name: str
    extra: str = ""
    """The extra that installs its packages: `pip install 'mainspring[extra]'`."""
    packages: tuple[str, ...] = ()
    """The modules that the extra provides."""


def _on_redis(module: str, name: str) -> dict[str, Adapter]:
    return dict.fromkeys(REDIS_SCHEMES, Adapter(module, name, "redis", ("redis", "hiredis")))


def _tls(scheme: str, adapter: Adapter) -> dict[str, Adapter]:
    """The entries of an adapter whose scheme exists with and without TLS."""
    return {scheme: adapter, f"{scheme}s": adapter}


ADAPTERS: Final[Mapping[str, Mapping[str, Adapter]]] = {
    "broker": {
        **_on_redis("mainspring.brokers.redis", "RedisBroker"),
        **_tls("amqp", Adapter("mainspring.brokers.rabbitmq", "RabbitMqBroker", "rabbitmq", ("aio_pika",))),
        **_tls("kafka", Adapter("mainspring.brokers.kafka", "KafkaBroker", "kafka", ("aiokafka",))),
        "sqs": Adapter("mainspring.brokers.sqs", "SqsBroker", "sqs", ("aiobotocore",)),
    },
    "lease": {
        **_on_redis("mainspring.leases.redis", "RedisLease"),
        **_tls("redlock", Adapter("mainspring.leases.redlock", "RedlockLease", "redis", ("redis", "hiredis"))),
        **_tls("etcd", Adapter("mainspring.leases.etcd", "EtcdLease")),
        **_tls("zookeeper", Adapter("mainspring.leases.zookeeper", "ZooKeeperLease", "zookeeper", ("kazoo",))),
        "kubernetes": Adapter("mainspring.leases.kubernetes", "KubernetesLease", "kubernetes", ("yaml",)),
    },
    "cache": _on_redis("mainspring.caches.redis", "RedisStatusCache"),
    "limiter": _on_redis("mainspring.limiters.redis", "RedisLimiter"),
    "sink": _tls("kafka", Adapter("mainspring.sinks.kafka", "KafkaSink", "kafka", ("aiokafka",))),
}
"""Port → URL scheme → adapter of this package. Each class takes `(url, AdapterContext)`."""
WITHOUT: Final = {
    "broker": "workers claim from the store",
    "lease": "the store elects",
    "cache": "the store is asked",
    "limiter": "the store counts",
    "sink": "events stay in the store",
}
"""What takes the place of each port without an adapter; part of error messages."""


def find_adapter(port: str, url: str) -> Adapter | EntryPoint | None:
    """The adapter of a port that a URL names: one of this package, or of another that is installed."""
    scheme = url.partition("://")[0]
    known = ADAPTERS[port].get(scheme)
    return known or next(iter(entry_points(group=GROUP, name=f"{port}.{scheme}")), None)


def schemes_of(port: str) -> list[str]:
    """The URL schemes of a port that are installed here."""
    others = [each.name.partition(".") for each in entry_points(group=GROUP)]
    return sorted({*ADAPTERS[port], *(scheme for kind, _, scheme in others if kind == port)})


def open_adapter(port: str, url: str, context: AdapterContext) -> Any:
    """The adapter that a URL names; InvalidInput says what is wrong with it."""
    found = find_adapter(port, url)
    if found is None:
        schemes = ", ".join(schemes_of(port)) or "none"
        remedy = f"the schemes are {schemes}; or leave it out: then {WITHOUT[port]}"
        raise InvalidInput(port, show_url(url), f"names no kind of {port} that is known here", remedy)
    if isinstance(found, EntryPoint):
        return found.load()(url, context)
    need_packages(port, url, found.extra, found.packages)
    return getattr(import_module(found.module), found.name)(url, context)


def need_packages(field: str, url: str, extra: str, packages: Sequence[str]) -> None:
    """InvalidInput, if a package is not installed that a URL of this field needs."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        problem = f"needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise InvalidInput(field, show_url(url), problem, f"pip install 'mainspring[{extra}]'")
