"""The calls of one real process to its store and their answers, written down as `testing.history` has it.

The simulation's scribe sits in the store. This one sits before it, so it knows when it asked and when it heard, not
when it happened; and it may be killed in between. So it writes down what it is about to ask, as `unknown`, before it
asks; and what it heard before it passes that on. `gather` puts the two together again.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.model import Claim, Worker
from mainspring.core.planning.plans import Plan
from mainspring.errors import Conflict, InvalidInput, MainspringError, NotFound, TermPassed
from mainspring.sdk.app import Mainspring
from mainspring.services.store_layers import StoreLayer
from mainspring.store import Renewal, StandingClaim, Store
from mainspring.testing.chaos.inside.halts import Halts
from mainspring.testing.checking.stories.stories import PAUSE
from mainspring.testing.history import History, Record, load_files
from mainspring.testing.simulation.ports.scribe import GIVING_BACK, Scribe, SeenCall, as_json, claims_in

SUFFIX: Final = ".jsonl"
REFUSALS: Final = (TermPassed, Conflict, NotFound, InvalidInput)
"""Answers that say that nothing was written. After any other error that is not known."""
CALLS: Final = (
    "amend",
    "begin_term",
    "claim",
    "claim_these",
    "create_job",
    "edit_job",
    "fire",
    "hand_back",
    "pause_jobs",
    "renew",
    "report",
    "request_cancel",
    "save_calendar",
    "submit",
    "sync_jobs",
    "trigger",
)
"""The calls that a history records. All others go to the store as they are."""


class Journal(History):
    """A history in its own file, opened to append, each line one `write`.

    What was written is the kernel's: killing the writer takes none of it back, and cuts at most its last line short.
    """

    def __init__(self, folder: Path, actor: str) -> None:
        super().__init__(self._append, keep=False)
        self.path = folder / f"{actor}.{os.getpid()}{SUFFIX}"
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def add(self, what: str, **fields: Any) -> Record:
        """One more record. From any thread."""
        with self._lock:
            return super().add(what, **fields)

    def _append(self, line: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self._descriptor, line)


class Recorder(Scribe):
    """The scribe of one process. `actor` names it, and the worker in it, in every record. `true` is the store's time,
    where the host's clock, or what the process sees of it, is another."""

    def __init__(self, journal: Journal, actor: str, clock: Clock, true: Clock | None = None) -> None:
        super().__init__(journal, true or clock, Counter())
        self.actor = actor
        self._clock = clock
        self._halts = Halts(journal.path.parent)
        self._asking = threading.Lock()
        self._last_sent: Instant = 0

    async def call(self, store: Store, name: str, *args: Any, **options: Any) -> Any:
        """Call the store. The call is recorded before it is made, and the answer before the caller gets it."""
        self._halts.obey(name, _abouts(name, args), self.actor, self._stand_still)
        asked = self._call(self._next_sent(self._true.now()), args, options, answered=False)
        await self._expect(store, name, asked)
        try:
            answer = await getattr(store, name)(*args, **options)
        except REFUSALS:
            if name in self._on_refusal:
                self._on_refusal[name](self._call(asked.stamp["sent"], args, options, answered=True))
            raise
        await self._hear(store, name, self._call(asked.stamp["sent"], args, options, answered=True), answer)
        return answer

    def leave_claim(self, store: Store, standing: StandingClaim | None) -> None:
        """Leave a standing claim with the store. What it grants is recorded before the worker gets it."""
        if standing is not None:
            standing = standing._replace(take=partial(self._taken, standing))
        store.leave_claim(standing)

    def _taken(self, standing: StandingClaim, claims: Sequence[Claim], sent_at: float) -> None:
        sent = self._next_sent(claims[0].claimed_until - standing.ttl)
        self._claim(self._call(sent, standing[:-1], {}, answered=True), claims)
        standing.take(claims, sent_at)

    def _next_sent(self, now: Instant) -> Instant:
        """No two calls of a process are sent at the same instant: so each answer has its call."""
        with self._asking:
            self._last_sent = max(now, self._last_sent + 1)
            return self._last_sent

    def _stand_still(self) -> None:
        self.write("fault", self.actor, self._clock, name=PAUSE)

    def _call(self, sent: Instant, args: Any, options: Any, *, answered: bool) -> SeenCall:
        stamp = self.stamp(self._clock) | {"sent": sent}
        return SeenCall(self.actor, stamp, args, options, answered)

    async def _expect(self, store: Store, name: str, call: SeenCall) -> None:
        """What will have happened if this process is killed now and the request arrives. A claim or a term cannot be
        known beforehand: one whose reply is lost is never used."""
        match name:
            case "submit":
                self._submit(call, [run.id for run in call.args[0]])
            case "report":
                self._report(call, ["accepted"] * len(call.args[0]))
            case "fire":
                plans: Sequence[Plan] = call.args[0]
                for plan in plans:
                    for firing in plan.firings:
                        self._fired(call, plan.job, firing.fire_at)
            case "request_cancel":
                self._add("cancel", call, run=call.args[1])
            case "hand_back" | "amend":
                self._handback(call, claims_in(name, call.args))
            case "create_job" | "edit_job":
                self._add("job", call, job_id=call.args[0].id, job=call.args[0].name)
            case "trigger":
                job = await store.get_job(call.args[0], call.args[1])
                self._add("trigger", call, job_id=job.id, job=job.name, key=call.args[2])

    async def _hear(self, store: Store, name: str, call: SeenCall, answer: Any) -> None:
        if name in GIVING_BACK:
            # Of some that went back and some that were lost, the answer does not say which.
            claims = claims_in(name, call.args)
            if answer == len(set(claims)):
                self._handback(call, claims)
        elif name == "save_calendar":
            self._add("calendar", call, name=call.args[1].name, data=as_json(call.args[1]))
        elif name == "sync_jobs":
            with suppress(MainspringError):  # They are stored; and the checker notices a definition that is missing.
                await self._synced(call, store, answer)
        else:
            self._on_answer[name](call, answer)

    def _renew(self, call: SeenCall, renewal: Renewal) -> None:
        """Record that a claim was prolonged from an instant after the renewal was sent."""
        claims: Collection[tuple[str, int]] = renewal.held
        worker: Worker = call.args[0]
        until = call.stamp["sent"] + call.args[2]
        for run_id, token in sorted(claims):
            self._add("renew", call, run=run_id, token=token, worker=worker.id, until=until)

    def _put(self, what: str, fields: dict[str, object]) -> None:
        if fields.get("worker") is not None:
            fields["worker"] = self.actor
        super()._put(what, fields)


class _Recorded(StoreLayer):
    """A store whose `CALLS` go through a recorder."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        super().__init__(store)
        self.bare = store
        for name in CALLS:
            setattr(self, name, partial(recorder.call, store, name))
        self.leave_claim = partial(recorder.leave_claim, store)


class RecordedApp(Mainspring):
    """An app that writes its process's history: everything in a process gets its store from the app's `open`."""

    def __init__(self, folder: Path, actor: str, *, true: Clock | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.recorder = Recorder(Journal(folder, actor), actor, self.clock, true)
        self._recorded: _Recorded | None = None

    @property
    def opened(self) -> Store | None:
        """The store, through the recorder, if it is open."""
        store = super().opened
        return None if store is None else self._through(store)

    async def open(self) -> Store:
        """The store, through the recorder."""
        return self._through(await super().open())

    def _through(self, store: Store) -> Store:
        recorded = self._recorded
        if isinstance(store, _Recorded):
            return store
        if recorded is None or recorded.bare is not store:
            recorded = self._recorded = _Recorded(store, self.recorder)
        return recorded


def _abouts(name: str, args: Sequence[Any]) -> list[str]:
    """The runs that a call is about, of those calls that are stopped on account of a run."""
    return [report.run_id for report in args[0]] if name == "report" else []


def gather(folder: Path) -> list[Record]:
    """The histories of all processes in one. What was asked and answered is there once, as it was answered."""
    records = load_files(sorted(folder.glob(f"*{SUFFIX}")))
    answered = {_call_of(record) for record in records if record.sent is not None and record.outcome != "unknown"}
    return [record for record in records if record.outcome != "unknown" or _call_of(record) not in answered]


def _call_of(record: Record) -> tuple[str, str, Instant | None]:
    return record.actor, record.what, record.sent
