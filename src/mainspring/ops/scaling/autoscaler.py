"""The loop of `mainspring scale`: look at the load, decide by `core.load.scaling`, start or drain workers.

Only one autoscaler acts for a fleet: it holds a lease in the store. When it dies, its workers go on; the next
autoscaler waits for the lease to expire, finds the workers by name, and continues with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from mainspring.core.instants import SECOND
from mainspring.core.load.scaling import Load, ScalingPolicy, ScalingState, check_policy, decide
from mainspring.core.model import Hold, Worker
from mainspring.errors import Conflict, MainspringError, NotFound, StoreUnavailable
from mainspring.operations.context import Host
from mainspring.operations.views.explain import look_around
from mainspring.operations.workers import Workers
from mainspring.ops.scaling.fleet import Fleet, Members, choose_to_drain
from mainspring.store import Store

MOST_COUNTED = 1_000_000
"""Due runs of one queue, region and priority are counted up to this number."""
LONGEST_PAUSE_S = 60.0
"""The longest wait before another worker is started while workers end as soon as they start."""
LOOK_S = 0.2
"""How often to look whether workers that were asked to drain have ended."""


class Scope(NamedTuple):
    """The due runs that count as load."""

    namespace: str
    queues: tuple[str, ...]
    regions: tuple[str, ...]


class Step(NamedTuple):
    """What one look at the load led to."""

    before: int
    after: int
    draining: int
    depth: int
    reason: str


class Autoscaler:
    """Keeps a fleet as large as its load needs."""

    def __init__(
        self,
        host: Host,
        workers: Workers,
        fleet: Fleet,
        policy: ScalingPolicy,
        scope: Scope,
        *,
        owner: str,
        interval_s: float,
        on_step: Callable[[Step], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        """`on_step` is called after each look at the load, `on_trouble` with what an operator should know."""
        self._host, self._workers, self._fleet = host, workers, fleet
        self._policy, self._scope, self._owner = check_policy(policy), scope, owner
        self._interval_s = interval_s
        self._on_step, self._on_trouble = on_step, on_trouble
        self._state = ScalingState()
        self._hold: Hold | None = None
        self._failures = 0
        self._start_after = 0.0

    @property
    def _lease(self) -> str:
        return f"scale:{self._scope.namespace}:{self._fleet.host}:{self._fleet.name}"

    async def run(self, stop: asyncio.Event) -> None:
        """Scale until `stop` is set. Conflict if another autoscaler has this fleet by then."""
        if not await self._become_owner(stop):
            return
        while not stop.is_set():
            try:
                await self._keep_owning()
                self._on_step(await self.step())
            except StoreUnavailable as error:
                self._on_trouble(f"{error}; the workers stay as they are")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._interval_s)

    async def _become_owner(self, stop: asyncio.Event) -> bool:
        """Wait for the lease of the fleet; False if `stop` comes first."""
        warned = False
        while not stop.is_set():
            store = await self._host.open()
            self._hold = await store.acquire(self._lease, self._owner, self._ttl)
            if self._hold is not None:
                return True
            if not warned:
                warned = True
                self._on_trouble(
                    f"another `mainspring scale` has fleet {self._fleet.name!r} on this host: waiting until it ends. "
                    "For a second fleet, choose another name with --fleet"
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(self._interval_s, 1.0))
        return False

    @property
    def _ttl(self) -> int:
        """Longer than a slow look at a busy store, since a lost lease ends this process."""
        return round((3 * self._interval_s + 5) * SECOND)

    async def _keep_owning(self) -> None:
        store = await self._host.open()
        held = None if self._hold is None else await store.renew_hold(self._hold)
        # After an outage of the store the lease has expired. It is free unless another autoscaler has come.
        self._hold = held or await store.acquire(self._lease, self._owner, self._ttl)
        if self._hold is None:
            raise Conflict(f"another `mainspring scale` has taken over fleet {self._fleet.name!r}: this one ends")

    async def step(self) -> Step:
        """Look at the load once, and start or drain workers."""
        self._note_ended()
        store = await self._host.open()
        members = await self._look()
        load = await self._load(store, members)
        decision = decide(self._policy, self._state, load)
        self._state = decision.state
        if decision.workers > members.serving:
            self._grow(members, decision.workers)
        elif decision.workers < members.serving:
            for worker in choose_to_drain(members.active, members.serving - decision.workers):
                await self._drain(worker, f"scaled down: {decision.reason}")
        return Step(members.serving, decision.workers, len(members.draining), load.depth, decision.reason)

    async def _look(self) -> Members:
        return self._fleet.members((await look_around(self._host, self._scope.namespace)).living())

    async def _load(self, store: Store, members: Members) -> Load:
        rows = [
            row
            for row in await store.backlog(MOST_COUNTED)
            if row.namespace == self._scope.namespace
            and row.queue in self._scope.queues
            and row.region in self._scope.regions
        ]
        now = store.now()
        slots = sum(each.concurrency for each in members.active)
        # Workers that are starting add as many slots as the others have. Else a start would look like more load.
        starting = members.starting * slots // max(len(members.active), 1)
        return Load(
            at=now,
            workers=members.serving,
            depth=sum(row.count for row in rows),
            busy=sum(each.running for each in members.active),
            slots=slots + starting,
            oldest_due=max((now - row.oldest_at for row in rows), default=0),
        )

    def _grow(self, members: Members, wanted: int) -> None:
        """Start workers, but never more processes than the maximum, and after failed starts not at once."""
        if asyncio.get_running_loop().time() < self._start_after:
            return
        room = self._policy.maximum - members.processes
        for _ in range(min(wanted - members.serving, room)):
            self._fleet.start()

    async def _drain(self, worker: Worker, reason: str) -> None:
        # It may have ended since it was listed.
        with suppress(Conflict, NotFound):
            await self._workers.drain(worker.id, reason)

    def _note_ended(self) -> None:
        """After workers that end before they work, wait longer and longer before the next start."""
        ended = self._fleet.reap()
        if any(each.worked or each.code == 0 for each in ended):
            self._failures = 0
        failed = [each for each in ended if each.code != 0 and not each.worked]
        if failed:
            self._failures += 1
            pause_s = min(2.0**self._failures, LONGEST_PAUSE_S)
            self._start_after = asyncio.get_running_loop().time() + pause_s
            self._on_trouble(
                f"worker {failed[0].pid} ended with exit code {failed[0].code} before it began to work; the next one "
                f"starts in {pause_s:g} s. Its own output says why"
            )
        for each in ended:
            if each.code != 0 and each.worked:
                self._on_trouble(f"worker {each.pid} ended with exit code {each.code}; it is replaced if needed")

    async def drain_all(self, hurry: asyncio.Event) -> None:
        """Ask every worker of the fleet to finish what it holds, and wait for their end; `hurry` ends the wait."""
        self._fleet.terminate(unlisted_only=True)
        try:
            for worker in (await self._look()).active:
                await self._drain(worker, "the autoscaler stops")
            while not hurry.is_set():
                self._fleet.reap()
                members = await self._look()
                if not members.processes and not self._fleet.children:
                    return
                for worker in members.active:  # One that has registered only now.
                    await self._drain(worker, "the autoscaler stops")
                with suppress(TimeoutError):
                    await asyncio.wait_for(hurry.wait(), LOOK_S)
        except StoreUnavailable as error:
            self._on_trouble(f"{error}; the workers that this process started are asked by SIGTERM to stop")
            self._fleet.terminate(unlisted_only=False)

    async def release(self) -> None:
        """Let another autoscaler have the fleet."""
        if self._hold is not None:
            with suppress(MainspringError):
                await (await self._host.open()).release(self._hold)
