"""The executor port: run one attempt to its outcome.

An executor gets an attempt and returns how it ended; it never raises for what the task did. When its coroutine is
cancelled it ends the work (asking for `grace_s`, then killing) and only then lets the cancellation through; one that
cannot says so by `unstoppable`. The texts of an outcome are `plain`. `ExecutableTask` is what an executor needs to know
of a registered function.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from mainspring.core.instants import Duration, Instant, to_datetime
from mainspring.core.model import Claim, Failure, RunOptions
from mainspring.errors import InvalidInput, MainspringError

PRINT_LIMIT = 1_048_576
LONGEST_LINE = 64 * 1024
"""A longer line is cut into pieces."""


class _Carried(msgspec.Struct):
    """The part of a run's options that its task may see."""

    context: dict[str, str] = {}
    after: tuple[str, ...] = ()
    after_firings: tuple[tuple[str, Instant], ...] = ()


_read_carried = msgspec.json.Decoder(_Carried).decode


class RunContext:
    """The run that a task is executing: `current_run()` gives it, in the task and in what it calls."""

    __slots__ = (
        *("_cancelled", "_claim", "_deadline", "_now", "_on_log", "_on_progress", "_prints", "_soft_deadline"),
        "print_limit",
    )

    def __init__(
        self,
        claim: Claim,
        deadline: Instant | None,
        on_log: Callable[[str, str], None],
        on_progress: Callable[[float, str], None],
        soft_deadline: Instant | None = None,
        now: Callable[[], Instant] = lambda: 0,
    ) -> None:
        """Made by the worker. `on_log` takes a stream and a text, `on_progress` a fraction and a note; `now` is the
        clock by which deadlines are kept.

        All of them may be called from any thread.
        """
        self._claim = claim
        self._deadline = deadline
        self._soft_deadline = soft_deadline
        self._now = now
        self._cancelled = False
        self._on_log = on_log
        self._on_progress = on_progress
        self._prints: _Prints | None = None
        self.print_limit = PRINT_LIMIT
        """How many characters of what is printed in this process are kept. Set by the worker."""

    @property
    def id(self) -> str:
        """The run's."""
        return self._claim.run_id

    @property
    def task(self) -> str:
        """The name of what is executed."""
        return self._claim.task

    @property
    def job(self) -> str | None:
        """The name of its job; None for a submission."""
        return self._claim.job

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._claim.attempt + 1

    @property
    def token(self) -> int:
        """Greater each time a worker claims the run: a resource that receives it can refuse earlier ones."""
        return self._claim.token

    @property
    def namespace(self) -> str:
        """Whose run it is."""
        return self._claim.namespace

    @property
    def idx(self) -> int:
        """Which of the job's completions it is, from 0."""
        return self._claim.idx

    @property
    def context(self) -> Mapping[str, str]:
        """What the `on_submit` hooks of the submitter carry to this run, such as the id of a trace."""
        return _read_carried(self._claim.options).context

    @property
    def after(self) -> tuple[str, ...]:
        """The ids of the runs that it waited for, as its submitter named them. `app.upstream()` has their results."""
        return _read_carried(self._claim.options).after

    @property
    def after_firings(self) -> tuple[tuple[str, Instant], ...]:
        """If it is the run of a job that follows other jobs: their ids, and the instants of the firings that it
        follows, in microseconds since 1970. `app.upstream()` has the results of their runs."""
        return _read_carried(self._claim.options).after_firings

    @property
    def fire_at(self) -> datetime | None:
        """The instant, in UTC, that the run stands for: not when it happened to start. None for a submission."""
        return _datetime(self._claim.fire_at)

    @property
    def deadline(self) -> datetime | None:
        """When this attempt will be killed, in UTC."""
        return _datetime(self._deadline)

    @property
    def soft_deadline(self) -> datetime | None:
        """When this attempt begins to be overdue, in UTC."""
        return _datetime(self._soft_deadline)

    @property
    def cancelled(self) -> bool:
        """Whether the run's cancellation is requested. A task that sees it should clean up and return soon."""
        return self._cancelled

    @property
    def overdue(self) -> bool:
        """Whether the attempt is past its soft deadline. A task that sees it should save what it has and return, for
        at its deadline it is killed."""
        return self._soft_deadline is not None and self._now() >= self._soft_deadline

    def cancel(self) -> None:
        """Let the task know that its cancellation is requested. Called by the worker."""
        self._cancelled = True

    def filter(self, mask: Callable[[str], str]) -> None:
        """Pass all that the run says through `mask` first. Called by the worker, before the run begins."""
        log, progress = self._on_log, self._on_progress
        self._on_log = lambda stream, text: log(stream, mask(text))
        self._on_progress = lambda fraction, note: progress(fraction, mask(note))

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the run has come, from 0 to 1."""
        if not isinstance(fraction, int | float) or isinstance(fraction, bool) or not 0 <= fraction <= 1:
            raise InvalidInput("fraction", fraction, "is not a fraction", "give a number from 0 to 1")
        self._on_progress(float(fraction), str(note))

    def log(self, text: str) -> None:
        """Write to the run's log, as printing does."""
        self._on_log("log", str(text))

    def print(self, stream: str, text: str) -> None:
        """Take what was printed. Called by the worker, from any thread."""
        if self._prints is None:
            self._prints = _Prints(self.print_limit)
        self._prints.take(stream, text, self._on_log)

    def end_prints(self) -> None:
        """Nothing more will be printed. Called by the worker."""
        if self._prints is not None:
            self._prints.end(self._on_log)
            self._prints = None


class _Prints:
    """What is printed comes in pieces, and leaves in lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._rest: dict[str, str] = {}
        self._size = self._cut = 0

    def take(self, stream: str, text: str, say: Callable[[str, str], None]) -> None:
        with self._lock:
            self._size += len(text)
            if self._size > self._limit:
                self._cut += len(text)
                return
            *lines, rest = (self._rest.get(stream, "") + text).split("\n")
            while len(rest) > LONGEST_LINE:
                lines.append(rest[:LONGEST_LINE])
                rest = rest[LONGEST_LINE:]
            self._rest[stream] = rest
            for line in lines:
                say(stream, line.rstrip("\r"))

    def end(self, say: Callable[[str, str], None]) -> None:
        with self._lock:
            for stream, rest in self._rest.items():
                if rest:
                    say(stream, rest)
            self._rest.clear()
            if self._cut:
                say("log", f"... {self._cut} characters of output cut ...")


def _datetime(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)


CURRENT: ContextVar[RunContext] = ContextVar("mainspring_run")
"""Set by the worker around each attempt."""


def current_run() -> RunContext:
    """The run that is being executed here; MainspringError outside of one."""
    context = CURRENT.get(None)
    if context is None:
        raise MainspringError(
            "current_run() was called outside of a run: it works in a task that a worker executes, and in what that "
            "task calls, but not in threads that it starts"
        )
    return context


OutcomeKind = Literal["succeeded", "failed", "timed_out", "cancelled", "skipped"]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended."""

    kind: OutcomeKind
    result: str | None = None
    failure: Failure | None = None
    error_types: tuple[str, ...] = ()
    """Qualified names of the exception's class and its bases, most special first."""
    asked: Duration | None = None
    """A delay that the failure itself asked for."""
    final: bool = False
    """Whether the same would happen again, so that a retry is pointless."""
    unfit: bool = False
    """Whether the function was not even called: the arguments are not those that this code takes."""


def plain(text: str) -> str:
    """Text that JSON can carry: what strangers' exceptions and programs say may hold half characters."""
    return text.encode("utf-8", "replace").decode()


class Write(Protocol):
    """Takes what the work wrote."""

    def __call__(self, stream: str, text: str, at: Instant | None = None, /) -> None:
        """One line, without its end."""


StopKind = Literal["timed_out", "cancelled", "fenced", "handed_back"]


class AttemptContext:
    """One attempt under way: what to run, until when, and why it is being stopped if it is."""

    __slots__ = (
        "behind",
        "claim",
        "context",
        "ends_by",
        "grace_s",
        "here",
        "now",
        "on_overdue",
        "options",
        "started_at",
        "stop_kind",
        "stop_reason",
        "unstoppable",
        "write",
    )

    def __init__(self, claim: Claim, options: RunOptions) -> None:
        self.claim = claim
        self.options = options
        self.started_at: Instant = 0
        self.context: RunContext | None = None
        self.now: Callable[[], Instant] = _no_time
        """The store's clock."""
        self.write: Write = _nowhere
        """Takes a stream and a line that the work wrote; and when it did, if that is not now."""
        self.behind: Callable[[], bool] = _never
        """Whether too many lines wait to be stored: a task that can wait should write no more for now."""
        self.on_overdue: Callable[[], None] = _nothing
        """Called at the soft deadline: an executor that has to notify its work sets it."""
        self.stop_kind: StopKind | None = None
        self.stop_reason = ""
        self.grace_s = 2.0
        """How long work that is asked to end may take before it is killed."""
        self.here = False
        """Set if the work is done by this process itself, on its event loop or in a thread: then nothing can end it for
        sure but the end of this process."""
        self.unstoppable = False
        """Set while the work is in a thread, where it cannot even be asked to end."""
        self.ends_by: float | None = None
        """When, on the monotonic clock, its deadline is."""

    def change_options(self, options: str) -> None:
        """Give the run other encoded options, for this attempt alone: what its task sees as its context is in them."""
        self.claim = msgspec.structs.replace(self.claim, options=options)
        if self.context is not None:
            self.context._claim = self.claim

    @property
    def deadline(self) -> Instant | None:
        """When the attempt must have ended."""
        return None if self.options.timeout is None else self.started_at + self.options.timeout

    @property
    def soft_deadline(self) -> Instant | None:
        """When the attempt should have ended."""
        return None if self.options.soft_timeout is None else self.started_at + self.options.soft_timeout


def _nothing() -> None:
    return None


def _nowhere(_stream: str, _text: str, _at: Instant | None = None) -> None:
    return None


def _no_time() -> Instant:
    return 0


def _never() -> bool:
    return False


class TaskDefaults(Protocol):
    """How a task is executed unless its run says otherwise."""

    @property
    def limit(self) -> int | None:
        """How many of its runs may execute at once."""

    @property
    def batch(self) -> int | None:
        """How many runs one call may join; None for a task that takes one at a time."""

    @property
    def batch_wait(self) -> Duration:
        """How long the first run of a batch waits for others."""

    @property
    def options(self) -> RunOptions:
        """Deadlines, isolation and the rest."""


class TaskHooks(Protocol):
    """What the author of a task has around its attempts, as far as the process that executes them takes part."""

    drive: Callable[[Coroutine[Any, Any, Any]], Any]
    """Runs a coroutine from a thread that executes a task; set while the process works."""

    @property
    def needs_loop(self) -> bool:
        """Whether the process has to keep an event loop for them."""

    def alive(self) -> AbstractAsyncContextManager[None]:
        """The time for which a process works."""


class ExecutableTask(Protocol):
    """A registered function, as executors need it."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""

    @property
    def defaults(self) -> TaskDefaults:
        """How it is executed."""

    @property
    def hooks(self) -> TaskHooks:
        """Those of its app: tasks of one app share them."""

    def execute(self, arguments: Mapping[str, object]) -> Any:
        """Call the function within its hooks. Await what an async one gives."""

    def decode_args(self, text: str) -> dict[str, object]:
        """Stored arguments, for a call by name. Raises if they do not fit."""

    def encode_result(self, value: object) -> str:
        """What the function returned, as it is stored. Raises if it cannot be."""


class Executor(Protocol):
    """One verb."""

    async def run(self, attempt: AttemptContext) -> Outcome:
        """Run the attempt to its end. Cancellation of this coroutine means: end the work now, then raise."""


class Leftover(NamedTuple):
    """Work of a run that may have outlived its worker."""

    run_id: str
    handle: str
    """What it is, exactly as it was found: work of the same run that was started or adopted later has another."""


class Leftovers(Protocol):
    """Work that goes on without its worker, such as a container: any worker of the same place finds and ends it."""

    place: str
    """Where it is. The workers of one place look after the same work."""

    async def find(self) -> Sequence[Leftover]:
        """All work that has not ended. BackendUnavailable if that cannot be known now."""

    async def end(self, leftover: Leftover) -> bool:
        """End it if it is still as it was found, and say whether it was. BackendUnavailable if that cannot be done
        now."""
