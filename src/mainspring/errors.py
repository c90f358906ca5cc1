"""Every exception that Mainspring raises on purpose.

    MainspringError
    ├── InvalidInput                a given value is wrong: names the field, the value and the remedy
    │   ├── InvalidCron
    │   ├── InvalidZone
    │   ├── InvalidDuration
    │   ├── DependencyCycle
    │   ├── InvalidFields           several at once, as a server names them
    │   ├── NotSerialisable
    │   ├── Unstorable
    │   └── PayloadTooLarge
    ├── NotFound                    no such job, run, calendar or task
    │   └── RunGone                 the run is no longer kept: says what became of its firing
    ├── Conflict                    it exists already, changed meanwhile, or is in a state that forbids this
    │   └── VersionConflict         the job has another version than the caller saw
    ├── AppLoadError                the user's app file could not be imported
    ├── StoreError
    │   ├── StoreUnavailable        try again: busy, locked, connection lost
    │   │   ├── StoreRefused        it refuses all connections: an operator has to mend that first
    │   │   └── StoreFailed         this process may not use it any more: restart
    │   ├── StoreFull               the disk is full
    │   ├── StoreReadOnly
    │   └── StoreMismatch           not our database, or one that needs a newer program
    ├── NotAllowed                  no token, one that is no longer good, or one that does not allow this
    ├── ServerError                 a server could not be asked, or did not do it
    │   ├── ServerUnavailable       try again: it cannot be reached, or is too busy
    │   └── ServerMismatch          what answers is not Mainspring, or not of this version
    ├── BackendUnavailable          a backend beside the store could not be asked
    │   ├── LeaseUnavailable        the lease: try again
    │   ├── BrokerUnavailable       the broker: the store is asked instead
    │   ├── CacheUnavailable        the status cache: the store is asked instead
    │   └── LimiterUnavailable      the rate limiter: the store's is asked instead
    ├── LockRefused                 another holds the lock, and the wait is over
    ├── LockLost                    the lock was not kept until the end of its body
    ├── TermPassed                  a leader wrote under a term that has ended
    ├── RunFailed                   raised by `result()`: the run ended other than succeeded
    ├── WaitTimeout                 raised by `result(timeout=…)` and `wait`
    ├── RetryIn                     raised by a task: try this run again after a delay
    └── Abort                       raised by a task: this run has failed, and a retry is useless

Messages say what happened, to which job or run, and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta


class MainspringError(Exception):
    """The root: `except MainspringError` catches everything that Mainspring raises on purpose."""


class InvalidInput(MainspringError):
    """A given value is wrong. Nothing was written."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        shown = repr(value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        super().__init__(f"{field}: {shown} {problem}" + (f"; {remedy}" if remedy else ""))


class InvalidCron(InvalidInput):
    """A cron expression that cannot be read, or that never fires."""


class InvalidZone(InvalidInput):
    """A time zone that the zone database does not know."""


class InvalidDuration(InvalidInput):
    """A duration that cannot be read."""


class InvalidFields(InvalidInput):
    """Values that a server refused. `faults` are all of them; as an InvalidInput it is the first."""

    def __init__(self, faults: Sequence[tuple[str, object, str, str]]) -> None:
        super().__init__(*faults[0])
        self.faults = [InvalidInput(*each) for each in faults]

    def __str__(self) -> str:
        return "\n".join(str(each) for each in self.faults)


class DependencyCycle(InvalidInput):
    """A dependency that would close a circle; the circle is named."""


class NotSerialisable(InvalidInput):
    """An argument or result that JSON cannot carry."""


class PayloadTooLarge(InvalidInput):
    """Arguments larger than the limit."""


class Unstorable(InvalidInput):
    """A value that the database does not take: a number out of range, a character that no text may hold."""


class NotFound(MainspringError):
    """There is no such job, run, calendar or task."""


class RunGone(NotFound):
    """The run is no longer kept. The ledger still has the firing that it was made for."""

    def __init__(self, message: str, job: str, fire_at: datetime, outcome: str, reason: str) -> None:
        self.job = job
        self.fire_at = fire_at
        self.outcome = outcome
        self.reason = reason
        super().__init__(message)


class Conflict(MainspringError):
    """The object exists already, has changed meanwhile, or is in a state that forbids the operation."""


class VersionConflict(Conflict):
    """The job has another version than the caller saw: it has been changed meanwhile."""

    def __init__(self, message: str, version: int) -> None:
        self.version = version
        super().__init__(message)


class AppLoadError(MainspringError):
    """The user's app could not be loaded. `user_traceback` holds only the frames of the user's own code."""

    def __init__(self, message: str, user_traceback: str = "") -> None:
        self.user_traceback = user_traceback
        super().__init__(message)


class StoreError(MainspringError):
    """The store could not do it."""


class StoreUnavailable(StoreError):
    """Busy, locked, or the connection is lost: the same call may succeed later."""


class StoreRefused(StoreUnavailable):
    """A wrong password, no such database, a folder that does not exist: waiting alone does not mend that. A running
    process goes on trying all the same, since an operator may."""


class StoreFailed(StoreUnavailable):
    """A sync of the store's file failed, so nothing that this process writes to it may be promised any more. The
    process has to be restarted: the file is mended when it is opened."""


class StoreFull(StoreError):
    """The disk is full: nothing was written."""


class StoreReadOnly(StoreError):
    """The database cannot be written."""


class StoreMismatch(StoreError):
    """The database is not of Mainspring, or needs another version of the program."""


class NotAllowed(MainspringError):
    """The server does not know the caller, or does not allow the request."""


class ServerError(MainspringError):
    """A server could not be asked, or did not do it."""


class ServerUnavailable(ServerError):
    """The server cannot be reached, is too busy, or has no store: the same call may succeed later."""


class ServerMismatch(ServerError):
    """What answers is not Mainspring, or is of a version that does not understand this one."""


class BackendUnavailable(MainspringError):
    """A backend beside the store (broker, lease, cache, limiter) cannot be reached, or refuses."""


class LeaseUnavailable(BackendUnavailable):
    """The backend of the leases cannot be reached, or refuses: the same call may succeed later."""


class BrokerUnavailable(BackendUnavailable):
    """The broker cannot be reached, or refuses: the store is asked instead."""


class CacheUnavailable(BackendUnavailable):
    """The status cache cannot be reached, or refuses: the store is asked instead."""


class SinkUnavailable(BackendUnavailable):
    """The sink cannot be reached, or refuses: events wait in the store, and are sent again."""


class LimiterUnavailable(BackendUnavailable):
    """The rate limiter cannot be reached, or refuses: the store's limiter is asked instead."""


class LockRefused(MainspringError):
    """Another holds the lock, and did so for as long as was waited. The body did not run."""


class LockLost(MainspringError):
    """The lock could not be kept until its body ended: another may have held it meanwhile."""


class TermPassed(MainspringError):
    """A leader tried to write under a term that has ended: nothing was written."""


class RunFailed(MainspringError):
    """The run ended in another state than `succeeded`."""

    def __init__(self, run_id: str, state: str, reason: str) -> None:
        self.run_id = run_id
        self.state = state
        self.reason = reason
        super().__init__(f"run {run_id} {state}: {reason}. `mainspring run show {run_id}` shows its story")


class WaitTimeout(MainspringError):
    """The run had not ended when the wait ended. The run itself goes on."""


class RetryIn(MainspringError):
    """A task raises it to be tried again after this delay, whatever the delays of its retry policy.

    It uses up one of the run's retries, as a failure does: `Retry(100)` lets a task wait for something a hundred times.
    """

    def __init__(self, delay: str | float | timedelta, reason: str = "") -> None:
        """`delay` is a text such as `"30s"`, a timedelta, or a number of seconds."""
        self.delay = delay
        self.reason = reason
        super().__init__(reason or f"again in {delay}")


class Abort(MainspringError):
    """A task raises it to fail its run for good: no retry follows, whatever the retry policy."""
