"""The broker on SQS: a queue for each namespace, queue and region.

SQS hides a message that was received for its visibility timeout. The worker deletes it once the claim is committed, and
extends the timeout while the store does not answer. A message that the worker gives back after an error waits longer
each time: 30 s, doubled up to 900 s, by its receive count. What cannot be read goes to the dead-letter queue; SQS moves
there what was received too often. With `fifo=yes` queues are FIFO, and the run's order key is the message group.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha1
from typing import Any, Final, NamedTuple

from mainspring.adapter import AdapterContext
from mainspring.broker import Capabilities, Delivery, Depth, Notice, Subscription
from mainspring.brokers.inbox import Inbox
from mainspring.brokers.layout import COMMITS, LAYOUT_OPTIONS, Destination, Layout, Naming, decode, encode
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND, SECOND
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.drivers.aws.sqs import AT_ONCE, OPTIONS, SqsClient, SqsLink
from mainspring.drivers.ending import end
from mainspring.drivers.per_loop import PerLoop
from mainspring.drivers.pulse import Pulse
from mainspring.errors import BrokerUnavailable

NAMING: Final = Naming("jobs__{namespace}__{queue}__{region}", "__", 75, "_", "A-Za-z0-9_-")
DEAD_LETTERS: Final = "jobs-dlq"
TIMEOUT: Final = "1s"
VISIBILITY: Final = "30s"
"""How long a worker may hold a message without a word. Messages are held only until their runs are claimed."""
LONG_POLL_S: Final = 20
PULSE: Final = "5s"
"""How often to ask whether SQS answers. AWS charges for each request."""
MOST_RECEIVES: Final = 100
BACKOFF_S, LONGEST_BACKOFF_S = 30, 900
MOST_HELD: Final = 100
"""The most that a subscription holds of priorities that its worker leaves."""
AGAIN_S: Final = 0.5
GIVE_UP_S: Final = 3_600.0
DEDUPLICATED_S: Final = 30
"""A FIFO queue drops what it got before. A notice that is published again later than this is another message."""


class _Receipt(NamedTuple):
    queue: str
    handle: str
    receives: int


def backoff_s(receives: int) -> int:
    """How long a message that was received this often waits after it was given back."""
    return 0 if receives <= 1 else min(BACKOFF_S * 2 ** min(receives - 2, 10), LONGEST_BACKOFF_S)


class SqsBroker:
    """See `broker.Broker`."""

    def __init__(self, url: str, context: AdapterContext) -> None:
        options = (*OPTIONS, *LAYOUT_OPTIONS, "fifo", "visibility", "dead_letters", "pulse", "receives", "commit")
        self.link = SqsLink(url, "broker", options, BrokerUnavailable, TIMEOUT)
        words = self.link.url
        self._fifo = words.choice("fifo", ("yes", "no"), "no") == "yes"
        self._kind = {"FifoQueue": "true"} if self._fifo else {}
        self._layout = Layout(words, NAMING)
        self.visibility_s = max(1, round(words.seconds("visibility", VISIBILITY)))
        self.pulse_s = words.seconds("pulse", PULSE)
        self._receives = words.number("receives", MOST_RECEIVES, most=1_000)
        self._dead_letters = self._suffixed(
            words.options.get("prefix", "") + words.options.get("dead_letters", DEAD_LETTERS)
        )
        self._clients = PerLoop(partial(SqsClient, self.link), SqsClient.close)
        self._clock = context.clock
        self.count = context.count
        self.capabilities = Capabilities(
            priorities=False,
            key_order=self._fifo,
            extends=True,
            deduplicates=False,
            acks_after_work=words.choice("commit", COMMITS, COMMITS[0]) == "after_work",
        )

    def _suffixed(self, name: str) -> str:
        return name + ".fifo" if self._fifo else name

    async def publish(self, notices: Sequence[Notice]) -> None:
        client = await self._clients.get()
        entries: dict[str, list[dict[str, str]]] = {}
        for notice in notices:
            name = self._suffixed(self._layout.destination(notice).name)
            entries.setdefault(name, []).append({"MessageBody": encode(notice).decode(), **self._ordered(notice)})
        for name, some in entries.items():
            await self.prepare(client, name)
            failed = await client.batch(name, "send_message_batch", some)
            if failed:
                raise self.link.unavailable(
                    f"{len(failed)} messages were refused: {failed[0].get('Message', failed[0])}"
                )

    def _ordered(self, notice: Notice) -> dict[str, str]:
        if not self._fifo:
            return {}
        moment = self._clock.now() // (DEDUPLICATED_S * SECOND)
        named = f"{notice.run_id}:{notice.token}:{moment}"
        return {
            "MessageGroupId": _allowed(notice.order_key or notice.run_id),
            "MessageDeduplicationId": _allowed(named),
        }

    async def prepare(self, client: SqsClient, name: str) -> None:
        """Make a queue that does not exist, and the dead-letter queue that it refers to."""
        if client.knows(name):
            return
        answer = await self._find_dead_letters(client)
        redrive = {"deadLetterTargetArn": answer["Attributes"]["QueueArn"], "maxReceiveCount": self._receives}
        times = {"VisibilityTimeout": str(self.visibility_s), "ReceiveMessageWaitTimeSeconds": str(LONG_POLL_S)}
        await client.find(name, {**self._kind, **times, "RedrivePolicy": json.dumps(redrive)})

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Subscription:
        client = await self._clients.get()
        queues = [each._replace(name=self._suffixed(each.name)) for each in self._layout.of_worker(worker)]
        for queue in queues:
            await self.prepare(client, queue.name)
        subscription = _SqsSubscription(self, client, queues, on_arrival)
        subscription.start()
        return subscription

    async def bury(self, client: SqsClient, body: str) -> None:
        """Put what cannot be read where a person finds it."""
        digest = sha1(body.encode(), usedforsecurity=False).hexdigest()
        ordered: dict[str, Any] = {"MessageGroupId": "unreadable", "MessageDeduplicationId": digest}
        await client.on_queue(self._dead_letters, "send_message", MessageBody=body, **(ordered if self._fifo else {}))

    async def depth(self) -> Sequence[Depth]:
        client = await self._clients.get()
        depths: list[Depth] = []
        for queue in self._layout.names().values():
            name, asked = self._suffixed(queue.name), ["ApproximateNumberOfMessages"]
            await self.prepare(client, name)
            answer = await client.on_queue(name, "get_queue_attributes", AttributeNames=asked)
            depths.append(Depth(queue.place, int(answer["Attributes"]["ApproximateNumberOfMessages"]), name))
        return depths

    async def ping(self) -> None:
        await self._find_dead_letters(await self._clients.get())

    async def _find_dead_letters(self, client: SqsClient) -> Any:
        await client.find(self._dead_letters, self._kind)
        return await client.on_queue(self._dead_letters, "get_queue_attributes", AttributeNames=["QueueArn"])

    async def close(self) -> None:
        await self._clients.close()

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`. SQS has no version; each of its answers states the time, in seconds."""
        answer = await self._find_dead_letters(await self._clients.get())
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = None if date is None else round(parsedate_to_datetime(date).timestamp() * SECOND) + SECOND // 2
        return ServerFacts("SQS, which has no version", now)


def _allowed(text: str) -> str:
    """A message group or deduplication id: 128 printable ASCII characters at most."""
    if len(text) <= 128 and re.fullmatch(r"[!-~]+", text):
        return text
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


class _SqsSubscription:
    """Polls each queue while the worker asks."""

    def __init__(
        self, broker: SqsBroker, client: SqsClient, queues: Sequence[Destination], on_arrival: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._client = client
        self._queues = queues
        self._on_arrival = on_arrival
        self._inbox = Inbox(on_arrival, self._give_back)
        self._room: dict[str, int] = {}
        """How many messages the worker asks for, by queue."""
        self._left = 0
        """How many the worker had left in the inbox when they went back last."""
        self._troubles: dict[str, str] = {}
        self._pulse = Pulse(self._ask, broker.link.timeout_s, GIVE_UP_S, broker.pulse_s)
        self._held: dict[str, _Receipt] = {}
        """What was received and neither deleted nor given back, by handle."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted = {queue.name: asyncio.Event() for queue in queues}

    def start(self) -> None:
        """Poll from now on."""
        for queue in self._queues:
            self._begin(self._poll(queue))
        self._begin(self._pulse.run())

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self) -> None:
        await self._broker.prepare(self._client, self._queues[0].name)
        await self._client.on_queue(self._queues[0].name, "get_queue_attributes", AttributeNames=["QueueArn"])

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        trouble = self._pulse.trouble or next(iter(self._troubles.values()), "")
        if trouble:
            raise self._broker.link.unavailable(trouble)
        taken = self._inbox.take(limit, priorities)
        if taken and not self._inbox:
            self._left = 0
        room = limit - len(taken)  # No more: messages on their way to a worker that leaves are hidden for a while.
        if room > 0:  # What is left in the inbox is of other priorities, and must not keep these from arriving.
            room = min(room + max(len(self._inbox), self._left), max(limit, MOST_HELD))
        for queue in self._queues:
            if queue.band.holds(priorities):
                self._room[queue.name] = room
                if room > len(self._inbox):
                    self._wanted[queue.name].set()
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for queue, receipts in self._by_queue(deliveries).items():
            await self._client.batch(
                queue, "delete_message_batch", [{"ReceiptHandle": each.handle} for each in receipts]
            )
            for each in receipts:  # A handle that SQS does not know any more is as good as deleted.
                self._held.pop(each.handle, None)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        await self._hide(deliveries, lambda receipt: backoff_s(receipt.receives))
        for delivery in deliveries:
            self._held.pop(_receipt(delivery).handle, None)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await self._hide(deliveries, lambda _: self._broker.visibility_s)

    async def close(self) -> None:
        await end(list(self._tasks))
        await self._return([Delivery("", 0, receipt) for receipt in self._held.values()])

    async def _hide(self, deliveries: Sequence[Delivery], seconds: Callable[[_Receipt], int]) -> None:
        for queue, receipts in self._by_queue(deliveries).items():
            entries = [{"ReceiptHandle": each.handle, "VisibilityTimeout": seconds(each)} for each in receipts]
            await self._client.batch(queue, "change_message_visibility_batch", entries)

    def _by_queue(self, deliveries: Sequence[Delivery]) -> dict[str, list[_Receipt]]:
        receipts: dict[str, list[_Receipt]] = {}
        for delivery in deliveries:
            receipt = _receipt(delivery)
            receipts.setdefault(receipt.queue, []).append(receipt)
        return receipts

    def _give_back(self) -> None:
        """The worker does not ask: others may have what it has not taken."""
        for event in self._wanted.values():
            event.clear()
        self._left = len(self._inbox)
        self._room.clear()
        self._begin(self._return(self._inbox.drop()))

    async def _return(self, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._hide(deliveries, lambda _: 0)
        except BrokerUnavailable:
            return  # They come again after their visibility timeout.
        for delivery in deliveries:
            self._held.pop(_receipt(delivery).handle, None)

    async def _poll(self, queue: Destination) -> None:
        while True:
            wanted = self._wanted[queue.name]
            await wanted.wait()
            room = self._room.get(queue.name, 0) - len(self._inbox)
            if room <= 0:
                wanted.clear()
                continue
            # After an error the answer comes at once, so that the end of the trouble is known soon.
            wait_s = 0 if queue.name in self._troubles else LONG_POLL_S
            try:
                await self._broker.prepare(self._client, queue.name)
                await self._fetch(queue, min(room, AT_ONCE), wait_s)
            except BrokerUnavailable as error:
                self._troubles[queue.name] = str(error)
                self._on_arrival()  # The worker learns of the trouble at once.
                await asyncio.sleep(AGAIN_S)
            else:
                self._troubles.pop(queue.name, None)

    async def _fetch(self, queue: Destination, room: int, wait_s: int) -> None:
        answer = await self._client.on_queue(
            queue.name,
            "receive_message",
            wait_s=wait_s,
            MaxNumberOfMessages=room,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=self._broker.visibility_s,
            AttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
        )
        for message in answer.get("Messages", ()):
            known = message.get("Attributes", {})
            receives = int(known.get("ApproximateReceiveCount", 1))
            sent_at = int(known["SentTimestamp"]) * MILLISECOND if "SentTimestamp" in known else None
            receipt = _Receipt(queue.name, message["ReceiptHandle"], receives)
            try:
                run_id, token, priority = decode(message["Body"])
            except ValueError:
                self._broker.count("deliveries", "unreadable")
                await self._broker.bury(self._client, message["Body"])
                await self.ack([Delivery("", 0, receipt)])
                continue
            self._held[receipt.handle] = receipt
            self._inbox.put(Delivery(run_id, token, receipt, receives > 1, sent_at), priority, queue.band.first)


def _receipt(delivery: Delivery) -> _Receipt:
    assert isinstance(delivery.receipt, _Receipt)
    return delivery.receipt
