"""The executor port: run one attempt to its outcome.

An executor gets an attempt and returns how it ended; it never raises for what the task did. When its coroutine is
cancelled it ends the work (asking for `grace_s`, then killing) and only then lets the cancellation through; an executor
that cannot sets `unstoppable`. The texts of an outcome have gone through `plain`. `ExecutableTask` is what an executor
needs of a registered function.
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
from mainspring.core.runs.outcome import deadline_of
from mainspring.errors import InvalidInput, MainspringError

PRINT_LIMIT = 1_048_576
"""Characters of printed output that are kept of a run, unless the settings say otherwise."""
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
        """The id of the run."""
        return self._claim.run_id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._claim.task

    @property
    def job(self) -> str | None:
        """The name of the run's job; None for a submission."""
        return self._claim.job

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claim.attempt + 1

    @property
    def token(self) -> int:
        """Greater each time a worker claims the run: a resource that receives it can refuse earlier ones."""
        return self._claim.token

    @property
    def namespace(self) -> str:
        """The namespace of the run."""
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
        """In the run of a job that follows other jobs: the firings that it follows, by job and instant.

        Instants are microseconds since 1970. `app.upstream()` has the results of their runs.
        """
        return _read_carried(self._claim.options).after_firings

    @property
    def fire_at(self) -> datetime | None:
        """The due instant, in UTC, that the run is for; it may start later. None for a submission."""
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
        """Apply `mask` to all output and progress notes of the run. Called by the worker, before the run begins."""
        log, progress = self._on_log, self._on_progress
        self._on_log = lambda stream, text: log(stream, mask(text))
        self._on_progress = lambda fraction, note: progress(fraction, mask(note))

    def progress(self, fraction: float, note: str = "") -> None:
        """Report how far the run has come, from 0 to 1."""
        if not isinstance(fraction, int | float) or isinstance(fraction, bool) or not 0 <= fraction <= 1:
            raise InvalidInput("fraction", fraction, "is not a fraction", "give a number from 0 to 1")
        self._on_progress(float(fraction), str(note))

    def log(self, text: str) -> None:
        """Write to the run's log, as printing does."""
        self._on_log("log", str(text))

    def print(self, stream: str, text: str) -> None:
        """Store printed text. Called by the worker, from any thread."""
        if self._prints is None:
            self._prints = _Prints(self.print_limit)
        self._prints.take(stream, text, self._on_log)

    def end_prints(self) -> None:
        """Store the last, incomplete line. Called by the worker when the attempt has ended."""
        if self._prints is not None:
            self._prints.end(self._on_log)
            self._prints = None


class _Prints:
    """Cuts printed text, which comes in pieces, into lines."""

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
    """The run that the calling task executes; MainspringError outside of a task."""
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
    """The text with lone surrogates replaced, which UTF-8 cannot encode: exceptions and programs may contain them."""
    return text.encode("utf-8", "replace").decode()


class Write(Protocol):
    """Receives the output of an attempt."""

    def __call__(self, stream: str, text: str, at: Instant | None = None, /) -> None:
        """Store one line, without its line end; `at` if it was not written just now."""


StopKind = Literal["timed_out", "cancelled", "fenced", "handed_back"]


class AttemptContext:
    """One running attempt: what to run, until when, and, if it is being stopped, why."""

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
        "warned",
        "write",
    )

    def __init__(self, claim: Claim, options: RunOptions) -> None:
        self.claim = claim
        self.options = options
        self.started_at: Instant = 0
        self.context: RunContext | None = None
        self.now: Callable[[], Instant] = _no_time
        """The store's clock."""
        self.write: Write = _discard
        """Receives the output of the attempt."""
        self.behind: Callable[[], bool] = _never
        """Whether too many lines wait to be stored: a task that can wait should write no more for now."""
        self.on_overdue: Callable[[], None] = _nothing
        """Called at the soft deadline: an executor that has to notify its work sets it."""
        self.warned = False
        """Whether its output says that it is past its soft deadline."""
        self.stop_kind: StopKind | None = None
        self.stop_reason = ""
        self.grace_s = 2.0
        """How long work that is asked to end may take before it is killed."""
        self.here = False
        """Whether the work runs in this process, on its event loop or in a thread. Then only the end of the process
        surely ends it."""
        self.unstoppable = False
        """Whether the work runs in a thread, which cannot be interrupted."""
        self.ends_by: float | None = None
        """The deadline on the monotonic clock."""

    def change_options(self, options: str) -> None:
        """Replace the encoded options of the run for this attempt alone. They hold the context that the task sees."""
        self.claim = msgspec.structs.replace(self.claim, options=options)
        if self.context is not None:
            self.context._claim = self.claim

    @property
    def deadline(self) -> Instant | None:
        """When the attempt must have ended."""
        return deadline_of(self.options, self.started_at)

    @property
    def soft_deadline(self) -> Instant | None:
        """When the attempt should have ended."""
        return None if self.options.soft_timeout is None else self.started_at + self.options.soft_timeout


# One function each for all attempts: with four lambdas of its own, an attempt took four times as long to create.


def _no_time() -> Instant:
    return 0


def _discard(_stream: str, _text: str, _at: Instant | None = None) -> None:
    return None


def _never() -> bool:
    return False


def _nothing() -> None:
    return None


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
        """Timeouts, retries, isolation and all other options."""


class TaskHooks(Protocol):
    """The hooks of an app that run in the process that executes its tasks."""

    drive: Callable[[Coroutine[Any, Any, Any]], Any]
    """Runs a coroutine from a thread that executes a task; set while the process works."""

    @property
    def needs_loop(self) -> bool:
        """Whether the process has to keep an event loop for them."""

    def alive(self) -> AbstractAsyncContextManager[None]:
        """Entered while the process works."""


class ExecutableTask(Protocol):
    """A registered function, as executors need it."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""

    @property
    def defaults(self) -> TaskDefaults:
        """How it is executed unless a run says otherwise."""

    @property
    def hooks(self) -> TaskHooks:
        """The hooks of its app."""

    def execute(self, arguments: Mapping[str, object]) -> Any:
        """Call the function within the hooks; returns an awaitable if the function is async."""

    def decode_args(self, text: str) -> dict[str, object]:
        """Decode stored arguments to keyword arguments. Raises if they do not fit the function."""

    def encode_result(self, value: object) -> str:
        """Encode a returned value for the store. Raises if it cannot be encoded."""


class Executor(Protocol):
    """Runs attempts of one kind: functions, commands, HTTP calls, containers."""

    async def run(self, attempt: AttemptContext) -> Outcome:
        """Run the attempt to its end. If this coroutine is cancelled, end the work, then raise."""


class Leftover(NamedTuple):
    """Work of a run that may have outlived its worker."""

    run_id: str
    handle: str
    """Identifies exactly this work: work of the same run that was started or adopted later has another handle."""


class Leftovers(Protocol):
    """Work that goes on without its worker, such as a container: any worker of the same place finds and ends it."""

    place: str
    """Where the work runs. The workers of one place look after the same work."""

    async def find(self) -> Sequence[Leftover]:
        """All work that has not ended; BackendUnavailable if the backend does not answer."""

    async def end(self, leftover: Leftover) -> bool:
        """End the work if it still has this handle; returns whether it had. BackendUnavailable if the backend does not
        answer."""
