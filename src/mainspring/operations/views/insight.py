"""All that pages show, as one object: the same shape as `client.insight` has for a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from functools import partial

from mainspring.operations.cluster import Cluster
from mainspring.operations.context import Context
from mainspring.operations.paging import walk
from mainspring.operations.planning.load import LoadAhead
from mainspring.operations.planning.spread import propose_spread
from mainspring.operations.views.history import StoredEvents
from mainspring.operations.views.ledger import Ledger
from mainspring.operations.views.records import ErrorGroup
from mainspring.operations.views.relations import Relations
from mainspring.operations.views.tallies import Tallied
from mainspring.operations.views.tasks import KnownTasks


class Insight:
    """What pages show of a namespace. Each method is described where it is defined."""

    def __init__(self, context: Context) -> None:
        tallied, load, relations = Tallied(context), LoadAhead(context), Relations(context)
        events, tasks = StoredEvents(context), KnownTasks(context)
        self._errors = tallied.errors
        self.tallies = tallied.tallies
        self.service_levels = tallied.service_levels
        self.error = tallied.error
        self.load = load.show
        self.load_at = load.at
        self.spread = partial(propose_spread, context)
        self.timeline = events.spans
        self.events = events.page
        self.run_events = events.of_run
        self.run_relations = relations.of_run
        self.job_relations = relations.of_job
        self.ledger = Ledger(context).of_job
        self.terms = Cluster(context).terms
        self.tasks = tasks.list
        self.task = tasks.get
        self.facets = tasks.facets

    def errors(
        self,
        *,
        since: datetime | None = None,
        job: str | None = None,
        task: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[ErrorGroup, None]:
        """Kinds of failure, the one that was seen last first; those of a job or a task among its latest failures."""
        fetch = partial(self._errors, since=since, job=job, task=task)
        return walk(lambda place, size: fetch(before=place, limit=size), limit)
