"""One run from start to verdict: the cluster starts, suffers, heals and drains; its end is written down, and judged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from mainspring import Retry
from mainspring.clock import Clock, SystemClock
from mainspring.core.instants import SECOND, Duration
from mainspring.core.states import FINAL, PENDING, RUNNING
from mainspring.errors import MainspringError
from mainspring.store import RunFilter
from mainspring.testing.chaos.cluster.backing import Backing, OwnServer
from mainspring.testing.chaos.cluster.cluster import Cluster, Show
from mainspring.testing.chaos.cluster.directed import Director
from mainspring.testing.chaos.cluster.faults import RATES, SERVER_RATES, plan_faults
from mainspring.testing.chaos.cluster.processes import ProcessSlot, Role
from mainspring.testing.chaos.inside.orders import Orders, reach
from mainspring.testing.chaos.inside.recording import Journal, RecordedApp, gather
from mainspring.testing.chaos.inside.timing import StoreTime, skewed
from mainspring.testing.checking import Verdict, check
from mainspring.testing.history import Record
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.simulation.load.workload import NAMESPACE
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.world.ending import record_end

SETTINGS: Final = {
    "MAINSPRING_CONCURRENCY": "6",
    "MAINSPRING_CLAIM_TTL": "2s",
    "MAINSPRING_CLAIM_RENEW": "500ms",
    "MAINSPRING_WORKER_DEAD_AFTER": "3s",
    "MAINSPRING_DRAIN_GRACE": "2s",
}
"""Short claims, so that losses are noticed within the time; the lease has its defaults."""
LATENESS: Final[Duration] = 15 * SECOND
"""How late a run may begin where nothing goes wrong. Generous: the machine may have other things to do."""
OVERRUN: Final[Duration] = 10 * SECOND
FENCED: Final[Duration] = 5 * SECOND
"""How long after its claim has run out work may go on: some ignores its cancellation twice."""
PASSING: Final = LATENESS
"""How long claimers of PostgreSQL may pass over a run: while others hold its lock, which ends with their transaction,
and that, if they stand still, after 3 s; or while they look on from where they were, since looks are slow."""
CALM: Final = 0.2
"""The part of the time, at its end, in which nothing goes wrong any more."""
LONGEST_HEALING_S: Final = 60.0
SKEWS_S: Final = (0, 1800, -1800)
"""How far the wall clocks of processes are ahead, one after the other: an hour lies between some of them."""
LONGEST_START_S: Final = 60.0
LONGEST_DRAIN_S: Final = 90.0
HASTY_DRAIN_S: Final = 5.0
HASTY_LATENESS: Final[Duration] = 3 * SECOND
_UNDER_WAY: Final = RunFilter(NAMESPACE, states=(PENDING, RUNNING), limit=10_000)
QUIET_S: Final = 2.0
"""Firings that follow the last ends are due at once: let them come."""


def draw_settings(seed: int) -> dict[str, str]:
    """The environment of every process: the coordination and the order of runs are drawn."""
    random = Random(f"{seed}:settings")
    drawn = {
        "MAINSPRING_COORDINATION": random.choice(("leader", "leader", "cluster")),
        "MAINSPRING_ORDERING": random.choice(("strict", "ageing")),
    }
    return {**SETTINGS, **drawn}


class Plan(msgspec.Struct, frozen=True):
    """What makes a run. The same seed gives the same faults at the same times; what comes of them is another matter."""

    store: str
    folder: Path
    seed: int
    seconds: float = 120.0
    nodes: int = 3
    workers: int = 3
    clients: int = 2
    bug: str | None = None
    postgres: bool = False
    """Whether the store is a PostgreSQL server that the driver starts, instead of `store`."""
    database: str | None = None
    """The name of the database there; its own if left out."""
    skewed: bool = False
    """Whether the processes' wall clocks are apart; only where the store has its own clock."""
    script: tuple[str, ...] | None = None
    """Steered faults, one after the other, instead of drawn ones: see `directed`."""
    hasty: bool = False
    """Whether to look for a known bug only: the driver does not wait for what the bug prevents."""


class Result(msgspec.Struct, frozen=True):
    """What came of it."""

    verdict: Verdict
    troubles: list[str]
    """Processes that ended as none should, and errors in their logs."""
    faults: Counter[str]
    processes: int
    """How many were started."""
    counts: Counter[str]
    """What the history has, by kind."""
    healed_s: dict[str, float]
    """After each steered fault, until nothing that could be claimed was left waiting."""

    @property
    def ok(self) -> bool:
        """Whether every invariant holds and no process did what none should."""
        return self.verdict.ok and not self.troubles


class Run:
    """`play` is all of it."""

    def __init__(self, plan: Plan, show: Show, server: Postgres | None = None) -> None:
        self._plan = plan
        self._clock: Clock = SystemClock()
        self._began = self._clock.monotonic()
        self._show = show
        owned = plan.postgres or server is not None
        self._backing = OwnServer(Random(f"{plan.seed}:wire"), server, plan.database) if owned else Backing(plan.store)
        self._places = [self._place(role, number) for role, number in self._roles()]
        self._cluster = Cluster(plan.folder, self._places, self._backing, self._note, self._report)
        self._healed_s: dict[str, float] = {}

    def _roles(self) -> list[tuple[Role, int]]:
        counts: list[tuple[Role, int]] = [
            ("up", self._plan.nodes),
            ("worker", self._plan.workers),
            ("client", self._plan.clients),
        ]
        return [(role, number) for role, count in counts for number in range(1, count + 1)]

    def _place(self, role: Role, number: int) -> ProcessSlot:
        longest_s = self._plan.seconds + 2 * LONGEST_DRAIN_S + LONGEST_HEALING_S * len(self._plan.script or ())
        return ProcessSlot(role, number, self._plan.folder, longest_s, self._environment)

    def _environment(self, actor: str) -> dict[str, str]:
        plan, backing = self._plan, self._backing
        gentle = plan.script is not None
        orders = Orders(str(plan.folder), actor, plan.seed, self._cluster.version, plan.bug, gentle, backing.epoch)
        names = [place.name for place in self._places]
        number = names.index(actor.partition(".")[0])
        clock = skewed(SKEWS_S[number % len(SKEWS_S)]) if plan.skewed and backing.shareable else {}
        return {**self._settings(), "MAINSPRING_STORE": backing.url, **orders.environment(), **clock}

    def _settings(self) -> dict[str, str]:
        drawn = draw_settings(self._plan.seed)
        return drawn if self._plan.script is None else {**drawn, "MAINSPRING_COORDINATION": "leader"}

    def _report(self, text: str) -> None:
        self._show(f"{self._clock.monotonic() - self._began:6.1f}  {text}")

    def _note(self, name: str, actor: str = "") -> None:
        self._scribe.write("fault", actor or "driver", self._clock, name=name)

    async def play(self) -> Result:
        """Every process that was started has ended when this returns."""
        try:
            await self._prepare()
            try:
                await self._live()
            finally:
                self._cluster.kill_all()
                await self._app.close()
        finally:
            self._backing.close()
        return await asyncio.to_thread(self._judge)

    async def _prepare(self) -> None:
        folder = self._plan.folder
        await self._backing.start()
        if self._backing.epoch is not None:
            self._clock = StoreTime(self._backing.epoch)
        self._scribe = Scribe(Journal(folder, "driver"), self._clock, Counter())
        self._app = RecordedApp(folder, "watcher", true=self._clock, store=self._backing.direct)
        store = await self._app.open()
        if await store.count_runs(NAMESPACE) or await store.list_jobs(NAMESPACE, limit=1):
            raise MainspringError(f"{self._backing.direct} is in use: chaos needs an empty store")
        self._director = Director(self._cluster, self._backing, folder, self._app)

    async def _live(self) -> None:
        suffering_s = self._plan.seconds * (1 - CALM)
        self._cluster.start()
        await self._wait_for_all()
        if self._plan.script is None:
            await self._suffer(suffering_s)
        elif self._plan.script:
            await self._follow(self._plan.script)
        else:
            await self._app.submit("broken", retry=Retry(0, delay="100ms"))  # So that something fails in any case.
            await asyncio.sleep(suffering_s)
        await self._heal()
        await asyncio.sleep(self._plan.seconds - suffering_s)
        await self._finish()
        await self._drain()
        if self._plan.hasty:
            self._cluster.kill_all()
        await self._cluster.end()
        await record_end(await self._app.open(), self._scribe, self._clock)

    async def _follow(self, script: Sequence[str]) -> None:
        for kind in script:
            await self._director.act(kind)
            if not self._plan.hasty:
                self._healed_s[kind] = await self._until_healed(kind)

    async def _until_healed(self, kind: str) -> float:
        """How long it took until every run that could be claimed, or whose worker may be gone, was attended to."""
        store, began = await self._app.open(), self._clock.monotonic()
        runs = await store.list_runs(_UNDER_WAY)
        now = self._clock.now()
        waiting = {run.id: run.token for run in runs if run.state == RUNNING or run.due_at <= now}
        while (took_s := self._clock.monotonic() - began) < LONGEST_HEALING_S:
            now = self._clock.now()
            left = {run.id for run in runs if run.token == waiting.get(run.id) and (run.claimed_until or 0) < now}
            if not left:
                self._report(f"healed after {took_s:.1f} s")
                return took_s
            await asyncio.sleep(0.05)
            runs = await store.list_runs(_UNDER_WAY)
        self._cluster.troubles.append(f"{LONGEST_HEALING_S:g} s after {kind} no worker had claimed {', '.join(left)}")
        return took_s

    async def _wait_for_all(self) -> None:
        """What is killed sooner has not begun to live."""
        store, deadline = await self._app.open(), self._clock.monotonic() + LONGEST_START_S
        while len(await store.list_workers(NAMESPACE)) < self._plan.nodes + self._plan.workers:
            if self._clock.monotonic() > deadline:
                raise MainspringError(
                    f"not all processes were there after {LONGEST_START_S:g} s: see {self._plan.folder}"
                )
            await asyncio.sleep(0.1)
        self._report("all are there")

    async def _suffer(self, seconds: float) -> None:
        began = self._clock.monotonic()
        rates = {**RATES, **SERVER_RATES} if isinstance(self._backing, OwnServer) else RATES
        for fault in plan_faults(self._plan.seed, seconds, rates):
            await asyncio.sleep(max(began + fault.at_s - self._clock.monotonic(), 0.0))
            self._cluster.strike(fault)
        await asyncio.sleep(max(began + seconds - self._clock.monotonic(), 0.0))

    async def _heal(self) -> None:
        reach(self._plan.folder, "calm")
        await self._cluster.heal()
        await self._switch(paused=False)  # Those whose client was killed before it could.
        self._note("healed")
        self._report("healed")

    async def _finish(self) -> None:
        """Clients ask for no more, and jobs fire no more."""
        reach(self._plan.folder, "done")
        await self._cluster.wait_for_clients(LONGEST_START_S)
        await self._switch(paused=True)

    async def _switch(self, *, paused: bool) -> None:
        store = await self._app.open()
        names = [job.name for job in await store.list_jobs(NAMESPACE) if (job.paused_at is not None) is not paused]
        await store.pause_jobs(NAMESPACE, names, paused=paused, reason="all is done" if paused else "")

    async def _drain(self) -> None:
        """Wait until nothing is left to do; what is not done by then never will be, and the checker says so."""
        longest_s = HASTY_DRAIN_S if self._plan.hasty else LONGEST_DRAIN_S
        store, deadline = await self._app.open(), self._clock.monotonic() + longest_s
        quiet_since = None
        while self._clock.monotonic() < deadline and not self._cluster.hopeless:
            counts = await store.count_runs(NAMESPACE)
            left = sum(counts.values()) - sum(counts.get(state, 0) for state in FINAL)
            now = self._clock.monotonic()
            quiet_since = None if left else quiet_since or now
            if quiet_since is not None and now >= quiet_since + (0.0 if self._plan.hasty else QUIET_S):
                break
            await asyncio.sleep(0.2)
        self._note("drained")
        self._report("drained")

    def _judge(self) -> Result:
        records = gather(self._plan.folder)
        lateness = HASTY_LATENESS if self._plan.hasty else LATENESS
        passing = PASSING if self._backing.shareable else 0
        verdict = check(
            records,
            lateness_bound=lateness,
            deadline_bound=OVERRUN,
            fence_bound=FENCED,
            passing_bound=passing,
        )
        places = self._cluster.places
        troubles = [*self._cluster.troubles, *(trouble for place in places for trouble in _errors(place.log))]
        processes = sum(place.generation for place in places)
        return Result(verdict, troubles, self._cluster.happened, processes, _count(records), self._healed_s)


def _errors(log: Path) -> list[str]:
    """Errors that a process did not expect: loops go on after them, and only log them."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [
        f"{log.name}, line {number}: {_last_of(lines, number)}"
        for number, line in enumerate(lines, 1)
        if line.startswith("Traceback")
    ]


def _last_of(lines: list[str], number: int) -> str:
    """What a traceback ends with."""
    return next((line for line in lines[number:] if not line.startswith(" ")), lines[number - 1])


def _count(records: list[Record]) -> Counter[str]:
    kinds = partial(_kind, {"start", "fire", "submit", "report", "run", "firing", "attempt", "term", "claim"})
    return Counter(kind for record in records if (kind := kinds(record)) is not None)


def _kind(counted: set[str], record: Record) -> str | None:
    if record.what not in counted:
        return None
    how = record.state if record.what in ("run", "firing", "attempt") else record.outcome
    return f"{record.what} {how}"
