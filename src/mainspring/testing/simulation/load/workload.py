"""The jobs of a simulated world: every trigger and every policy, drawn from the seed."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from mainspring.core.ids import fraction_of
from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy, NewRun, RunOptions
from mainspring.core.runs.outcome import with_end
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.calendar_rules import CronRule, DailyWindow
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
)
from mainspring.process.ids import IdSource
from mainspring.settings import Settings
from mainspring.testing.simulation.faults import HOSTILE, HUGE
from mainspring.testing.simulation.load.tasks import TASKS
from mainspring.testing.simulation.ports.scribe import as_json

NAMESPACE: Final = "default"
APP: Final = "simulated"
LIMIT: Final = 2
KEYS: Final = ("red", "green")
NIGHTS: Final = (
    ("2026-06-10T11:55:00Z", "UTC"),
    ("2026-03-29T00:55:00Z", "Europe/Berlin"),
    ("2026-10-25T00:55:00Z", "Europe/Berlin"),
    ("2026-11-01T05:55:00Z", "America/New_York"),
    ("2026-04-04T14:55:00Z", "Australia/Lord_Howe"),
    ("2026-12-31T23:55:00Z", "UTC"),
)
"""When a world begins, and whose clocks are turned five minutes later."""
CALENDARS: Final = (
    Calendar("every fourth minute", (CronRule("*/4 * * * *"),)),
    Calendar("a night", (DailyWindow("02:00:30", "03:02"),), "Europe/Berlin"),
)
_EXPRESSIONS: Final = (
    "*/20 * * * * *",
    "5,50 * * * * *",
    "0,30 * * * * *",
    "15 * * * * *",
    "* * * * *",
    "*/2 * * * *",
    "*/12 0-1 2 * * *",
    "0 */2 1-3 * * *",
    "0 58 1,2 * * *",
    "10 1-4 * * * *",
)

_BY_THE_WALL: Final = "*/15 0-8,30-38 1,2 * * *"
"""Follows the wall clock, in the hours that come twice, or not at all, in each of the nights."""


class Sketch:
    """Draws the jobs of one world."""

    def __init__(
        self, random: Random, ids: IdSource, settings: Settings, start: Instant, zone: str, minutes: float
    ) -> None:
        self._random = random
        self._ids = ids
        self._queues = settings.queues
        self._regions = settings.regions
        self._start = start
        self._zone = zone
        self._length: Duration = round(minutes * 60 * SECOND)
        self._end = start + self._length
        self._count = 0

    def declared(self) -> list[Job]:
        """What the program itself declares, in its first version: of each kind of trigger and policy something."""
        made = [self._make(self._timed()) for _ in range(self._random.randint(1, 3))]
        made.append(self._make(self._frequent(), overlap="forbid", task="slow"))
        made.append(self._make(self._frequent(), overlap="replace", task=self._random.choice(("slow", "stubborn"))))
        made.append(self._make(self._timed(), overlap="queue", task="steady"))
        made.append(self._make(CronTrigger(_BY_THE_WALL, self._zone), task="quick"))
        upstreams = self._random.sample([job.name for job in made], 2)
        made.append(self._make(self._following(upstreams)))
        made.append(self._make(self._following([made[-1].name])))
        return made

    def added(self) -> list[Job]:
        """What clients add while the world turns."""
        made = [self._make(self._timed()) for _ in range(self._random.randint(1, 2))]
        made += [self._make(self._once()) for _ in range(2)]
        made += [self._make(ManualTrigger()), self._make(ManualTrigger(), overlap="forbid")]
        return made

    def herd(self, size: int) -> list[Job]:
        """Many jobs that are all due in the same seconds."""
        second = self._random.choice((0, 20, 45))
        trigger = CronTrigger(f"{second} */4 * * * *", "UTC")
        return [self._job(trigger, "quick", JobPolicy(end_at=self._end)) for _ in range(size)]

    def greedy(self) -> list[Job]:
        """What another tenant asks for: tens of thousands of runs a second, for the first half of the time."""
        policy = JobPolicy(completions=50, misfire="all", end_at=self._start + self._length // 2)
        jobs = [self._job(EveryTrigger(10 * MILLISECOND), "quick", policy) for _ in range(10)]
        return [msgspec.structs.replace(job, namespace=HOSTILE) for job in jobs]

    def huge(self) -> list[Job]:
        """What another tenant asks for, for the first half of the time: firings of a thousand runs, and firings of more
        runs than its namespace may ever fire."""
        policy = JobPolicy(misfire="skip", grace=SECOND, end_at=self._start + self._length // 2)
        jobs = [
            self._job(EveryTrigger(10 * MILLISECOND), "quick", msgspec.structs.replace(policy, completions=runs))
            for runs in (1_000, 10_000)
        ]
        return [msgspec.structs.replace(job, namespace=HUGE) for job in jobs]

    def changed(self, jobs: list[Job], version: int) -> list[Job]:
        """What a later version of the program declares: a few jobs are different."""
        random = Random(f"{version}:{self._zone}:{len(jobs)}")
        return [self._other(job, random) if random.random() < 0.3 else job for job in jobs] if version > 1 else jobs

    def _other(self, job: Job, random: Random) -> Job:
        if isinstance(job.trigger, EveryTrigger) and random.random() < 0.5:
            return msgspec.structs.replace(job, trigger=EveryTrigger(random.randint(4, 20) * SECOND))
        if isinstance(job.trigger, CronTrigger) and random.random() < 0.5:
            trigger = msgspec.structs.replace(job.trigger, expression=random.choice(_EXPRESSIONS))
            return msgspec.structs.replace(job, trigger=trigger)
        return msgspec.structs.replace(job, priority=random.randint(1, 10))

    def _timed(self) -> Trigger:
        if self._random.random() < 0.5:
            return CronTrigger(self._random.choice(_EXPRESSIONS), self._zone)
        return EveryTrigger(self._random.choice((8_500_000, 13 * SECOND, 20 * SECOND, 30 * SECOND, 45 * SECOND)))

    def _frequent(self) -> Trigger:
        return EveryTrigger(self._random.choice((5, 8, 11)) * SECOND)

    def _once(self) -> Trigger:
        return AtTrigger(self._start + round(self._random.uniform(0.4, 0.95) * self._length))

    def _following(self, jobs: list[str]) -> Trigger:
        return AfterTrigger(
            tuple(jobs),
            self._random.choice(("all_succeeded", "all_succeeded", "any_finished")),
            self._random.choice(("skip", "fail", "run")),
        )

    def _make(self, trigger: Trigger, *, overlap: str | None = None, task: str | None = None) -> Job:
        random = self._random
        task = task or random.choice(sorted(TASKS))
        home = self._regions[:1]
        completions = random.choice((1, 1, 1, 1, 3))
        policy = JobPolicy(
            misfire=random.choice(("skip", "once", "all")),
            grace=random.choice((1, 3, 10)) * SECOND,
            catch_up_limit=random.choice((1, 2, 100)),
            start_deadline=random.choice((None, None, None, 8 * SECOND)),
            jitter=random.choice((0, 0, 0, 2 * SECOND)),
            end_at=self._end,
            max_firings=random.choice((None, None, None, 5)),
            calendars=random.choice(((), (), (), ("every fourth minute",), ("a night",))),
            regions=random.choice((home, home, self._regions[-1:], self._regions)),
            completions=completions,
            parallelism=2 if completions > 1 and random.random() < 0.7 else None,
        )
        if overlap is not None or random.random() < 0.2:
            policy = msgspec.structs.replace(policy, overlap=overlap or "queue")
        return self._job(trigger, task, policy, key=random.choice((None, None, None, *KEYS)))

    def _job(self, trigger: Trigger, task: str, policy: JobPolicy, key: str | None = None) -> Job:
        self._count += 1
        return Job(
            id=self._ids.new(),
            name=f"job-{self._count:03}",
            task=task,
            trigger=trigger,
            namespace=NAMESPACE,
            app=APP,
            queue=self._random.choice(self._queues),
            priority=self._random.randint(1, 10),
            key=key,
            limit=LIMIT if task == "limited" else None,
            policy=policy,
            options=draw_options(self._random),
        )


def draw_options(random: Random) -> RunOptions:
    """How a run is executed."""
    return RunOptions(
        timeout=random.choice((None, None, None, 2 * SECOND)),
        retry=Retry(random.choice((0, 1, 3)), delay=random.choice(("500ms", "2s", "5s")), factor=2.0),
        max_losses=random.choice((1, 3, 3)),
        on_key_failure=random.choice(("continue", "continue", "stop")),
    )


def bounded(run: NewRun) -> str:
    """The options of a run, with a total timeout that it may well need: by its id, so that it is drawn from nothing."""
    total = (1 + int(10 * fraction_of("length of total", run.id))) * SECOND
    options = msgspec.json.decode(run.options, type=RunOptions)
    return with_end(as_json(msgspec.structs.replace(options, timeout=None, total_timeout=total)), run.due_at)


def draw_night(random: Random) -> tuple[Instant, str]:
    """When the world begins, and in which zone it lives."""
    start, zone = random.choice(NIGHTS)
    return parse_instant(start), zone
