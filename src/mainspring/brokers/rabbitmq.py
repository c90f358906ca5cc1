"""The broker on RabbitMQ: a durable queue for each namespace, queue and region.

Queues are classic with `x-max-priority`, or quorum queues with a queue per priority (`queues=quorum`). Messages are
persistent and published with confirms, to an exchange that routes by the queue's name. What cannot be read is rejected
to the dead-letter queue.

A subscription has its own connection: while RabbitMQ is short of memory it stops reading from connections that
publish, and acknowledgements must go on. It consumes while its worker asks, and prefetches what the worker asks for.
Messages that the worker leaves in the inbox go back, and consuming pauses until the worker asks again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import AMQPError, ChannelNotFoundEntity, ChannelPreconditionFailed
from pamqp.commands import Basic

from mainspring.adapter import AdapterContext
from mainspring.broker import Capabilities, Delivery, Depth, Notice, Subscription
from mainspring.brokers.inbox import Inbox
from mainspring.brokers.layout import LAYOUT_OPTIONS, Destination, Layout, Naming, decode, encode
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import Instant
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.drivers.amqp.link import OPTIONS, AmqpLink, describe_node, open_channel
from mainspring.drivers.ending import end
from mainspring.drivers.per_loop import PerLoop
from mainspring.drivers.pulse import Pulse
from mainspring.errors import BrokerUnavailable

T = TypeVar("T")

NAMING: Final = Naming("jobs.{namespace}.{queue}.{region}", ".", 255, "#", "A-Za-z0-9_.:@#,/+ -")
DEAD_LETTERS: Final = "jobs.dlq"
MAX_PRIORITY: Final = 10
PREFETCH: Final = 100
"""The most that a subscription holds of a queue, unless the URL says otherwise."""
SENT_AT: Final = "sent_at"
"""The header that holds when a message was published, in microseconds: AMQP's own timestamp has seconds only."""
RECONNECT_S: Final = 0.5
LEAVE_S: Final = 3.0
"""A subscription that is closed closes its connection within this time."""
GIVE_UP_S: Final = 5.0
"""A connection without an answer for this long is made anew."""
AT_ONCE: Final = 500
"""Messages that are published before their confirms are awaited."""


class _Topology:
    """Declares queues, exchange and dead-letter queue, as the URL asks."""

    def __init__(self, link: AmqpLink) -> None:
        url = link.url
        self._link = link
        self.kind = url.choice("queues", ("classic", "quorum"), "classic")
        self.exchange = url.options.get("exchange", "")
        self._dead_letters = url.options.get("prefix", "") + url.options.get("dead_letters", DEAD_LETTERS)

    def arguments(self) -> dict[str, Any]:
        """The arguments of a queue. RabbitMQ refuses to declare an existing queue with other arguments."""
        kind = {"x-queue-type": "quorum"} if self.kind == "quorum" else {"x-max-priority": MAX_PRIORITY}
        return {**kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": self._dead_letters}

    async def declare(self, channel: AbstractChannel, names: Sequence[str]) -> int:
        """Make queues that do not exist; how many messages wait in the last."""
        waiting = 0
        await channel.queue_declare(self._dead_letters, durable=True)
        if self.exchange:
            await channel.exchange_declare(exchange=self.exchange, exchange_type="direct", durable=True)
        for name in names:
            try:
                declared = await channel.queue_declare(name, durable=True, arguments=self.arguments())
            except ChannelPreconditionFailed as error:
                remedy = "delete it, or name the same queues= and dead_letters= as the program that made it"
                raise self._link.unavailable(f"the queue {name} is of another kind ({error}): {remedy}") from error
            if self.exchange:
                await channel.queue_bind(name, self.exchange, routing_key=name)
            waiting = (declared.message_count if declared else 0) or 0
        return waiting


class _Publisher:
    """The publishing connection of one event loop, made when it is needed and anew after it failed."""

    def __init__(self, link: AmqpLink, topology: _Topology, now: Callable[[], Instant]) -> None:
        self._link = link
        self._topology = topology
        self._now = now
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._declared: set[str] = set()
        self._opening = asyncio.Lock()

    async def publish(self, messages: Sequence[tuple[str, bytes, int]]) -> None:
        """Name of the queue, body, priority of each. Returns when RabbitMQ has taken responsibility for all."""
        for start in range(0, len(messages), AT_ONCE):
            some = messages[start : start + AT_ONCE]
            returned = await self._publish(some)
            if returned:  # Their queues were deleted since this program declared them.
                self._declared.difference_update(name for name, _, _ in returned)
                if await self._publish(returned):
                    raise self._link.unavailable(
                        f"the exchange {self._topology.exchange!r} routes {returned[0][0]} nowhere"
                    )

    async def _publish(self, messages: Sequence[tuple[str, bytes, int]]) -> list[tuple[str, bytes, int]]:
        """Publish, and return the messages that came back because no queue is bound for them."""
        new = list(dict.fromkeys(name for name, _, _ in messages if name not in self._declared))

        async def publish(channel: AbstractChannel) -> list[tuple[str, bytes, int]]:
            if new:
                await self._topology.declare(channel, new)
                self._declared.update(new)
            publishing = [self._send(channel, *message) for message in messages]
            answers = await asyncio.gather(*publishing)
            return [message for message, routed in zip(messages, answers, strict=True) if not routed]

        return await self.call(publish, allow_s=0.0005 * len(messages) + 0.1 * len(new))

    async def _send(self, channel: AbstractChannel, name: str, body: bytes, priority: int) -> bool:
        properties = Basic.Properties(
            delivery_mode=2,
            priority=MAX_PRIORITY - priority,
            content_type="application/json",
            headers={SENT_AT: self._now()},
        )
        answer = await channel.basic_publish(
            body, exchange=self._topology.exchange, routing_key=name, properties=properties, mandatory=True
        )
        return not isinstance(getattr(answer, "delivery", None), Basic.Return)

    async def call(self, act: Callable[[AbstractChannel], Awaitable[T]], allow_s: float = 0.0) -> T:
        """Act on the channel, within the timeout and what the size of the request allows beside it."""
        try:
            async with self._link.explained():
                channel = await self._ready()
                async with asyncio.timeout(self._link.timeout_s + allow_s):
                    return await act(channel)
        except BrokerUnavailable:
            await self.close()  # What was asked may still be answered: a new connection keeps the answers apart.
            raise

    async def _ready(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                await self.close()
                self._connection = await self._link.connect("publisher")
                self._channel = await open_channel(self._connection, confirms=True)
            return self._channel

    async def describe(self) -> ServerFacts:
        """The product and version of the node that this is connected to."""
        async with self._link.explained():
            await self._ready()
        return describe_node(self._connection)

    async def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection, self._channel = self._connection, None, None
        self._declared.clear()
        if connection is not None:
            await self._link.close(connection)


class RabbitMqBroker:
    """See `broker.Broker`."""

    capabilities = Capabilities(deduplicates=False)

    def __init__(self, url: str, context: AdapterContext) -> None:
        options = (*OPTIONS, *LAYOUT_OPTIONS, "queues", "exchange", "dead_letters", "prefetch")
        self.link = AmqpLink(url, "broker", options, BrokerUnavailable)
        self.topology = _Topology(self.link)
        self._layout = Layout(self.link.url, NAMING, "each" if self.topology.kind == "quorum" else "1-10")
        self.prefetch = self.link.url.number("prefetch", PREFETCH, most=10_000)
        self._publishers = PerLoop(partial(_Publisher, self.link, self.topology, context.clock.now), _Publisher.close)
        self.count = context.count

    async def publish(self, notices: Sequence[Notice]) -> None:
        publisher = await self._publishers.get()
        name = self._layout.destination
        await publisher.publish([(name(notice).name, encode(notice), notice.priority) for notice in notices])

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Subscription:
        queues = self._layout.of_worker(worker)
        subscription = _RabbitMqSubscription(self, queues, on_arrival)
        await subscription.start()
        return subscription

    async def depth(self) -> Sequence[Depth]:
        publisher = await self._publishers.get()
        return [
            Depth(queue.place, await publisher.call(partial(self.topology.declare, names=[name])), name)
            for name, queue in self._layout.names().items()
        ]

    async def ping(self) -> None:
        publisher = await self._publishers.get()
        await publisher.call(lambda channel: channel.basic_qos(prefetch_count=0))

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`. The server says so when a client connects."""
        publisher = await self._publishers.get()
        return await publisher.describe()

    async def close(self) -> None:
        await self._publishers.close()


class _Consumer(NamedTuple):
    tag: str
    """Never used twice: a quorum queue of RabbitMQ 3.10 ends the channel if a tag comes again while deliveries of its
    former consumer are not acknowledged."""
    prefetch: int


class _RabbitMqSubscription:
    """Consumes on its own connection, which is made anew whenever it is lost."""

    def __init__(self, broker: RabbitMqBroker, queues: Sequence[Destination], on_arrival: Callable[[], None]) -> None:
        self._broker = broker
        self._link = broker.link
        self._queues = queues
        self._on_arrival = on_arrival
        self._inbox = Inbox(on_arrival, self._pause)
        self._trouble = "not connected yet"
        self._pulse: Pulse | None = None
        self._channel: AbstractChannel | None = None
        self._held: dict[int, DeliveredMessage] = {}
        """What this channel delivered and was not acknowledged, by tag, oldest first."""
        self._wanted: dict[str, int] = {}
        """How many to prefetch of each queue that the worker asks for."""
        self._consumed: dict[str, _Consumer] = {}
        """The consumer of each queue that is being consumed."""
        self._numbers = itertools.count()
        self._left = 0
        """How many the worker had left in the inbox when they went back last."""
        self._changed = asyncio.Event()
        self._connected = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. BrokerUnavailable if that fails at first; later it is tried again and again."""
        connection = await self._link.connect("worker")
        self._running = asyncio.get_running_loop().create_task(self._run(connection))
        waiting = asyncio.ensure_future(self._connected.wait())
        await asyncio.wait({waiting, self._running}, timeout=self._link.timeout_s * 4, return_when="FIRST_COMPLETED")
        waiting.cancel()
        if not self._connected.is_set():
            trouble = self._trouble
            await self.close()
            raise self._link.unavailable(trouble)

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        trouble = self._trouble or (self._pulse.trouble if self._pulse is not None else "")
        if trouble:
            raise self._link.unavailable(trouble)
        taken = self._inbox.take(limit, priorities)
        if taken and not self._inbox:
            self._left = 0
        self._ask(limit, priorities)
        return taken

    def _ask(self, limit: int, priorities: Sequence[int]) -> None:
        """Consume what the worker asks for. A prefetch that is much too small is raised, and one that is used up by
        priorities that the worker does not ask for now: they would keep the others from arriving."""
        waiting = max(len(self._inbox), self._left)
        prefetch = max(1, min(limit + waiting, self._broker.prefetch))
        for queue in self._queues:
            wanted = self._wanted.get(queue.name, 0)
            small = wanted * 2 <= prefetch or wanted <= waiting
            if small and wanted < prefetch and queue.band.holds(priorities):
                self._wanted[queue.name] = prefetch
                self._changed.set()

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """All of the oldest are acknowledged by one frame."""
        tags = self._tags(deliveries)
        channel = self._channel
        if not tags or channel is None:
            return  # Their connection was lost: RabbitMQ delivers them again.
        oldest = 0
        for tag in list(self._held):
            if tag not in tags:
                break
            oldest = tag
        async with self._link.explained(), asyncio.timeout(self._link.timeout_s):
            if oldest:
                await channel.basic_ack(oldest, multiple=True)
            for tag in sorted(tag for tag in tags if tag > oldest):
                await channel.basic_ack(tag)
        for tag in tags:
            self._held.pop(tag, None)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        channel = self._channel
        if channel is None:
            return
        async with self._link.explained(), asyncio.timeout(self._link.timeout_s):
            for tag in sorted(self._tags(deliveries)):
                self._held.pop(tag, None)
                await channel.basic_nack(tag, requeue=True)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """RabbitMQ waits for as long as the connection lives."""

    async def close(self) -> None:
        if self._running is not None:
            await end([self._running], LEAVE_S)

    def _tags(self, deliveries: Sequence[Delivery]) -> set[int]:
        """The tags of deliveries that came over this connection."""
        tags = set()
        for delivery in deliveries:
            message = delivery.receipt
            assert isinstance(message, DeliveredMessage)
            tag = message.delivery_tag
            if message.channel is self._channel and tag is not None and tag in self._held:
                tags.add(tag)
        return tags

    async def _run(self, connection: AbstractConnection | None) -> None:
        while True:
            try:
                connection = connection or await self._link.connect("worker")
                async with self._link.explained():
                    await self._consume(connection)
            except BrokerUnavailable as error:
                self._trouble = str(error)
            finally:
                self._forget()
                if connection is not None:
                    await self._link.close(connection)
            connection = None
            self._on_arrival()  # The worker learns of the trouble at once.
            await asyncio.sleep(RECONNECT_S)

    def _forget(self) -> None:
        self._trouble = self._trouble or "the connection was lost"
        self._channel = self._pulse = None
        self._held.clear()
        self._inbox.drop()
        self._consumed.clear()
        self._connected.clear()

    async def _consume(self, connection: AbstractConnection) -> None:
        """Consume until the connection is lost."""
        channel = await open_channel(connection, confirms=False)
        control = await open_channel(connection, confirms=False)
        await self._broker.topology.declare(control, [queue.name for queue in self._queues])
        channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
        pulse = Pulse(lambda: control.basic_qos(prefetch_count=0), self._link.timeout_s, GIVE_UP_S)
        tasks = [
            asyncio.ensure_future(each) for each in (pulse.run(), self._follow(channel), _closing(connection, channel))
        ]
        self._channel, self._pulse, self._trouble = channel, pulse, ""
        self._connected.set()
        self._changed.set()
        try:
            done, _ = await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
            for each in done:
                each.result()
        finally:
            await end(tasks)

    async def _follow(self, channel: AbstractChannel) -> None:
        """Consume queues, and stop consuming them, as the worker's demand changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._wanted:
                for name in list(self._consumed):
                    await channel.basic_cancel(self._consumed.pop(name).tag)
                await self.release(self._inbox.drop())
            for name, prefetch in list(self._wanted.items()):
                before = self._consumed.get(name)
                if before is not None and before.prefetch >= prefetch:
                    continue
                if before is not None:
                    await channel.basic_cancel(before.tag)
                consumer = _Consumer(f"{name}.{next(self._numbers)}", prefetch)
                self._consumed[name] = consumer
                await channel.basic_qos(prefetch_count=prefetch)  # For consumers that begin from now on.
                try:
                    await channel.basic_consume(name, self._on_message, consumer_tag=consumer.tag)
                except ChannelNotFoundEntity as error:
                    raise self._link.unavailable(f"the queue {name} was deleted, and is made again") from error

    def _pause(self) -> None:
        """The worker does not ask: give back what it has not taken."""
        self._left = len(self._inbox)
        self._wanted.clear()
        self._changed.set()

    async def _on_message(self, message: DeliveredMessage) -> None:
        tag = message.delivery_tag
        if tag is None or message.channel is not self._channel:
            return
        try:
            run_id, token, priority = decode(message.body)
        except ValueError:
            self._broker.count("deliveries", "unreadable")
            with suppress(AMQPError):
                await message.channel.basic_reject(tag, requeue=False)
            return
        self._held[tag] = message
        sent_at = (message.header.properties.headers or {}).get(SENT_AT)
        sent_at = sent_at if isinstance(sent_at, int) else None  # Another program may have published the message.
        self._inbox.put(Delivery(run_id, token, message, bool(message.redelivered), sent_at), priority)

    def _on_cancelled(self, frame: Basic.Cancel) -> None:
        """The queue was deleted. A new connection declares it again."""
        if self._channel is not None and self._running is not None:
            closing = asyncio.ensure_future(self._channel.close())
            closing.add_done_callback(lambda _: None)


async def _closing(connection: AbstractConnection, channel: AbstractChannel) -> None:
    await asyncio.wait([connection.closing, channel.closing], return_when="FIRST_COMPLETED")
    for each in (connection.closing, channel.closing):
        if each.done() and not each.cancelled() and each.exception() is not None:
            raise AMQPError(str(each.exception()))
    raise AMQPError("the connection was closed")
