"""A history: the calls of every node, worker and client, and their answers, as JSON lines. The checker judges it.

One format for simulated and for real processes. Each line is one `Record`; `what` says which kind it is:

| what | outcome | fields |
|---|---|---|
| `job` | ok, unknown | `job_id job state data` (the definition as JSON): a job, as an edit or the end found it |
| `calendar` | ok | `name data` (the definition as JSON): a calendar that jobs obey |
| `queue` | ok, unknown | `name state`: a queue was `paused` or is `active` again |
| `term` | ok | `name term`: a node began a term |
| `fire` | ok, refused, unknown | `job_id job fire_at term name`: a node fired an instant; refused: the term passed |
| `trigger` | ok, unknown | `job_id job fire_at key`: a client fired a job by hand |
| `submit` | ok, refused, unknown | `run key data` (the run as JSON): a client submitted; `key` is the idempotency key |
| `cancel` | ok, refused, unknown | `run`: a client asked for a cancel; ok: acknowledged |
| `spend` | ok, refused, unknown | `name count data` (the pace as JSON): a client took of a budget, or a planner fired |
| `worker` | ok, unknown | `worker data` (JSON): what a worker announced that it knows of its tasks |
| `claim` | ok, unknown | `run token worker until attempt`: a worker was given a claim until store time `until` |
| `renew` | ok, unknown | `run token worker until`: a claim was prolonged, at least until then |
| `start`, `end` | ok | `run token attempt worker`: the side-effect ledger: the work really began, really ended |
| `report` | ok, refused, unknown | `run token worker state data` (as JSON): a worker reported; refused: stale |
| `handback` | ok, unknown | `run token worker`: a claim was given back |
| `firing` | ok | `job_id fire_at region idx kind state run last_at count reason`: a row of the ledger, at the end |
| `run` | ok | `run state job_id fire_at region idx data` (the run as JSON): a run, at the end |
| `attempt` | ok | `run attempt token worker state data`: an attempt, at the end |
| `tally` | ok | `name count`: how many the tallies count of an outcome, at the end |
| `fault` | ok | `name`: something was made to go wrong; or `healed`, or `drained` |

- A `job` is recorded whenever it was created, edited, paused or resumed, and at the end; with `state` `removed` when it
  was removed. The `run` of a `submit` is the id in the answer. A `report` that had been accepted before is ok again.
- `healed`: from here on nothing goes wrong; a history in which nothing ever does says so at its start. `drained`: all
  that was due by now has had the time to end.
- `unknown` means that the reply was lost: it may have happened or not. (A `claim` or `renew` is known only to a
  recorder at the store: there it did happen, and the reply was lost.) A process that may be killed between request and
  reply writes `unknown` before the request, and then the reply.
- When it took effect: a recorder that sits at the store writes it down in that step, so `store` is the instant, and
  records of one instant are in the store's order. A recorder elsewhere also gives `sent`, the store's time before it
  asked: it took effect between `sent` and `store` or, if `unknown`, at any time from `sent` on.
- Faults are named freely. Two names mean something to the checker: `pause`, by an `actor` whose worker's id begins like
  it, is a process that stood still from then on; `clock_leap` is the store's clock being put forward.
- The store's clock must not be set back, and nothing may be cleaned away before the end is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

Outcome = Literal["ok", "refused", "unknown"]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line. Times are microseconds: `wall` and `mono` by the actor's clocks, `store` and `sent` by the store's."""

    seq: int
    what: str
    actor: str = ""
    outcome: Outcome = "ok"
    wall: int = 0
    mono: int = 0
    store: int = 0
    sent: int | None = None
    job: str | None = None
    job_id: str | None = None
    fire_at: int | None = None
    region: str | None = None
    idx: int | None = None
    kind: str | None = None
    run: str | None = None
    attempt: int | None = None
    worker: str | None = None
    term: int | None = None
    token: int | None = None
    state: str | None = None
    until: int | None = None
    last_at: int | None = None
    count: int | None = None
    key: str | None = None
    name: str | None = None
    reason: str | None = None
    data: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


class History:
    """Collects records in order; `write` gets each as a line of JSON, and the list is kept if `keep` says so."""

    def __init__(self, write: Callable[[bytes], None] | None = None, *, keep: bool = True) -> None:
        self._write = write
        self._keep = keep
        self.records: list[Record] = []
        self._seq = 0

    def add(self, what: str, **fields: Any) -> Record:
        """One more record."""
        self._seq += 1
        record = Record(seq=self._seq, what=what, **fields)
        if self._keep:
            self.records.append(record)
        if self._write is not None:
            self._write(_encode(record) + b"\n")
        return record


def dump(records: Iterable[Record]) -> bytes:
    """The records as JSON lines."""
    return b"".join(_encode(record) + b"\n" for record in records)


def load(lines: Iterable[bytes]) -> Iterator[Record]:
    """The records of JSON lines; a last line that a kill cut short is left out."""
    for line in lines:
        if line.endswith(b"\n"):
            yield _decode(line)


def load_files(paths: Iterable[Path]) -> list[Record]:
    """The records of several processes' files, merged by store time, numbered anew."""
    merged = [record for path in paths for record in load(path.read_bytes().splitlines(keepends=True))]
    merged.sort(key=lambda record: (record.store, record.seq))
    return [msgspec.structs.replace(record, seq=seq) for seq, record in enumerate(merged, 1)]
