"""The cluster under attack: its places, the faults, and the replacement of ended processes."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mainspring.testing.chaos.cluster.backing import SERVER_FAULTS, Backing
from mainspring.testing.chaos.cluster.faults import Fault
from mainspring.testing.chaos.cluster.processes import ProcessSlot
from mainspring.testing.chaos.inside.recording import SUFFIX
from mainspring.testing.checking.stories.stories import PAUSE
from mainspring.testing.history import Record, load

LOOK_S: Final = 0.2
ELECTION_S: Final = 10.0
"""How long to wait for a leader."""
APART_S: Final = 1.0
"""Between two processes of a rolling restart."""

MOST_TROUBLES: Final = 10
"""After this many unexpected ends the faults are not the cause: give up."""

Show = Callable[[str], None]
Note = Callable[..., None]


class Cluster:
    """`note` writes a fault into the history, `show` prints it."""

    def __init__(self, folder: Path, places: Sequence[ProcessSlot], backing: Backing, note: Note, show: Show) -> None:
        self._folder = folder
        self.places = places
        self._backing = backing
        self._note = note
        self._show = show
        self.happened: Counter[str] = Counter()
        self.troubles: list[str] = []
        """What no process should have done."""
        self.version = 1
        self._under_way: set[asyncio.Task[None]] = set()
        self._calm = False
        self._at_the_store = asyncio.Lock()
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """All processes, and their supervisors."""
        for place in self.places:
            place.start()
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """A process that ended by itself is noted and replaced; a client that is done stays so once there is peace."""
        while not self.hopeless:
            await asyncio.sleep(LOOK_S)
            for place in self.places:
                if place.busy or place.alive or (place.role == "client" and self._calm):
                    continue
                if (wrong := place.own_end()) is not None and not self._may_give_up(place):
                    self.troubles.append(wrong)
                self.happened[f"{place.role} ended itself"] += 1
                self._show(f"{place.actor} ended by itself")
                place.start()

    def _may_give_up(self, place: ProcessSlot) -> bool:
        """A process that finds no store at its start says so and ends; once it works, it may not."""
        works = any(record.actor == place.actor for record in self._recorded(place.name, "claim"))
        return self._backing.troubled_until > place.began and not works

    @property
    def hopeless(self) -> bool:
        """Whether processes end by themselves again and again."""
        return len(self.troubles) >= MOST_TROUBLES

    def strike(self, fault: Fault) -> None:
        """Do it; it goes on while others are done."""
        if fault.kind in SERVER_FAULTS:
            self.note(fault)
            self._spawn(self._trouble(fault))
        elif fault.kind == "roll":
            self._spawn(self._roll(fault))
        elif fault.kind == "power cut":
            self._spawn(self._cut_power(fault))
        elif fault.kind.endswith("leader"):
            self._spawn(self._strike_leader(fault))
        else:
            free = [place for place in self._free() if fault.kind != "drain" or place.role != "client"]
            if free:
                self._spawn(self.do(fault, free[fault.target % len(free)]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _trouble(self, fault: Fault) -> None:
        async with self._at_the_store:  # One thing at a time: what mends one would mend the other.
            await self._backing.suffer(fault.kind, fault.length_s)

    def _free(self) -> list[ProcessSlot]:
        return [place for place in self.places if not place.busy and place.alive]

    async def _strike_leader(self, fault: Fault) -> None:
        """The leader; if there is none that could be struck just now, the next one."""
        for _ in range(round(ELECTION_S / LOOK_S)):
            _, leader = self.newest_term() or (0, "")
            for place in self._free():
                if place.actor == leader:
                    await self.do(fault, place)
                    return
            await asyncio.sleep(LOOK_S)

    def newest_term(self) -> tuple[int, str] | None:
        """The newest term and its leader, as the histories have it."""
        terms = [(record.term or 0, record.actor) for record in self._recorded("up-", "term")]
        return max(terms, default=None)

    def who_began(self, run_id: str) -> ProcessSlot | None:
        """Where a run is being executed, or was last."""
        starts = [record for record in self._recorded("", "start") if record.run == run_id]
        return self.place_of(max(starts, key=lambda record: record.store).actor) if starts else None

    def acknowledged(self) -> int:
        """How many submissions of clients were, so far."""
        return sum(record.outcome == "ok" for record in self._recorded("client-", "submit"))

    def _recorded(self, actors: str, what: str) -> Iterator[Record]:
        mark = f'"what":"{what}"'.encode()
        for path in self._folder.glob(f"{actors}*{SUFFIX}"):
            yield from load(line for line in path.read_bytes().splitlines(keepends=True) if mark in line)

    def place_of(self, actor: str) -> ProcessSlot:
        """The place of a process, or of one that has ended."""
        return next(place for place in self.places if place.name == actor.partition(".")[0])

    async def do(self, fault: Fault, place: ProcessSlot) -> None:
        """Do it to one process, and put another in its place if it ended."""
        self.note(fault, place)
        place.busy = True
        match fault.kind:
            case "kill" | "kill leader" | "kill worker":
                place.kill()
                await asyncio.sleep(fault.length_s)
            case "stop" | "stop leader":
                place.send(signal.SIGSTOP)
                await asyncio.sleep(fault.length_s)
                place.send(signal.SIGCONT)
            case _:
                await self._drain(place)
                await asyncio.sleep(fault.length_s)
        place.start()
        place.busy = False

    async def _drain(self, place: ProcessSlot) -> None:
        if (wrong := await asyncio.to_thread(place.stop)) is not None:
            self.troubles.append(wrong)

    async def _roll(self, fault: Fault) -> None:
        """One after the other is replaced by the next version of the program."""
        self.note(fault)
        self.version += 1
        for place in self.places:
            if place.busy or place.role == "client":
                continue
            place.busy = True
            await self._drain(place)
            await asyncio.sleep(fault.length_s)
            place.start()
            place.busy = False
            await asyncio.sleep(APART_S)

    async def _cut_power(self, fault: Fault) -> None:
        self.note(fault)
        struck = [place for place in self.places if not place.busy]
        for place in struck:
            place.busy = True
            place.send(signal.SIGKILL)
        for place in struck:
            place.kill()
        await asyncio.sleep(fault.length_s)
        for place in struck:
            place.start()
            place.busy = False

    def note(self, fault: Fault, place: ProcessSlot | None = None) -> None:
        """Count it, and write it down."""
        self.happened[fault.kind] += 1
        self._note(PAUSE if fault.kind.startswith("stop") else fault.kind, "" if place is None else place.actor)
        target = "all" if place is None else f"{place.actor} (pid {place.pid})"
        self._show(f"{fault.kind:<12} {target}, {fault.length_s:.1f} s")

    async def heal(self) -> None:
        """Let what is under way end; from then on only processes that end by themselves are replaced."""
        if self._under_way:
            await asyncio.gather(*self._under_way)
        self._calm = True

    async def wait_for_clients(self, longest_s: float) -> None:
        """Until they have ended by themselves, as they do when all is done."""
        clients = [place for place in self.places if place.role == "client"]
        wrongs = await asyncio.gather(*(asyncio.to_thread(place.wait, longest_s) for place in clients))
        self.troubles += [wrong for wrong in wrongs if wrong is not None]

    async def end(self) -> None:
        """Ask all to stop, and wait for them."""
        if self._keeping is not None:
            self._keeping.cancel()
        wrongs = await asyncio.gather(*(asyncio.to_thread(place.stop) for place in self.places))
        self.troubles += [wrong for wrong in wrongs if wrong is not None]

    def kill_all(self) -> None:
        """Whatever happened here: no process stays behind."""
        if self._keeping is not None:
            self._keeping.cancel()
        for place in self.places:
            place.kill()
