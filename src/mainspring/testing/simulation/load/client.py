"""Clients of the simulated world: they submit, cancel, trigger, pause and edit, and repeat what got no answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

import msgspec

from mainspring.core.ids import fraction_of
from mainspring.core.instants import SECOND
from mainspring.core.load.rate_limits import Pace
from mainspring.core.model import Gate, Job, NewRun
from mainspring.core.planning.plans import make_runs
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreFull, StoreUnavailable
from mainspring.process.ids import IdSource
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.testing.simulation.load.tasks import NEW_ARGUMENT, TASKS
from mainspring.testing.simulation.load.workload import KEYS, LIMIT, NAMESPACE, bounded, draw_options
from mainspring.testing.simulation.ports.scribe import as_json

T = TypeVar("T")

ACTION_S = 9.0
"""The mean pause between two actions of a client."""
BOUNDED_SHARE = 0.15
"""The runs that have a total timeout."""
PACE = Pace(12, 60 * SECOND)
"""Tight, so that it is reached."""


class Client:
    """One client. What it does is drawn; what it repeats, it repeats unchanged."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        ids: IdSource,
        random: Random,
        seen: Counter[str],
        *,
        mixed: bool = False,
        hurried: bool = False,
    ) -> None:
        """`mixed`: half of its runs have an argument that older code does not take. `hurried`: some have a total
        timeout."""
        self._mixed = mixed
        self._hurried = hurried
        self.store = store
        self._settings = settings
        self._ids = ids
        self._random = random
        self._seen = seen
        self._submitted: list[str] = []
        self._keyed: list[NewRun] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def act_until(self, until_s: float, jobs: list[str]) -> None:
        """One action after the other, not waiting for the answers, until it is `until_s` on the loop's clock."""
        loop = asyncio.get_running_loop()
        actions = (self._submit, self._submit, self._submit_many, self._cancel, self._cancel, self._repeat, self._chain)
        rare = (self._trigger, self._pause, self._edit, self._burst, self._spend)
        while True:
            await asyncio.sleep(self._random.expovariate(1 / ACTION_S))
            if loop.time() >= until_s:
                break
            name = self._random.choice(jobs)
            if self._random.random() < 0.25:
                self._tasks.append(loop.create_task(self._random.choice(rare)(name)))
            else:
                self._tasks.append(loop.create_task(self._random.choice(actions)()))

    async def pause_until(self, until_s: float, queues: Sequence[str]) -> None:
        """Pause one queue after the other for a while, until it is `until_s` on the loop's clock. None stays paused."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            await asyncio.sleep(self._random.expovariate(1 / ACTION_S))
            queue = self._random.choice(queues)
            pause = partial(self.store.pause_queue, NAMESPACE, queue)
            await self.insist(partial(pause, paused=True, reason="a client paused it"))
            await asyncio.sleep(self._random.uniform(2.0, 15.0))
            await self.insist(partial(pause, paused=False, reason=""))

    async def settle(self) -> None:
        """Wait for what is still under way."""
        if self._tasks:
            await asyncio.gather(*self._tasks)

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer, asked for again and again; None where it is refused."""
        while True:
            try:
                return await call()
            except (StoreUnavailable, StoreFull):
                await asyncio.sleep(self._random.uniform(0.2, 2.0))
            except (Conflict, NotFound, InvalidInput):
                return None

    async def create(self, job: Job) -> None:
        """Add a job."""
        await self.insist(lambda: self.store.create_job(job))

    def _draw(self, **changes: object) -> NewRun:
        random, now = self._random, self.store.now()
        task = random.choice(sorted(TASKS))
        key = random.choice((None, None, *KEYS))
        run = NewRun(
            id=self._ids.new(),
            task=task,
            due_at=now + (random.randint(0, 20) * SECOND if random.random() < 0.3 else 0),
            created_at=now,
            queue=random.choice(self._settings.queues),
            region=random.choice(self._settings.regions),
            priority=random.randint(1, 10),
            options=as_json(draw_options(random)),
            expires_at=now + random.randint(5, 40) * SECOND if random.random() < 0.15 else None,
            key=key,
            gates=(Gate("task:limited", LIMIT),) if task == "limited" else (),
            lines=() if key is None else (Gate(f"key:{key}", 1),),
        )
        if self._hurried and fraction_of("total", run.id) < BOUNDED_SHARE:
            run = msgspec.structs.replace(run, options=bounded(run))
        if self._mixed and fraction_of("args", run.id) < 0.5:
            run = msgspec.structs.replace(run, args=as_json({NEW_ARGUMENT: 1}))
        return msgspec.structs.replace(run, **changes)

    async def _send(self, *runs: NewRun) -> None:
        if answers := await self.insist(lambda: self.store.submit(runs)):
            self._submitted += answers

    async def _submit(self) -> None:
        if self._random.random() < 0.4:
            run = self._draw(idempotency_key=f"once-{self._random.randrange(10**9)}")
            self._keyed.append(run)
            await self._send(run)
        else:
            await self._send(self._draw())

    async def _submit_many(self) -> None:
        await self._send(*(self._draw() for _ in range(self._random.randint(2, 6))))

    async def _repeat(self) -> None:
        """Send the same request under a new id: the key must find the first run."""
        if self._keyed:
            await self._send(msgspec.structs.replace(self._random.choice(self._keyed[-5:]), id=self._ids.new()))

    async def _chain(self) -> None:
        """Runs that wait for others, some of them sent together."""
        first, second = self._draw(), self._draw()
        on_failure = self._random.choice(("skip", "fail", "run"))
        third = self._draw(after=(first.id, second.id), on_failure=on_failure)
        fourth = self._draw(after=(third.id,), when=self._random.choice(("all_succeeded", "any_finished")))
        await self._send(first, second, third)
        await self._send(fourth)

    async def _burst(self, _name: str) -> None:
        await self._send(*(self._draw(task="quick", key=None, lines=(), gates=()) for _ in range(25)))

    async def _spend(self, _name: str) -> None:
        """Submissions as the API takes them: within a budget that all clients share."""
        for _ in range(self._random.randint(2, 8)):
            cost = self._random.randint(1, 4)
            allowance = await self.insist(partial(self.store.spend, "submit:clients", cost, PACE))
            if allowance is not None and allowance.granted:
                await self._send(*(self._draw() for _ in range(cost)))

    async def _cancel(self) -> None:
        """Something that was sent long ago, or something that may have started just now."""
        if self._submitted and self._random.random() < 0.3:
            run_id = self._random.choice(self._submitted[-12:])
        else:
            run = self._draw(task=self._random.choice(("steady", "slow", "stubborn", "flaky", "broken")))
            run_id = run.id
            await self._send(run)
            await asyncio.sleep(self._random.uniform(0.0, 3.0))
        await self.insist(lambda: self.store.request_cancel(NAMESPACE, run_id, "a client asked"))

    async def _trigger(self, name: str) -> None:
        request = f"request-{self._random.randrange(10**9)}"

        def runs(job: Job, fire_at: int) -> tuple[NewRun, ...]:
            return make_runs(job, fire_at, fire_at)

        await self.insist(lambda: self.store.trigger(NAMESPACE, name, request, runs))

    async def _pause(self, name: str) -> None:
        await self.insist(lambda: self.store.pause_jobs(NAMESPACE, [name], paused=True, reason="a client paused it"))
        await asyncio.sleep(self._random.uniform(1.0, 25.0))
        await self.insist(lambda: self.store.pause_jobs(NAMESPACE, [name], paused=False, reason=""))

    async def _edit(self, name: str) -> None:
        job = await self.insist(lambda: self.store.get_job(NAMESPACE, name))
        if job is not None:
            changed = msgspec.structs.replace(job, priority=self._random.randint(1, 10))
            await self.insist(lambda: self.store.edit_job(changed, job.version))
