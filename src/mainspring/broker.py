"""The broker port: carries word of due runs to workers, sooner than these would find them in the store.

A broker is transport, never the truth. A message names a run and the token that it had; whoever gets it claims the run
from the store, which gives it once, to the first who asks while it is pending, due and of that token. So a message that
is late, doubled or forged finds nothing, and one that is lost costs time only: the dispatcher says again what is due,
and workers look at the store themselves, now and then, and always while the broker does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mainspring.core.instants import Instant
from mainspring.core.model import Worker


class Notice(NamedTuple):
    """A run that is due, where it waits, and what its place in the line depends on."""

    run_id: str
    token: int
    namespace: str
    queue: str
    region: str
    priority: int
    due_at: Instant


class Delivery(NamedTuple):
    """A message that was received: to be acknowledged or released by whoever got it."""

    run_id: str
    token: int
    receipt: object
    """The broker's own."""


class Broker(Protocol):
    """Four verbs. What cannot be done raises BrokerUnavailable; all may be repeated."""

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Put runs in the lines of their namespaces, queues and regions. What is in line already, or under way to a
        worker, stays as it is."""

    async def receive(self, worker: Worker, limit: int) -> list[Delivery]:
        """The best of what waits in the worker's lines, of its priorities, at most so many; none if nothing does.
        Nobody else gets them unless they are released, or are not acknowledged for a while. A limit of 0 asks whether
        the broker works."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """The store has given these to a worker, or has refused to: forget them."""

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Back to where they were in their lines."""

    def on_arrival(self, worker: Worker, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, on the loop that this is called on, soon after something was put in a line of the worker;
        the answer stops it. A hint: nothing may depend on it."""

    async def close(self) -> None:
        """Let go of connections."""
