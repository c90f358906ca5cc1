"""The way from one process to the store: it loses, delays, doubles and invents, and writes down what really happened.

The store itself is the real one and runs inline, so a call is carried out in one step of virtual time. What is recorded
is recorded in that step, in the store's order, whether the process ever hears of it or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from functools import partial
from inspect import iscoroutinefunction
from random import Random
from typing import Any, Final, cast

from mainspring.core.instants import Instant
from mainspring.core.model import NewRun
from mainspring.core.planning.plans import runs_in
from mainspring.errors import MainspringError, StoreFailed, StoreFull, StoreUnavailable
from mainspring.process.metrics import Metrics
from mainspring.store import StandingClaim, Store, Strain, SubmissionListener
from mainspring.testing.simulation.faults import Weather
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.world.clock import LARGEST_ERROR, ProcessClock
from mainspring.testing.simulation.world.hosts import Host

METHODS: Final = sorted(
    name
    for part in Store.__mro__
    for name, method in vars(part).items()
    if iscoroutinefunction(method) and name != "close"
)
_LOOKS = (
    "announced",
    "cancels",
    "changed_",
    "count_",
    "due_",
    "events_",
    "find_",
    "finished",
    "gate_",
    "get_",
    "have_",
    "list_",
    "look",
    "next_",
    "ups",
)
READS: Final = frozenset(name for name in METHODS if name.startswith(_LOOKS))
"""Methods that write nothing: a full disk does not keep them from answering."""
PATIENCE_S = 15.0
"""How long a driver waits for an answer before it gives up."""
SHORTAGE_S = 5.0
"""How long a call waits for a connection at most."""
RUN_S, FREE_RUNS = 0.0002, 100
"""How long the store takes to write each run of a large batch of firings."""


class Wire:
    """One process's store. `as_store` is what the process gets."""

    def __init__(
        self,
        store: Store,
        actor: str,
        host: Host | None,
        clock: ProcessClock,
        weather: Weather,
        scribe: Scribe,
        seed: str,
    ) -> None:
        self._store = store
        self.actor = actor
        self._host = host
        self._clock = clock
        self._weather = weather
        self._scribe = scribe
        self._random = Random(f"{seed}:wire:{actor}")
        self._nap = clock.true.sleep
        self._hinting = False
        self.cut = self.short = self.failed = False
        self.metrics, self.joining = Metrics(), None
        self._listener: SubmissionListener | None = None
        for name in METHODS:
            setattr(self, name, partial(self._call, name))
        self.submit = self._submit

    @property
    def as_store(self) -> Store:
        """The wire implements the store port, method by method, by name."""
        return cast(Store, self)

    def now(self) -> Instant:
        """See the store port: here it is off by a little."""
        return self._clock.store_now()

    def surely_now(self) -> Instant:
        """See the store port."""
        return self._clock.store_now() - LARGEST_ERROR

    def strain(self) -> Strain:
        """How far this process's clock is ahead of the store's; nothing else strains it."""
        return Strain(skew=self._clock.now() - self._clock.store_now())

    def on_change(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        """See the store port: hints come late, or not at all, or for nothing."""
        return self._store.on_change(partial(self._hint, listener))

    def on_accepted(self, listener: SubmissionListener) -> None:
        """See the store port: what the process heard of as accepted."""
        self._listener = listener

    async def _submit(self, runs: Sequence[NewRun], **options: Any) -> Any:
        ids = await self._call("submit", runs, **options)
        if self._listener is not None:
            self._listener.accepted(runs)
        return ids

    def announce(self) -> None:
        """See the store port: every commit is a hint already."""

    def _hint(self, listener: Callable[[], None]) -> None:
        """Changes that come while a hint is on its way are hinted at together, as between real processes."""
        if self._host is None or self._host.dead or self._hinting or self.cut or self._weather.down:
            return
        if self._weather.has("lost_hints") and self._random.random() < 0.3:
            self._weather.note("lost_hints")
            return
        self._hinting = True
        loop, context = asyncio.get_running_loop(), self._host.context
        # Some come at once. The others take their time, and meet more changes on their way.
        longest_s = 0.05 if self._random.random() < 0.3 else 1.0
        loop.call_later(self._random.uniform(0.0005, longest_s), self._notify, listener, context=context)
        if self._weather.has("false_hints") and self._random.random() < 0.02:
            self._weather.note("false_hints")
            loop.call_later(self._random.uniform(0.1, 3.0), listener, context=context)

    def _notify(self, listener: Callable[[], None]) -> None:
        self._hinting = False
        listener()

    def leave_claim(self, standing: StandingClaim | None) -> None:
        """See the store port: the store is not in this process, so it makes no claim by itself."""

    async def close(self) -> None:
        """See the store port: the store is not this process's to close."""

    async def _call(self, name: str, *args: Any, **options: Any) -> Any:
        random, weather, looks = self._random, self._weather, name in READS
        if not looks or weather.slow or random.random() < 0.3:
            await self._nap(self._latency())
        if self.failed:
            raise StoreFailed("a sync failed")
        if self.short and random.random() < 0.8:
            await self._starve()
        if name == "fire":
            await self._nap(RUN_S * max(sum(map(runs_in, args[0])) - FREE_RUNS, 0))
        if self.cut or weather.down:
            raise await _lost("no connection", random.uniform(0.0, 0.5))
        if weather.full and not looks:
            raise StoreFull("the disk is full")
        fault = weather.draw(random)
        if fault is not None:
            return await self._suffer(fault, partial(self._execute, name, args, options))
        if name in self._scribe.recorded:
            answer = await self._execute(name, args, options, answered=True)
        else:
            answer = await getattr(self._store, name)(*args, **options)
        if not looks and random.random() < 0.3:
            await self._nap(self._latency())
        return answer

    async def _starve(self) -> None:
        """No connection becomes free in time; now and then the wait ends with a cancellation that no caller
        requested."""
        await self._nap(self._random.uniform(0.1, SHORTAGE_S))
        if self._random.random() < 0.2:
            self._weather.note("stray cancellation")
            raise asyncio.CancelledError
        raise StoreUnavailable("no connection became free")

    def _latency(self) -> float:
        return self._random.uniform(0.1, 1.5) if self._weather.slow else self._random.uniform(0.0001, 0.004)

    async def _execute(self, name: str, args: tuple[Any, ...], options: dict[str, Any], *, answered: bool) -> Any:
        answered = answered and not (self._host is not None and self._host.dead)
        return await self._scribe.carry_out(
            self._store, self.actor, self._clock, name, args, options, answered=answered
        )

    async def _suffer(self, fault: str, work: _Work) -> Any:
        random = self._random
        match fault:
            case "lost_request":
                raise await _lost("the request was lost", random.uniform(0.0, 2.0))
            case "lost_reply":
                await work(answered=False)
                raise await _lost("the reply was lost", random.uniform(0.0, 2.0))
            case "delay":
                return await self._deliver(work, random.uniform(0.02, 0.8))
            case "long_delay":
                return await self._deliver(work, random.uniform(0.8, PATIENCE_S))
            case "late_delivery":
                # The process gives up, and only then does the request arrive.
                _send(_arrive(work, random.uniform(1.0, PATIENCE_S), answered=False))
                raise await _lost("no answer came", random.uniform(0.2, 1.0))
            case "duplicate":
                return await self._deliver_twice(work)
            case _:
                if random.random() < 0.5:
                    await work(answered=False)
                raise await _lost("no answer came", random.uniform(PATIENCE_S / 2, PATIENCE_S))

    async def _deliver(self, work: _Work, delay_s: float) -> Any:
        """A request that is on its way no longer depends on its sender: it arrives though that was killed."""
        before = self._random.random() < 0.5
        flight = _send(_arrive(work, delay_s if before else 0.0, answered=before))
        if not before:
            await asyncio.sleep(delay_s)
        return _open(await asyncio.shield(flight))

    async def _deliver_twice(self, work: _Work) -> Any:
        random = self._random
        gap_s = random.uniform(1.0, 12.0) if random.random() < 0.3 else random.uniform(0.0, 0.1)
        first_counts = gap_s > 1.0 or random.random() < 0.5
        first = await asyncio.shield(_send(_arrive(work, 0.0, answered=first_counts)))
        second = _send(_arrive(work, gap_s, answered=not first_counts))
        return _open(first if first_counts else await asyncio.shield(second))


_Work = Callable[..., Coroutine[Any, Any, Any]]
_Answer = tuple[Any, Exception | None]


async def _lost(why: str, after_s: float) -> StoreUnavailable:
    """What a caller learns, and when."""
    await asyncio.sleep(after_s)
    return StoreUnavailable(why)


def _send(flight: Coroutine[Any, Any, _Answer]) -> asyncio.Task[_Answer]:
    # In an empty context: what is on its way belongs to no process.
    return asyncio.get_running_loop().create_task(flight, context=Context())


async def _arrive(work: _Work, delay_s: float, *, answered: bool) -> _Answer:
    if delay_s > 0:
        await asyncio.sleep(delay_s)
    try:
        return await work(answered=answered), None
    except MainspringError as error:
        return None, error


def _open(answer: _Answer) -> Any:
    value, error = answer
    if error is not None:
        raise error
    return value
