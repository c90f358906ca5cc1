"""A world: several processes of the real program on one real store, in virtual time; it suffers, heals and ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Final

from mainspring.core.states import BLOCKED, PENDING, RUNNING
from mainspring.process.ids import IdSource
from mainspring.services.announcer import Announcer
from mainspring.store import RunFilter, Saved, Store
from mainspring.testing.history import History
from mainspring.testing.simulation.faults import BROKEN_BROKER, PROFILES, Event, Weather, plan_events
from mainspring.testing.simulation.load.client import Client
from mainspring.testing.simulation.load.workload import APP, CALENDARS, NAMESPACE, Sketch, draw_night
from mainspring.testing.simulation.ports.broker import Courier, Post
from mainspring.testing.simulation.ports.scribe import Scribe, as_json
from mainspring.testing.simulation.ports.transports import TRANSPORTS
from mainspring.testing.simulation.ports.wire import PATIENCE_S, Wire
from mainspring.testing.simulation.scenario import Scenario
from mainspring.testing.simulation.sometimes import read_events, watch
from mainspring.testing.simulation.world.clock import ProcessClock, StoreClock
from mainspring.testing.simulation.world.ending import record_end, record_tallies
from mainspring.testing.simulation.world.hosts import Host, HostingLoop
from mainspring.testing.simulation.world.makeup import divide, draw_settings
from mainspring.testing.simulation.world.pace import unhurried
from mainspring.testing.simulation.world.process import Process, Surroundings
from mainspring.wiring import open_memory

CLIENTS = 2
_UNFINISHED: Final = (BLOCKED, PENDING, RUNNING)
QUIET_S = PATIENCE_S + 5.0
"""How long a message from before the healing may still be under way."""
LONGEST_DRAIN_S = 600.0
LONGEST_SILENCE_S = 90.0
"""Longer than any run and any wait for a retry: where nothing was recorded for this long, nothing will be."""


class World:
    """`turn` plays the whole scenario into the history. Threads, sockets and real time do not exist in it."""

    def __init__(self, scenario: Scenario, history: History, happened: Counter[str]) -> None:
        self._scenario = scenario
        self._profile = PROFILES[scenario.profile]
        self._seed = f"{scenario.seed}:{scenario.profile}"
        self._without = frozenset(scenario.without)
        self.loop = HostingLoop()
        start, zone = draw_night(Random(f"{self._seed}:night"))
        self.clock = StoreClock(self.loop, start)
        self._store: Store = open_memory(self.clock)
        self._happened = happened
        self._weather = Weather(self._profile, self._without, happened)
        self._scribe = Scribe(history, self.clock, happened)
        self._ids = IdSource(self.clock, Random(f"{self._seed}:ids"))
        delivers = Random(f"{self._seed}:broker").random() < self._profile.broker
        spared = self._without if delivers else self._without | BROKEN_BROKER
        self._events = plan_events(self._profile, self._seed, scenario.minutes * 0.97, spared)
        leaps_s = sum(event.length_s for event in self._events if event.kind == "clock_leap")
        self.settings = draw_settings(Random(f"{self._seed}:settings"), happened)
        minutes = scenario.minutes + leaps_s / 60
        self._sketch = Sketch(Random(f"{self._seed}:jobs"), self._ids, self.settings, start, zone, minutes)
        self._declared = self._sketch.declared()
        self.post = self._open_post() if delivers else None
        happened["night in which clocks change"] += zone != "UTC"
        self.around = Surroundings(
            self._seed, self.loop, self.clock, self._store, self._weather, self._scribe, self._declare, self.post
        )
        self.processes = self._make_processes()
        self._is_mixed = self._mix_versions()

    def _open_post(self) -> Post:
        self._happened["runs delivered by a broker"] += 1
        return TRANSPORTS[self._profile.transport](
            self.clock, self._weather, self.settings.ordering, Random(f"{self._seed}:post")
        )

    def _make_processes(self) -> list[Process]:
        """Some schedule and work, some do one of the two; of the workers, those that do both serve everything."""
        nodes, workers, settings = self._scenario.nodes, self._scenario.workers, self.settings
        served = divide(Random(f"{self._seed}:served"), settings, workers)
        both = min(nodes, workers) // 2
        made = [
            Process(f"both-{number}", self.around, served.pop(0), schedules=True, works=True)
            for number in range(1, both + 1)
        ]
        made += [
            Process(f"node-{number}", self.around, settings, schedules=True, works=False)
            for number in range(1, nodes - both + 1)
        ]
        return made + [
            Process(f"worker-{number}", self.around, each, schedules=False, works=True)
            for number, each in enumerate(served, 1)
        ]

    def _mix_versions(self) -> bool:
        """Give some of the workers older code, but not the first one, which serves everything."""
        random, others = Random(f"{self._seed}:code"), [each for each in self.processes if each.works][1:]
        chance = 0.0 if "old_code" in self._without else self._profile.old_code
        if not others or random.random() >= chance:
            return False
        for process in self.processes:
            process.is_old = False
        for process in (others[0], *(each for each in others[1:] if random.random() < 0.5)):
            process.is_old = True
        self._happened["old_code"] += 1
        return True

    async def _declare(self, store: Store, version: int) -> Saved:
        return await store.sync_jobs(APP, NAMESPACE, self._sketch.changed(self._declared, version))

    def turn(self) -> None:
        """Play the whole simulation."""
        try:
            with unhurried():
                self.loop.run_until_complete(self._play())
        finally:
            self._scribe.seal()
            self.loop.bury()
            self.loop.run_until_complete(self._store.close())
            self.loop.close()

    async def _play(self) -> None:
        length_s = self._scenario.minutes * 60
        for calendar in CALENDARS:
            await self._store.save_calendar(NAMESPACE, calendar)
            self._scribe.write("calendar", "world", self.clock, name=calendar.name, data=as_json(calendar))
        if self._profile.is_calm:
            self._scribe.write("fault", "world", self.clock, name="healed")
        for process in self.processes:
            process.start_after(Random(f"{self._seed}:{process.name}").uniform(0.0, 1.0))
        clients = [self._make_client(number) for number in range(1, CLIENTS + 1)]
        if self._suffers_a_tenant():
            for job in self._sketch.greedy():
                await self._store.create_job(job)
        if self._suffers_huge_completions():
            for job in self._sketch.huge():
                await self._store.create_job(job)
        added = self._sketch.added() + self._sketch.herd(self._profile.herd)
        for job in added:
            await clients[0].create(job)
        names = [job.name for job in (*self._declared, *added[:8])]
        watching = self.loop.create_task(watch(self._store, self._happened))
        acting = [self.loop.create_task(client.act_until(length_s * 0.95, names)) for client in clients]
        if self._weather.has("paused_queues"):
            self._happened["paused_queues"] += 1
            pausing = self._make_client(CLIENTS + 1).pause_until(length_s * 0.95, self.settings.queues)
            acting.append(self.loop.create_task(pausing))
        for event in self._events:
            await asyncio.sleep(max(event.at_s - self.loop.time(), 0.0))
            self._strike(event)
        await asyncio.sleep(max(length_s - self.loop.time(), 0.0))
        await asyncio.gather(*acting)
        await self._heal()
        for client in clients:
            await client.settle()
        await self._drain()
        watching.cancel()
        await record_end(self._store, self._scribe, self.clock)
        await read_events(self._store, self._happened)
        await record_tallies(self._store, self._scribe, self.clock)

    def _suffers_a_tenant(self) -> bool:
        chance = 0.0 if "hostile_tenant" in self._without else self._profile.tenants
        suffers = Random(f"{self._seed}:tenant").random() < chance
        self._happened["hostile_tenant"] += suffers
        return suffers

    def _suffers_huge_completions(self) -> bool:
        chance = 0.0 if "huge_completions" in self._without else self._profile.huge
        suffers = Random(f"{self._seed}:huge").random() < chance
        self._happened["huge_completions"] += suffers
        return suffers

    def _make_client(self, number: int) -> Client:
        actor, random = f"client-{number}", Random(f"{self._seed}:client:{number}")
        clock = ProcessClock(self.clock, random, wrong=self._weather.has("wrong_clocks"))
        wire = Wire(self._store, actor, None, clock, self._weather, self._scribe, self._seed)
        store = wire.as_store
        if self.post is not None:
            courier = Courier(self.post, wire, Host(self.loop), self.clock, Random(f"{self._seed}:courier:{actor}"))
            store.on_accepted(Announcer(store, courier, clock))
        hurried = "paused_queues" in self._profile.habits  # So that runs with a total timeout have to wait.
        return Client(store, self.settings, self._ids, random, self._happened, mixed=self._is_mixed, hurried=hurried)

    def _strike(self, event: Event) -> None:
        process = self.processes[event.target % len(self.processes)]
        self._happened[event.kind] += 1
        self._scribe.write("fault", process.name, self.clock, name=event.kind, data=f"{event.length_s:.3f}")
        match event.kind:
            case "crash":
                process.kill()
                process.start_after(event.length_s)
            case "power_cut":
                for each in self.processes:
                    each.kill()
                    each.start_after(event.length_s)
            case "pause":
                process.freeze(event.length_s)
            case "restart":
                self.loop.create_task(self._restart([process], event.length_s, upgrade=False))
            case "upgrade":
                self.loop.create_task(self._restart(self.processes, event.length_s, upgrade=True))
            case "clock_leap":
                self.clock.leap(event.length_s)
            case "slow_disk" | "store_down" | "disk_full" | "failed_sync" | "broker_down":
                self._spoil_for_all(event)
            case "broker_forgets":
                if self.post is not None:
                    self.post.forget()
            case _:
                self._spoil_process(process, event)

    async def _restart(self, processes: list[Process], pause_s: float, *, upgrade: bool) -> None:
        """One after the other."""
        for process in processes:
            await process.stop()
            if upgrade:
                process.upgrade()
            process.start_after(pause_s)
            await asyncio.sleep(pause_s + 1.0)

    def _spoil_for_all(self, event: Event) -> None:
        if event.kind == "failed_sync":
            for process in self.processes:
                process.fail_store()
            return
        what = {"slow_disk": "slow", "store_down": "down", "disk_full": "full", "broker_down": "mute"}[event.kind]
        setattr(self._weather, what, True)
        self.loop.call_later(event.length_s, setattr, self._weather, what, False)

    def _spoil_process(self, process: Process, event: Event) -> None:
        if not process.alive:
            return
        if event.kind == "clock_jump":
            process.clock.jump()
        elif event.kind == "cancelled_loop":
            process.cancel_loop(event.target)
        elif event.kind == "short_of_connections":
            process.wire.short = True
            self.loop.call_later(event.length_s, setattr, process.wire, "short", False)
        elif event.kind == "partition":
            process.wire.cut = True
            self.loop.call_later(event.length_s, setattr, process.wire, "cut", False)
        else:
            process.lease.lie = "false" if event.kind == "false_lease" else "silent"
            self.loop.call_later(event.length_s, setattr, process.lease, "lie", None)

    async def _heal(self) -> None:
        """Everything that went wrong ends; what was sent before may still arrive for a while."""
        self._weather.heal()
        await asyncio.sleep(QUIET_S)
        for process in self.processes:
            process.start()
            process.thaw()
        await asyncio.sleep(QUIET_S)
        self._scribe.write("fault", "world", self.clock, name="healed")

    async def _drain(self) -> None:
        """Wait until nothing is left to do; what is not done by then never will be, and the checker says so."""
        deadline, silent_since, records = self.loop.time() + LONGEST_DRAIN_S, self.loop.time(), 0
        while self.loop.time() < min(deadline, silent_since + LONGEST_SILENCE_S):
            if self._scribe.records != records:
                records, silent_since = self._scribe.records, self.loop.time()
            if not await self._store.list_runs(RunFilter(NAMESPACE, states=_UNFINISHED, limit=1)):
                break
            await asyncio.sleep(1.0)
        # Firings that follow the last ends are due at once: let them come.
        await asyncio.sleep(5.0)
        self._scribe.write("fault", "world", self.clock, name="drained")
