"""Runs, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from mainspring.client.connection import Connection, Request, path_of
from mainspring.client.pages import LARGEST, each
from mainspring.client.streams import follow
from mainspring.core.instants import SECOND, format_duration, parse_duration
from mainspring.core.runs.retry import Length
from mainspring.core.states import FINAL, State
from mainspring.errors import InvalidInput
from mainspring.operations import records
from mainspring.operations.filters import RunFilters
from mainspring.operations.jobs.options import RunWords, Values, read_words, word_values
from mainspring.operations.runs import result_of, still_running

LONGEST_POLL_S = 20.0
"""Shorter than what stands between may bear, and than a server that is stopped should wait for us."""


class Runs:
    """`client.runs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def submit(
        self, task: str, args: Mapping[str, object] | None = None, **words: Unpack[RunWords]
    ) -> records.NewRun:
        """Submit a run: durable once this returns, and once only, however often the line breaks. For the options see
        `RunWords`."""
        values, key = _read(words)
        body = {"task": task, "args": args or {}, **word_values(values)}
        return await self._connection.ask(Request("POST", path_of("runs"), body=body, key=key), records.NewRun)

    async def submit_many(
        self,
        task: str,
        calls: Iterable[Mapping[str, object]],
        **words: Unpack[RunWords],
    ) -> Sequence[str]:
        """Submit a run for each of these arguments, up to 10000: all are accepted, or none. Their ids."""
        values, key = _read(words)
        shared = {"task": task, **word_values(values)}
        return await self.submit_batch([{**shared, "args": args} for args in calls], idempotency_key=key)

    async def submit_batch(
        self, runs: Sequence[Mapping[str, object]], *, idempotency_key: str | None = None
    ) -> Sequence[str]:
        """The same for runs that differ, in the words of the API."""
        return (await self._batch(runs, idempotency_key)).run_ids if runs else []

    async def submit_graph(
        self, runs: Sequence[Mapping[str, object]], *, idempotency_key: str | None = None
    ) -> records.Batch:
        """The same for runs that wait for each other: `after` names earlier ones by their places, from `#0` on. The
        answer has their ids and the tag that all of them have."""
        return await self._batch(runs, idempotency_key)

    async def _batch(self, runs: Sequence[Mapping[str, object]], key: str | None) -> records.Batch:
        return await self._connection.ask(
            Request("POST", path_of("runs:batch"), body={"runs": runs}, key=key), records.Batch
        )

    async def get(self, run_id: str) -> records.RunStory:
        """A run, and what keeps it from running."""
        return await self._connection.ask(Request("GET", path_of("runs", run_id)), records.RunStory)

    async def status(self, run_id: str, *, fresh: bool = False) -> records.RunStatus:
        """How a run stands, in few words: from the cache, where the server has one and it need not be `fresh`."""
        query = {"fresh": True} if fresh else {}
        return await self._connection.ask(Request("GET", path_of("runs", run_id, "status"), query), records.RunStatus)

    async def find(self, part: str, limit: int = 2) -> Sequence[records.Run]:
        """Runs whose ids begin or end with a given text."""
        query = {"id": part, "limit": limit}
        kind: Any = records.Page[records.Run]
        page: records.Page[records.Run] = await self._connection.ask(Request("GET", path_of("runs"), query), kind)
        return page.items

    def list(
        self, *, error: str | None = None, limit: int | None = None, **filters: Unpack[RunFilters]
    ) -> AsyncGenerator[records.Run, None]:
        """Runs, newest first: those that the filters fit (`RunFilters`), those that failed with an `error` group."""
        return each(self._connection, path_of("runs"), {**_query(filters), "error": error}, records.Run, limit)

    async def count(self, **filters: Unpack[RunFilters]) -> records.Count:
        """How many runs `list` would give, counted up to 10,000."""
        return await self._connection.ask(Request("GET", path_of("runs:count"), _query(filters)), records.Count)

    def dead_letters(
        self, *, job: str | None = None, task: str | None = None, tag: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[records.Run, None]:
        """Runs that failed for good, newest first."""
        query = {"job": job, "task": task, "tag": tag}
        return each(self._connection, path_of("dead-letters"), query, records.Run, limit)

    async def rerun(self, **words: object) -> records.Rerun:
        """Run failed runs again, each at most once: `run_ids`, or all of a `job`, a `task` or a `tag`; `limit`,
        `dry_run`."""
        return await self._connection.ask(Request("POST", path_of("dead-letters:rerun"), body=words), records.Rerun)

    async def cancel(self, run_id: str, reason: str = "") -> State:
        """Cancel a run that waits, or ask a running one to stop; the state it is then in. Conflict if it has ended."""
        body = {"reason": reason} if reason else {}
        request = Request("POST", path_of("runs", run_id, "cancel"), body=body)
        return (await self._connection.ask(request, records.Cancelled)).state

    async def retry(self, run_id: str, reason: str = "") -> records.Run:
        """Try once more what has ended without success: the new run of the same work. Conflict otherwise."""
        body = {"reason": reason} if reason else {}
        return await self._connection.ask(Request("POST", path_of("runs", run_id, "retry"), body=body), records.Run)

    async def attempts(self, run_id: str) -> Sequence[records.Attempt]:
        """The attempts that have ended, in order."""
        return (await self._connection.ask(Request("GET", path_of("runs", run_id, "attempts")), records.Attempts)).items

    async def poll(self, run_id: str, timeout: Length) -> records.Run:
        """The run once it has ended, or as it is after the timeout."""
        duration = parse_duration(timeout, "timeout")
        request = Request(
            "GET",
            path_of("runs", run_id, "wait"),
            {"timeout": format_duration(duration)},
            patience_s=duration / SECOND,
        )
        return await self._connection.ask(request, records.Run)

    async def wait(self, run_id: str, timeout: Length | None = None) -> records.Run:
        """The run once it has ended; WaitTimeout if that takes too long. The run itself goes on."""
        until = None if timeout is None else self._connection.now() + parse_duration(timeout, "timeout")
        while True:
            left = LONGEST_POLL_S if until is None else max((until - self._connection.now()) / SECOND, 0.0)
            run = await self.poll(run_id, min(left, LONGEST_POLL_S))
            if run.state in FINAL:
                return run
            if until is not None and self._connection.now() >= until:
                raise still_running(run, timeout or 0)

    async def result(self, run_id: str, timeout: Length | None = None) -> Any:
        """What the run returned; RunFailed if it ended otherwise, WaitTimeout if it has not ended in time."""
        return result_of(await self.wait(run_id, timeout))

    async def logs(
        self, run_id: str, *, follow: bool = False, tail: int | None = None
    ) -> AsyncGenerator[records.Line, None]:
        """What a run wrote, all attempts together; with `follow`, as it writes it, until it has ended."""
        path = path_of("runs", run_id, "logs")
        if follow:
            async for line in self._follow(path):
                yield line
            return
        after: int | None = None
        while True:
            size = {"tail": tail} if tail is not None else {"after": after, "limit": LARGEST}
            page = await self._connection.ask(Request("GET", path, size), records.Lines)
            for line in page.items:
                yield line
            if tail is not None or len(page.items) < LARGEST:
                return
            after = page.next

    async def _follow(self, path: str) -> AsyncGenerator[records.Line, None]:
        async for message in follow(self._connection, Request("GET", path, {"follow": True}), end="end"):
            if message.kind == "line":
                yield msgspec.json.decode(message.data, type=records.Line)


def _read(words: Mapping[str, object]) -> tuple[Values, str | None]:
    """The options of a submission, and its idempotency key."""
    values = read_words(words, RunWords, "a submission")
    if "connection" in values:
        remedy = "submit after your own transaction has been committed"
        raise InvalidInput("connection", values["connection"], "cannot be joined over HTTP", remedy)
    key: str | None = values.pop("idempotency_key", None)
    return values, key


def _query(filters: RunFilters) -> dict[str, Any]:
    """Filters in the words of the API."""
    named: dict[str, Any] = dict(filters)
    bounds = {name: at.isoformat() for name in ("since", "until") if (at := named.pop(name, None)) is not None}
    return {"state": list(named.pop("states", ())), **named, **bounds}
