"""The work that a drill submits before, during and after the failure, and what it remembers to compare."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.states import FINAL
from mainspring.errors import MainspringError, NotFound
from mainspring.ops.drill.checklist import need
from mainspring.ops.drill.site import fetch
from mainspring.sdk.app import Mainspring

AT_ONCE = 10
"""Submissions under way together while a sample is taken."""
PACE_S = 0.05
"""Between two submissions of the steady traffic: the resolution of the recovery point."""
END_S = 120.0
"""How long a sample may take to be executed."""
LOOK_S = 0.1
SLOWER = 5.0
"""Traffic is back if its rate is no lower than by this factor, and the 99th percentile of its latency no higher."""
QUICK_MS = 1_000.0
"""Latency that is good whatever it was before: a standby has cold caches."""

_COUNTS = """
SELECT (SELECT count(*) FROM mainspring.jobs WHERE created_at <= {until}) AS jobs,
  (SELECT count(*) FROM mainspring.runs WHERE created_at <= {until})
    + (SELECT count(*) FROM mainspring.history WHERE created_at <= {until}) AS runs,
  (SELECT count(*) FROM mainspring.firings WHERE created_at <= {until}) AS firings,
  (SELECT count(*) FROM mainspring.runs WHERE state = 'running' AND priority <= 2) AS critical
"""


_RECENT = """
SELECT count(*) AS runs, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
  count(*) FILTER (WHERE state = 'failed') AS failed,
  coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY greatest(started_at - due_at, 0)), 0)::float8 AS p99_us
FROM mainspring.history WHERE finished_at > $1
"""
_AT_RANDOM = """
SELECT id, state FROM (
  SELECT id, state FROM mainspring.history TABLESAMPLE SYSTEM ({share}) WHERE namespace = $1 AND created_at <= $2
  UNION ALL
  SELECT id, state FROM mainspring.runs TABLESAMPLE SYSTEM ({share}) WHERE namespace = $1 AND created_at <= $2
) AS every_run ORDER BY random() LIMIT $3
"""
SPARE = 20
"""How many times as many rows as are wanted the server samples: it samples pages, which hold unequal numbers."""


class Counts(msgspec.Struct, frozen=True):
    """How much a database holds."""

    jobs: int
    runs: int
    firings: int
    critical: int
    """Runs of priorities 1 and 2 that are being executed."""


class Recent(msgspec.Struct, frozen=True):
    """What the fleet did lately."""

    runs: int
    succeeded: int
    failed: int
    p99_us: float
    """How late 99 of 100 runs started at most."""

    @property
    def success(self) -> float:
        """The share of runs that succeeded, of those that succeeded or failed."""
        return self.succeeded / max(self.succeeded + self.failed, 1)


class Sample(msgspec.Struct):
    """Submissions one beside another, and what became of them."""

    asked: int
    ids: list[str]
    errors: int
    p50_ms: float
    p99_ms: float
    rate: float
    """Accepted submissions a second."""

    @property
    def success(self) -> float:
        """The share that was accepted."""
        return len(self.ids) / self.asked

    def is_back(self, before: Sample) -> bool:
        """Whether traffic is as it was before a failure."""
        is_quick = self.p99_ms <= max(before.p99_ms * SLOWER, QUICK_MS) and self.rate >= before.rate / SLOWER
        return is_quick and self.errors <= before.errors + self.asked // 100

    def beside(self, before: Sample) -> str:
        """It and what was before, for people."""
        rates = f"{self.rate:.0f}/s, was {before.rate:.0f}/s"
        return f"{rates}; p99 {self.p99_ms:.0f} ms, was {before.p99_ms:.0f} ms; {self.errors} errors"


class Memory(msgspec.Struct):
    """What was there before the failure."""

    at: Instant
    counts: Counts
    states: dict[str, str]
    """States of a random sample of runs."""
    jobs: list[str]
    """The names of all jobs."""
    long_run: str
    due_later: str
    failed: str


class Traffic:
    """Submits runs of one task through an app, and looks at them."""

    def __init__(self, app: Mainspring, task: str, args: Mapping[str, Any]) -> None:
        self._app, self._task, self._args = app, task, args
        self.accepted: dict[str, float] = {}
        """Steady submissions that were acknowledged: when, on the monotonic clock, each was sent."""
        self.errors: list[float] = []
        """When steady submissions were refused or failed."""
        self._steady: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Submit steadily from now on."""
        self._steady = asyncio.ensure_future(self._submit_steadily())

    async def end(self) -> None:
        """Submit no more."""
        if self._steady is not None:
            self._steady.cancel()
            await asyncio.wait({self._steady})
            self._steady = None

    async def _submit_steadily(self) -> None:
        while True:
            sent = time.monotonic()
            try:
                run = await self._app.submit(self._task, self._args)
            except (MainspringError, OSError, TimeoutError):
                self.errors.append(sent)
            else:
                self.accepted[run.id] = sent
            await asyncio.sleep(PACE_S)

    async def resumed_after(self, instant: float, limit_s: float) -> None:
        """Wait until a submission that was sent after an instant is acknowledged, at most `limit_s`."""
        deadline = time.monotonic() + limit_s
        while not any(sent > instant for sent in reversed(self.accepted.values())):
            need(time.monotonic() < deadline, f"no submission is accepted {limit_s:g} s after the failure")
            await asyncio.sleep(LOOK_S / 5)

    async def sample(self, count: int) -> Sample:
        """Submit this many, some at once, and measure."""
        ids, took_s, errors = list[str](), list[float](), 0
        queue = iter(range(count))
        began = time.monotonic()

        async def submit() -> None:
            nonlocal errors
            for _ in queue:
                sent = time.monotonic()
                try:
                    run = await self._app.submit(self._task, self._args)
                except (MainspringError, OSError, TimeoutError):
                    errors += 1
                else:
                    ids.append(run.id)
                    took_s.append(time.monotonic() - sent)

        await asyncio.gather(*(submit() for _ in range(AT_ONCE)))
        took_s = sorted(took_s) or [0.0]
        middle, late = took_s[len(took_s) // 2], took_s[min(int(len(took_s) * 0.99), len(took_s) - 1)]
        return Sample(count, ids, errors, middle * 1e3, late * 1e3, len(ids) / max(time.monotonic() - began, 1e-9))

    async def executed(self, ids: Sequence[str]) -> float:
        """The share of these runs that succeeded, once all have ended or it takes too long."""
        deadline, left, good = time.monotonic() + END_S, list(ids), 0
        while left and time.monotonic() < deadline:
            state = await self.state(left[-1])
            if state is None or state in FINAL:
                left.pop()
                good += state == "succeeded"
            else:
                await asyncio.sleep(LOOK_S)
        return good / max(len(ids), 1)

    async def state(self, run_id: str) -> str | None:
        """The state of a run; None if there is no such run."""
        return (await self.states([run_id])).get(run_id)

    async def states(self, ids: Sequence[str]) -> dict[str, str]:
        """The states of those of these runs that exist."""
        store = await self._app.open()
        found = dict[str, str]()
        for run_id in ids:
            try:
                found[run_id] = (await store.get_run(self._app.settings.namespace, run_id)).state
            except NotFound:
                continue
        return found

    async def jobs(self) -> list[str]:
        """The names of all jobs."""
        store, names = await self._app.open(), list[str]()
        while page := await store.list_jobs(self._app.settings.namespace, after=names[-1] if names else None):
            names += [job.name for job in page]
        return names

    async def lost(self) -> list[str]:
        """Steady submissions that were acknowledged, and are not there."""
        asked = list(self.accepted)  # More are accepted meanwhile.
        known = await self.states(asked)
        return [run_id for run_id in asked if run_id not in known]


async def count(url: str, until: Instant) -> Counts:
    """How much a database holds of what was created until an instant: what is created later hides no loss."""
    return msgspec.convert((await fetch(url, _COUNTS.format(until=int(until))))[0], Counts)


async def look_back(url: str, since: Instant) -> Recent:
    """What the fleet did since an instant."""
    return msgspec.convert((await fetch(url, _RECENT, since))[0], Recent)


async def pick(url: str, namespace: str, until: Instant, runs: int, number: int) -> dict[str, str]:
    """The states of some of the `runs` runs that a database holds, at random."""
    share = min(100.0, 100.0 * SPARE * number / max(runs, 1))
    rows = await fetch(url, _AT_RANDOM.format(share=share), namespace, until, number)
    return {row["id"]: row["state"] for row in rows}


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[int, int]:
    """How many of the runs are missing, and how many that had ended are in another state."""
    missing = [run_id for run_id in before if run_id not in after]
    changed = [run_id for run_id, state in before.items() if state in FINAL and after.get(run_id, state) != state]
    return len(missing), len(changed)


def describe(states: Mapping[str, str]) -> str:
    """States by number, for people."""
    return ", ".join(f"{number} {state}" for state, number in sorted(Counter(states.values()).items()))
