"""Runs, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from mainspring.client.connection import Request, path_of
from mainspring.client.resource import LARGEST, Resource
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


class Runs(Resource):
    """`client.runs`."""

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
        return await self._get(records.RunStory, "runs", run_id)

    async def status(self, run_id: str, *, fresh: bool = False) -> records.RunStatus:
        """How a run stands, in few words: from the cache, where the server has one and it need not be `fresh`."""
        return await self._get(records.RunStatus, "runs", run_id, "status", fresh=fresh or None)

    async def find(self, part: str, limit: int = 2) -> Sequence[records.Run]:
        """Runs whose ids begin or end with a given text."""
        return (await self._get(records.Page[records.Run], "runs", id=part, limit=limit)).items

    def list(
        self, *, error: str | None = None, limit: int | None = None, **filters: Unpack[RunFilters]
    ) -> AsyncGenerator[records.Run, None]:
        """Runs, newest first: those that the filters fit (`RunFilters`), those that failed with an `error` group."""
        return self._each(records.Run, "runs", limit=limit, error=error, **_query(filters))

    async def count(self, **filters: Unpack[RunFilters]) -> records.Count:
        """How many runs `list` would give, counted up to 10,000."""
        return await self._get(records.Count, "runs:count", **_query(filters))

    def dead_letters(
        self, *, job: str | None = None, task: str | None = None, tag: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[records.Run, None]:
        """Runs that failed for good, newest first."""
        return self._each(records.Run, "dead-letters", limit=limit, job=job, task=task, tag=tag)

    async def rerun(self, **words: object) -> records.Rerun:
        """Run failed runs again, each at most once: `run_ids`, or all of a `job`, a `task` or a `tag`; `limit`,
        `dry_run`."""
        return await self._post(records.Rerun, "dead-letters:rerun", **words)

    async def cancel(self, run_id: str, reason: str = "") -> State:
        """Cancel a run that waits, or ask a running one to stop; the state it is then in. Conflict if it has ended."""
        return (await self._post(records.Cancelled, "runs", run_id, "cancel", reason=reason or None)).state

    async def retry(self, run_id: str, reason: str = "") -> records.Run:
        """Try once more what has ended without success: the new run of the same work. Conflict otherwise."""
        return await self._post(records.Run, "runs", run_id, "retry", reason=reason or None)

    async def attempts(self, run_id: str) -> Sequence[records.Attempt]:
        """The attempts that have ended, in order."""
        return (await self._get(records.Attempts, "runs", run_id, "attempts")).items

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
        if follow:
            async for line in self._follow(run_id):
                yield line
            return
        after: int | None = None
        while True:
            size = {"tail": tail} if tail is not None else {"after": after, "limit": LARGEST}
            page = await self._get(records.Lines, "runs", run_id, "logs", **size)
            for line in page.items:
                yield line
            if tail is not None or len(page.items) < LARGEST:
                return
            after = page.next

    async def _follow(self, run_id: str) -> AsyncGenerator[records.Line, None]:
        request = Request("GET", path_of("runs", run_id, "logs"), {"follow": True})
        async for message in follow(self._connection, request, end="end"):
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
    return {"state": list(named.pop("states", ())), **named}
