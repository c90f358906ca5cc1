"""A client process: it submits, cancels, triggers, pauses and edits until all is done, and repeats what got no answer.
It is killed like all others: what it has asked for by then may have happened or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from mainspring import Retry, every
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreFull, StoreUnavailable
from mainspring.testing.chaos.inside.work import BY_HAND, HARSH, PAUSABLE, app, orders

T = TypeVar("T")

ACTION_S: Final = 0.3
"""The mean pause between two actions."""
KEYS: Final = ("red", "green", "blue", "black", "white", "grey")
TASKS: Final = ("quick", "quick", "steady", "flaky", "broken", "stubborn", "limited", "blocking", "slow")


class Client:
    """One client. What it does is drawn; what it repeats, it repeats unchanged."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._submitted: list[str] = []
        self._keyed: list[tuple[str, dict[str, Any]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def act(self) -> None:
        """One action after the other, not waiting for the answers; then for all of them."""
        actions = (self._submit, self._submit, self._many, self._cancel, self._cancel, self._repeat, self._chain)
        rare = (self._trigger, self._pause, self._edit)
        while not orders.reached("done"):
            chosen = self._random.choice(rare if self._random.random() < 0.2 else actions)
            self._tasks.append(asyncio.create_task(chosen()))
            await asyncio.sleep(self._random.expovariate(1 / (2 * ACTION_S if orders.gentle else ACTION_S)))
        await asyncio.gather(*self._tasks)

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer, asked for again and again; None where it is refused."""
        while True:
            try:
                return await call()
            except (StoreUnavailable, StoreFull):
                await asyncio.sleep(self._random.uniform(0.1, 0.5))
            except (Conflict, NotFound, InvalidInput):
                return None

    def _drawn(self) -> tuple[str, dict[str, Any]]:
        random = self._random
        task = random.choice([task for task in TASKS if not (orders.gentle and task in HARSH)])
        options: dict[str, Any] = {
            "priority": random.randint(1, 10),
            "key": random.choice((*(None for _ in KEYS), *KEYS)),
            "delay": random.choice((None, None, None, "1s", "2s")),
            "expires": random.choice((None, None, None, None, "2s")),
            "timeout": random.choice((None, None, "500ms")) if task in ("steady", "slow", "stubborn") else None,
            "retry": Retry(random.choice((0, 1, 3)), delay=random.choice(("100ms", "300ms")), factor=2.0),
            "max_losses": random.choice((1, 3, 3)),
            "on_key_failure": random.choice(("continue", "continue", "stop")),
        }
        return task, options

    async def _send(self, task: str, options: dict[str, Any]) -> str | None:
        handle = await self._insist(lambda: app.submit(task, **options))
        if handle is None:
            return None
        self._submitted.append(handle.id)
        return handle.id

    async def _submit(self) -> None:
        task, options = self._drawn()
        if self._random.random() < 0.4:
            options["idempotency_key"] = f"{orders.actor}-{self._random.randrange(10**9)}"
            self._keyed.append((task, options))
        await self._send(task, options)

    async def _repeat(self) -> None:
        """Send the same request again: the key must find the first run."""
        if self._keyed:
            await self._send(*self._random.choice(self._keyed[-5:]))

    async def _many(self) -> None:
        task, options = self._drawn()
        calls: list[dict[str, object]] = [{} for _ in range(self._random.randint(2, 8))]
        await self._insist(lambda: app.tasks[task].options(**options).submit_many(calls))

    async def _chain(self) -> None:
        """Runs that wait for others."""
        upstreams = [await self._send(*self._drawn()) for _ in range(2)]
        task, options = self._drawn()
        options["after"] = [run_id for run_id in upstreams if run_id is not None]
        options["when"] = self._random.choice(("all_succeeded", "any_finished"))
        options["on_failure"] = self._random.choice(("skip", "fail", "run"))
        await self._send(task, options)

    async def _cancel(self) -> None:
        """Something that was sent long ago, or something that may have started just now."""
        if self._submitted and self._random.random() < 0.3:
            run_id: str | None = self._random.choice(self._submitted[-12:])
        else:
            _, options = self._drawn()
            endless = "slow" if orders.gentle else "stubborn"
            run_id = await self._send(self._random.choice(("steady", "slow", endless, "flaky")), options)
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
        if run_id is not None:
            await self._insist(lambda: app.runs.cancel(run_id, "a client asked"))

    async def _trigger(self) -> None:
        name, request = self._random.choice(BY_HAND), f"{orders.actor}-{self._random.randrange(10**9)}"
        await self._insist(lambda: app.jobs.trigger(name, request))

    async def _pause(self) -> None:
        name = self._random.choice(PAUSABLE)
        await self._insist(lambda: app.jobs.pause(name, reason="a client paused it"))
        await asyncio.sleep(self._random.uniform(0.2, 3.0))
        await self._insist(lambda: app.jobs.resume(name))

    async def _edit(self) -> None:
        """Its own job: those that the program declares, the next start would make what they were."""
        name = f"{orders.actor}-job"
        if await self._insist(lambda: app.jobs.add(name, every("2s"), task="quick")) is not None:
            return
        store = await app.open()
        job = await self._insist(lambda: store.get_job(app.settings.namespace, name))
        if job is not None:
            changed = msgspec.structs.replace(job, priority=self._random.randint(1, 10))
            await self._insist(lambda: store.edit_job(changed, job.version))


async def main() -> None:
    """Be a client until the end."""
    await Client(Random(f"{orders.seed}:{orders.actor}")).act()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
