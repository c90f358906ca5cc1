"""`/v1/tallies`, `/v1/service-levels`, `/v1/errors`, `/v1/load`, `/v1/ledger` and `/v1/terms`: what came to pass, and
what is to come."""

from __future__ import annotations

import msgspec

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.problems import Problem
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import asked, instants
from mainspring.api.schemas.paging import limit_of, read_cursor, read_number, unknown_cursor, write_cursor
from mainspring.api.schemas.views import (
    ErrorQuery,
    LedgerPageQuery,
    LedgerQuery,
    LoadAtQuery,
    LoadQuery,
    SpanQuery,
    SpreadBody,
    TallyQuery,
    TermQuery,
)
from mainspring.core.instants import LATEST
from mainspring.operations.cluster import Cluster
from mainspring.operations.planning.load import LoadAhead
from mainspring.operations.planning.records import Spread
from mainspring.operations.planning.spread import propose_spread
from mainspring.operations.views import records
from mainspring.operations.views.ledger import MOST_ROWS, Ledger
from mainspring.operations.views.tallies import Tallied, is_error_place


async def show_tallies(request: Request) -> Response:
    """What ended, by period: of the namespace, of a job, a task or a queue, or of each of them (`by`). Those of queues
    also count what was accepted. The counts are kept, so they lag events by a moment, and cost the same whatever there
    is."""
    return Response(200, await Tallied(Acting(request).context).tallies(**asked(request)))


async def show_service_levels(request: Request) -> Response:
    """How many attempts of each priority started within its service level (the setting `service_levels`), by default
    over the last day. The counts are kept, so they lag events by a moment, and cost the same whatever there is."""
    return Response(200, await Tallied(Acting(request).context).service_levels(**asked(request)))


async def list_errors(request: Request) -> Response:
    """Kinds of failure, the one that was seen last first. They are counted from the events: `counted_until` says up to
    when."""
    before = read_cursor(request.query)
    if before is not None and not is_error_place(before):
        raise unknown_cursor()
    tallied, words = Tallied(Acting(request).context), asked(request)
    return _page(await tallied.errors(**words, before=before, limit=limit_of(request.query)))


async def get_error(request: Request) -> Response:
    """A kind of failure, what it affects, and one of its errors whole."""
    return Response(200, await Tallied(Acting(request).context).error(request.named("error")))


async def show_load(request: Request) -> Response:
    """What is planned to start, by period, and how many slots that keeps busy. Kept for ten seconds, or until a job is
    made, edited, paused or resumed."""
    words = asked(request)
    newest, _ = await request.context.store.changed_jobs(LATEST, limit=1)
    key = repr((request.namespace, newest, sorted(words.items())))
    since, until = words.pop("from", None), words.pop("to", None)
    ahead = LoadAhead(Acting(request).context)
    return Response(200, await request.context.loads.get(key, lambda: ahead.show(since=since, until=until, **words)))


async def show_load_at(request: Request) -> Response:
    """The jobs that are planned to start in a period, most starts first."""
    words = asked(request)
    return Response(200, await LoadAhead(Acting(request).context).at(words.pop("from"), words.pop("to"), **words))


async def spread_load(request: Request) -> Response:
    """Which jobs to move by some minutes so that fewer runs start in the fullest minute, and what the peak is then. It
    changes nothing: apply an edit with `PATCH /v1/jobs/{job_id}` and its version."""
    given = request.given
    words = {name: given[name] for name in ("within", "target", "queue", "tag") if name in given}
    span = instants(given, request.wrong, "from", "to")
    request.wrong.settle()
    found = await propose_spread(Acting(request).context, since=span.get("from"), until=span.get("to"), **words)
    return Response(200, found)


async def show_job_ledger(request: Request) -> Response:
    """The due instants of a job in a span, newest first: what became of each, how late it began, how long it took.
    Planned instants are listed, too. With `bucket`, counts by period."""
    ledger, job = Ledger(Acting(request).context), request.named("job_id")
    try:
        before = read_number(request.query)
    except Problem:
        await request.context.store.get_job(request.namespace, job)  # An unknown job is reported before other faults.
        raise
    limit = request.query.get("limit", MOST_ROWS)
    return _page(await ledger.of_job(job, **asked(request), before=before, limit=limit))


async def show_ledger(request: Request) -> Response:
    """What ended of each job by period: a page of jobs in order of name."""
    ledger, words = Ledger(Acting(request).context), asked(request)
    return _page(await ledger.of_all(**words, after=read_cursor(request.query), limit=limit_of(request.query)))


def _page(found: records.ErrorGroups | records.FiringWindow | records.Ledger) -> Response:
    """A page with more than its items, and the cursor of the next."""
    following = None if found.next is None else write_cursor(found.next)
    return Response(200, msgspec.structs.replace(found, next=following))


async def list_terms(request: Request) -> Response:
    """The terms of leadership, newest first: those that lasted at `since` or later."""
    terms = await Cluster(Acting(request).context).terms(**asked(request), limit=limit_of(request.query))
    return Response(200, records.Terms([*terms]))


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/tallies", show_tallies, "runs:read", "What ended, by period.", {200: records.Tallies},
        query=TallyQuery,
    ),
    Endpoint(
        "GET", "/v1/service-levels", show_service_levels, "runs:read", "How punctually runs started, by priority.",
        {200: records.ServiceLevels}, query=SpanQuery,
    ),
    Endpoint(
        "GET", "/v1/errors", list_errors, "runs:read", "List kinds of failure.", {200: records.ErrorGroups},
        query=ErrorQuery,
    ),
    Endpoint(
        "GET", "/v1/errors/{error}", get_error, "runs:read", "Look at a kind of failure.", {200: records.ErrorStory},
    ),
    Endpoint("GET", "/v1/load", show_load, "jobs:read", "The load ahead.", {200: records.Load}, query=LoadQuery),
    Endpoint(
        "GET", "/v1/load/at", show_load_at, "jobs:read", "The jobs of one period.", {200: records.LoadAt},
        query=LoadAtQuery,
    ),
    Endpoint(
        "POST", "/v1/load:spread", spread_load, "jobs:read", "Propose edits that flatten a peak.", {200: Spread},
        SpreadBody, needs_body=False, example={"within": "15m"},
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/ledger", show_job_ledger, "jobs:read", "A job's due instants over time.",
        {200: records.FiringWindow}, query=LedgerQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/ledger", show_ledger, "jobs:read", "The ledger of all jobs by period.", {200: records.Ledger},
        query=LedgerPageQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/terms", list_terms, "workers:read", "List terms of leadership.", {200: records.Terms},
        query=TermQuery,
    ),
)  # fmt: skip
