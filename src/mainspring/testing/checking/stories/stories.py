"""Everything that a history says, sorted by run and by job: read once, so that each invariant looks at little."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from mainspring.core.instants import MINUTE, Duration, Instant
from mainspring.core.model import Job, NewRun, Run, TaskNotice
from mainspring.core.runs.fitting import accepts
from mainspring.core.schedules.calendar_rules import references
from mainspring.core.schedules.calendars import Calendar
from mainspring.errors import InvalidInput
from mainspring.testing.checking.stories.jobs import JobStory
from mainspring.testing.checking.stories.reading import carried, given
from mainspring.testing.checking.stories.runs import RunStory, Turn
from mainspring.testing.history import Record

_calendar = msgspec.json.Decoder(Calendar).decode
_task_notices = msgspec.json.Decoder(tuple[TaskNotice, ...]).decode
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

HEALED = "healed"
DRAINED = "drained"
PAUSE = "pause"
CLOCK_LEAP = "clock_leap"
_LONGEST_PAUSE: Duration = MINUTE


class Bounds(msgspec.Struct, frozen=True):
    """What counts as late, where nothing goes wrong."""

    lateness: Duration | None
    """How long after it was due a run may begin; None: as late as it likes."""
    overrun: Duration
    """How long after its timeout work may go on."""
    fence: Duration | None = None
    """How long after its claim has run out work may go on; None: as long as it likes."""
    passing: Duration = 0
    """How long after a worse one was claimed a run may be left: another claimer holds it, or they look on from where
    they were."""
    unfit: Duration | None = None
    """How long a run waits for a worker whose code takes its arguments, before one that does not may fail it; None: not
    judged."""

    @property
    def planning(self) -> Duration:
        """How long after an instant it may take until the ledger has it."""
        return MINUTE if self.lateness is None else self.lateness


class Stories:
    """The index of a history."""

    def __init__(self, records: Iterable[Record], bounds: Bounds) -> None:
        self.bounds = bounds
        self.runs: dict[str, RunStory] = {}
        self.jobs: dict[str, JobStory] = {}
        self.terms: list[Record] = []
        self.spends: list[Record] = []
        self.tallies: list[Record] = []
        self._queues: dict[str, list[Record]] = {}
        """Pauses and resumptions of each queue, in order."""
        self._notices: dict[str, dict[str, TaskNotice]] = {}
        """What each worker knows of its tasks, by name."""
        self._announcements: dict[str, Record] = {}
        self.calendars: dict[str, Calendar] = {}
        self._changed_calendars: set[str] = set()
        self.kinds: dict[str, Record] = {}
        """The first record of each kind."""
        self.drained: Record | None = None
        self.healed: Record | None = None
        self._faults: list[Instant] = []
        self._standstills: list[Record] = []
        self.fired: dict[tuple[str, Instant], Record] = {}
        """Which record acknowledges the firing of an instant, by a node or by hand."""
        self.repeated: Counter[tuple[str | None, Instant | None]] = Counter()
        """How often runs of a firing were repeated by hand."""
        self.named: dict[tuple[str, str], JobStory] = {}
        """Jobs by namespace and name."""
        self.count = 0
        self._read(records)
        self._sort()

    def _sort(self) -> None:
        for story in self.runs.values():
            story.sort()
            if story.run is not None and story.run.retry_of is not None:
                self.repeated[story.run.job_id, story.run.fire_at] += 1
        for job in self.jobs.values():
            job.sort()
            if job.newest is not None:
                self.named[job.newest.job.namespace, job.newest.job.name] = job

    def _read(self, records: Iterable[Record]) -> None:
        take: dict[str, Callable[[Record], None]] = {
            "job": self._job,
            "calendar": self._calendar,
            "term": self.terms.append,
            "spend": self.spends.append,
            "queue": self._queue,
            "tally": self.tallies.append,
            "fire": self._fire,
            "trigger": self._trigger,
            "submit": self._submit,
            "cancel": self._cancel,
            "worker": self._worker,
            "claim": self._claim,
            "renew": self._renew,
            "start": self._start,
            "end": self._end,
            "report": self._report,
            "handback": self._handback,
            "firing": self._firing,
            "run": self._run,
            "attempt": self._attempt,
            "fault": self._fault,
        }
        for record in records:
            what = record.what
            if what not in take:
                problem = f"of record {record.seq} is not a kind of record"
                raise InvalidInput("what", what, problem, f"use one of {', '.join(take)}")
            if what not in self.kinds:
                self.kinds[what] = record
            take[what](record)
            self.count += 1

    @property
    def end(self) -> Record | None:
        """Shows that the end was recorded."""
        return self.kinds.get("firing") or self.kinds.get("run") or self.drained

    @property
    def end_of_runs(self) -> Record | None:
        """Shows that the runs at the end were recorded."""
        return self.kinds.get("run") or self.drained

    def is_quiet(self, since: Instant) -> bool:
        """Whether nothing went wrong from an instant on, nor so shortly before that its effects may have lasted."""
        return self.healed is not None and since >= self.healed.store + self.bounds.planning

    def is_undisturbed(self, since: Instant, until: Instant) -> bool:
        """Whether no fault began meanwhile."""
        return bisect_left(self._faults, since) == bisect_right(self._faults, until)

    def stood_still(self, worker: str, since: Instant, until: Instant) -> bool:
        """Whether a worker may not have known how late it was: it was paused, or the store's clock was put forward.

        A pause names the process, of which the worker is one life; it may have begun a while before.
        """
        return any(
            since <= record.store <= until
            if record.name == CLOCK_LEAP
            else since - _LONGEST_PAUSE <= record.store <= until and worker.startswith(record.actor)
            for record in self._standstills
        )

    def can_time(self, job: Job) -> bool:
        """Whether all calendars that a definition obeys are known and were always the same."""
        open_names, seen = list(job.policy.calendars), set[str]()
        while open_names:
            name = open_names.pop()
            if name not in self.calendars or name in self._changed_calendars:
                return False
            if name not in seen:
                seen.add(name)
                open_names += references(self.calendars[name].rules)
        return True

    def job(self, job_id: str) -> JobStory:
        """The story of a job."""
        story = self.jobs.get(job_id)
        if story is None:
            story = self.jobs[job_id] = JobStory(job_id)
        return story

    def _story(self, record: Record) -> RunStory:
        run_id = given(record, "run", record.run)
        story = self.runs.get(run_id)
        if story is None:
            story = self.runs[run_id] = RunStory(run_id)
        return story

    def _turn(self, record: Record) -> Turn:
        return self._story(record).turn(given(record, "token", record.token))

    def _job(self, record: Record) -> None:
        self._of_job(record).define(record, is_end=self.drained is not None)

    def _of_job(self, record: Record) -> JobStory:
        return self.job(given(record, "job_id", record.job_id))

    def _calendar(self, record: Record) -> None:
        calendar = carried(record, _calendar)
        if self.calendars.setdefault(calendar.name, calendar) != calendar:
            self._changed_calendars.add(calendar.name)

    def _queue(self, record: Record) -> None:
        self._queues.setdefault(given(record, "name", record.name), []).append(record)

    def pause_before(self, queue: str, record: Record) -> Record | None:
        """The record of the pause that a queue surely was in when another record was written; None if there is none.
        Only a recorder at the store says that surely: see `history`."""
        changes = self._queues.get(queue, [])
        index = bisect_left(changes, record.seq, key=lambda change: change.seq)
        latest = changes[index - 1] if index else None
        is_sure = all(each.sent is None for each in (record, *changes))
        return latest if latest is not None and latest.state == "paused" and is_sure else None

    def _fire(self, record: Record) -> None:
        self._of_job(record).fires.append(record)
        self._acknowledge(record)

    def _trigger(self, record: Record) -> None:
        self._of_job(record).triggers.append(record)
        self._acknowledge(record)

    def _acknowledge(self, record: Record) -> None:
        if record.outcome == "ok":
            job_id = given(record, "job_id", record.job_id)
            self.fired.setdefault((job_id, given(record, "fire_at", record.fire_at)), record)

    def _submit(self, record: Record) -> None:
        self._story(record).submits += (record,)

    def _cancel(self, record: Record) -> None:
        self._story(record).cancels += (record,)

    def _worker(self, record: Record) -> None:
        name = given(record, "worker", record.worker)
        self._announcements[name] = record
        self._notices[name] = {notice.name: notice for notice in carried(record, _task_notices)}

    def takes(self, worker: str | None, run: Run | NewRun) -> bool:
        """Whether a worker's code takes the arguments of a run, as far as is known."""
        notice = self._notices.get(worker or "", {}).get(run.task)
        return notice is None or accepts(notice, _names(run.args))

    def announced(self, worker: str | None) -> tuple[Record, ...]:
        """What shows what a worker knows of its tasks."""
        record = self._announcements.get(worker or "")
        return () if record is None else (record,)

    def _claim(self, record: Record) -> None:
        turn = self._turn(record)
        turn.claims += (record,)
        turn.prolong(record)

    def _renew(self, record: Record) -> None:
        self._turn(record).prolong(record)

    def _start(self, record: Record) -> None:
        self._turn(record).starts += (record,)

    def _end(self, record: Record) -> None:
        self._turn(record).ends += (record,)

    def _report(self, record: Record) -> None:
        self._turn(record).reports += (record,)

    def _handback(self, record: Record) -> None:
        self._turn(record).handbacks += (record,)

    def _firing(self, record: Record) -> None:
        self._of_job(record).enter(record)

    def _run(self, record: Record) -> None:
        self._story(record).end(record)

    def _attempt(self, record: Record) -> None:
        self._story(record).attempts += (record,)

    def _fault(self, record: Record) -> None:
        if record.name == DRAINED:
            self.drained = record
        elif record.name == HEALED:
            self.healed = self.healed or record
        else:
            insort(self._faults, record.store)
            if record.name in (PAUSE, CLOCK_LEAP):
                self._standstills.append(record)
            self.healed = None
