"""The broker port: carries notices of due runs to workers, so that they need not poll the store.

A broker is transport, never the truth. A message names a run and the token that the run had when it was published. A
worker that receives it claims the run from the store, which grants the claim once: to the first worker that asks while
the run is pending, due and of that token. A message that is late, duplicated or forged therefore claims nothing. A lost
message costs time only: the dispatcher publishes again what is due, and workers look at the store once a second, and
all the time while the broker does not answer.

Where many runs are due, only the first of them get messages, which say that there are more: the worker that receives
one claims as many runs as it has room for from the store. A message for each would cost more than the runs themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mainspring.core.instants import Instant
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES


class Place(NamedTuple):
    """Where runs wait: workers serve places."""

    namespace: str
    queue: str
    region: str


class Notice(NamedTuple):
    """A run that is due: where it waits, and what decides its order there."""

    run_id: str
    token: int
    """The run's token; `-1 - token` where more runs of the place and priority are due than have notices. A broker
    passes it on unread. A worker that does not know the negative ones is refused the run, and finds it in the store."""
    namespace: str
    queue: str
    region: str
    priority: int
    due_at: Instant
    order_key: str = ""
    """Runs of one order key keep their order where the broker can: the run's key, else the id of its job. Empty: the
    run has neither, and no order to keep; its id serves where a broker needs a key."""

    @property
    def place(self) -> Place:
        """Where the run waits."""
        return Place(self.namespace, self.queue, self.region)

    def with_more(self) -> Notice:
        """The same, saying that more are due."""
        return self._replace(token=~self.token)


class Delivery(NamedTuple):
    """A message that a subscription received and must acknowledge or release."""

    run_id: str
    token: int
    receipt: object
    """The broker's own."""
    redelivered: bool = False
    """Whether the broker knows that it delivered this message before."""
    sent_at: Instant | None = None
    """When the message was published, by the clock of the publisher or of the broker; None if the broker keeps no
    time."""

    @property
    def more(self) -> bool:
        """Whether more runs are due than have messages."""
        return self.token < 0

    @property
    def claim(self) -> tuple[str, int]:
        """The run and its token, as the store knows it."""
        return self.run_id, ~self.token if self.more else self.token


class Depth(NamedTuple):
    """How many messages wait in one queue or partition of a broker."""

    place: Place
    waiting: int
    source: str = ""
    """The broker's name of the queue, or of the topic with the number of the partition: `jobs.a.b.c.high/3`. Empty
    where the place has one queue without its own name."""


class Capabilities(NamedTuple):
    """What a broker can do. The conformance suite asks accordingly."""

    releases: bool = True
    """A delivery can be put back at once."""
    priorities: bool = True
    """Within a place, the best priority is delivered first."""
    key_order: bool = False
    """Notices of one order key, published one after the other, are delivered in that order."""
    extends: bool = False
    """Deliveries that are held for long must be extended, or another worker receives them."""
    deduplicates: bool = True
    """A notice that waits already, or is on its way to a worker, is not added again. Without it the dispatcher waits
    longer before it publishes again what no worker has claimed."""
    acks_after_work: bool = False
    """A delivery whose run was claimed is acknowledged once the work has ended, not once the claim is committed."""


class Subscription(Protocol):
    """A worker's consumer, from `subscribe` to `close`: group membership, prefetching, rebalances. All methods may be
    repeated, and raise BrokerUnavailable if the broker cannot do it."""

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        """The best of what has arrived, at most `limit`, of these priorities only; an empty list if nothing has.

        It never waits for messages to come: where fetching takes a long poll, a task of the adapter fetches, and this
        takes what that has. An answer that takes longer than 0.2 s counts as a failure. No other subscription receives
        these deliveries unless they are released or stay unacknowledged for a while."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """The claims of these, or their refusals, are committed: forget the messages."""

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Put these back in their order. Where `capabilities.releases` is False, forget them: the dispatcher publishes
        them again."""

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """These are still held. Called only where `capabilities.extends` is True."""

    async def close(self) -> None:
        """Leave, and give back what is held."""


class Broker(Protocol):
    """All methods may be repeated, and raise BrokerUnavailable if the broker cannot do it."""

    @property
    def capabilities(self) -> Capabilities:
        """What this broker can do. It never changes."""

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Put runs where workers of their places receive them."""

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Subscription:
        """Begin to receive what is published in the worker's namespace for its queues and regions. This may take a
        while, where a group must be joined. `on_arrival` is called on the caller's loop soon after something has
        arrived. It is a hint: nothing depends on it."""

    async def depth(self) -> Sequence[Depth]:
        """How many messages wait in each queue or partition, for metrics and scaling. One without any may be missing,
        and so may a place that this process has neither published to nor subscribed to."""

    async def ping(self) -> None:
        """Return if the broker answers and takes messages."""

    async def close(self) -> None:
        """Close all connections."""
