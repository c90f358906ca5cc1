"""Faults at the moment at which they hurt: not drawn, but steered, one after the other, each until it has shown.

Stops hit between deciding and asking (see `halts`): a leader that fires, or a worker that reports, wakes up after
another process has taken its place, and before that one has done its work. If the store let either through,
nothing else would stop it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from mainspring.errors import MainspringError
from mainspring.sdk.app import Mainspring
from mainspring.testing.chaos.cluster.backing import SERVER_FAULTS, Backing
from mainspring.testing.chaos.cluster.cluster import Cluster
from mainspring.testing.chaos.cluster.faults import Fault
from mainspring.testing.chaos.cluster.processes import ProcessSlot
from mainspring.testing.chaos.inside.halts import ANY, Halts

T = TypeVar("T")

LOOK_S: Final = 0.02
PATIENCE_S: Final = 90.0
"""How long to wait for anything that must come."""
ANSWER_S: Final = 0.4
"""How long a process that was woken has to be answered, while its replacement stands still. Their leases last."""
LENGTHS: Final = {"kill server": 0.5, "restart server": 0.2, "lose commits": 3.0, "slow wire": 2.0, "block wire": 2.5,
                  "replace wire": 1.0}  # fmt: skip
PROCESS_FAULTS: Final = ("kill leader", "kill worker", "stop leader", "stop worker")
DIRECTED: Final = frozenset((*PROCESS_FAULTS, *SERVER_FAULTS))
"""What can be asked for by name."""


class Director:
    """Carries faults out on a cluster. `app` submits the run whose worker is stopped."""

    def __init__(self, cluster: Cluster, backing: Backing, folder: Path, app: Mainspring) -> None:
        self._cluster = cluster
        self._backing = backing
        self._halts = Halts(folder)
        self._app = app

    async def act(self, kind: str) -> None:
        """One fault, until all struck processes may go on."""
        if kind in SERVER_FAULTS:
            length_s = LENGTHS.get(kind, 0.0)
            if kind == "kill server":
                await self._acknowledged()
            self._cluster.note(Fault(0.0, kind, 0, length_s))
            await self._backing.suffer(kind, length_s)
            return
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "kill leader": self._kill_leader,
            "kill worker": self._kill_worker,
            "stop leader": self._stop_leader,
            "stop worker": self._stop_worker,
        }
        await steps[kind]()

    async def _acknowledged(self) -> None:
        """A client has only just received the acceptance of its submission."""
        before = self._cluster.acknowledged()
        if any(place.role == "client" for place in self._cluster.places):
            await self._until(lambda: self._cluster.acknowledged() > before)

    async def _kill_leader(self) -> None:
        """And wait for another."""
        term, actor = await self._until(self._cluster.newest_term)
        place = self._cluster.place_of(actor)
        await self._cluster.do(Fault(0.0, "kill leader", 0, 0.1), place)
        await self._until(lambda: (self._cluster.newest_term() or (0, ""))[0] > term)

    async def _kill_worker(self) -> None:
        """One that is at work: of its runs, one is known, and must end elsewhere."""
        run_id = (await self._app.submit("slow", max_losses=3, priority=1)).id
        place = await self._until(lambda: self._cluster.who_began(run_id))
        await self._cluster.do(Fault(0.0, "kill worker", 0, 0.1), place)

    async def _stop_leader(self) -> None:
        """The old leader fires after another has begun its term, and before that one has fired."""
        old = await self._halted("fire", ANY)
        new = await self._halted("fire", ANY)
        await self._wake(old)
        await asyncio.sleep(ANSWER_S)
        await self._wake(new)

    async def _stop_worker(self) -> None:
        """The old worker reports a run after another has claimed it, and before that one has reported."""
        run_id = (await self._app.submit("steady", delay="300ms", priority=1, max_losses=3)).id
        old = await self._halted("report", run_id)
        new = await self._halted("report", run_id)
        await self._wake(old)
        await asyncio.sleep(ANSWER_S)
        await self._wake(new)

    async def _halted(self, call: str, about: str) -> ProcessSlot:
        """The next one that is about to make a call, standing still."""
        self._halts.ask(call, about)
        try:
            actor = await self._until(lambda: self._halts.actor_at(call, about))
        finally:
            self._halts.withdraw(call, about)
        place = self._cluster.place_of(actor)
        place.busy = True
        self._cluster.note(Fault(0.0, f"stop before {call}", 0, 0.0), place)
        return place

    async def _wake(self, place: ProcessSlot) -> None:
        place.send(signal.SIGCONT)
        place.busy = False

    async def _until(self, look: Callable[[], T | None]) -> T:
        """What comes of looking again and again."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := look()):
                if self._cluster.hopeless:
                    raise MainspringError("the cluster does not live: see its logs")
                await asyncio.sleep(LOOK_S)
            return found
