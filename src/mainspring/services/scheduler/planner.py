"""Turns due instants into firings and runs.

Jobs due within the horizon wait in the wheel; the rest wait in the store. Only the planner that leads reads and fires;
in `cluster` and `lock` coordination every planner does. The store applies a plan only if its job has not changed since.

Where possible, firings are written shortly before their instant, and their runs wait in the queue until they are due.
Thus many jobs of one instant begin together, however long writing them takes. The more there are, the earlier.

No job and no tenant delays the others. Due jobs wait by namespace and are taken in turns (`core.planning.fair_queue`),
in batches bounded in runs and bytes. No namespace fires more runs than its rate (`firing_budget`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND, MINUTE, SECOND, ZONE_DATA, Duration, Instant
from mainspring.core.load.leadership import shard_of
from mainspring.core.model import Job, Term
from mainspring.core.planning.fair_queue import FairQueue
from mainspring.core.planning.firing_limits import PLAN_RUNS, Bounds, oversize, rate_reason, runs_of
from mainspring.core.planning.plans import Plan, as_of, cut, depend, may_precede, plan, runs_in, written_at
from mainspring.core.planning.wheel import Wheel
from mainspring.core.planning.zone_data import CONFIRM_AFTER
from mainspring.core.runs.dependency import Upstream, newest_firing
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import AfterTrigger
from mainspring.errors import NotFound, TermPassed
from mainspring.services.loop import Loop, log
from mainspring.services.scheduler.contender import Contender
from mainspring.services.scheduler.firing_budget import FiringBudget
from mainspring.settings import Settings
from mainspring.store import Fired, Store

BATCH = 1_000
BATCH_RUNS = 2_000
BATCH_BYTES = 16 * 2**20
"""The firing that reaches one of these ends the transaction: other transactions wait for it."""
BATCHES_A_TURN = 4
"""After this many batches, the planner looks for edits before it goes on."""
PLANS_AT_ONCE = 500
PLANNING_S = 0.02
"""After this many planned instants, or this much time, other loops run. A job with many rules in its calendars takes as
long to plan as hundreds of others."""
BATCH_S = 0.1
"""A batch that took this long to plan is written, so that what is in it is not late."""
LOAD_LIMIT = 50_000
CHANGE_LIMIT = 10_000
"""If more jobs than this have changed, the planner reloads what is due soon."""
RELOAD_GAP = SECOND // 2
"""While more is overdue than can be loaded, the planner reloads at most this often."""
LONGEST_WAIT_S = 1.0
"""How often at least to look at the clock, which may be set."""
EDITS_S = 3.0
"""How often at least to ask for edits. A hint announces each, and is lost only with the process that made the edit.
Where hints cannot be received, the store produces them several times a second."""
AHEAD = 8 * SECOND
"""Jobs that come due within this time are planned ahead."""
AHEAD_LIMIT = 20_000
AHEAD_SLICE = 50
AHEAD_S = 0.005
"""After this many plans, a millisecond of work for most jobs, or this much time, other loops run."""
LEAD = 20 * MILLISECOND
LONGEST_LEAD = 5 * SECOND
"""How long before its instant the firing of a lone job is written, and at most those of many. An edit within this time
applies to the next instant."""
LEAD_SHARE = 2.5
"""The lead, as a multiple of the time that writing as many firings took: workers must claim the runs in it, too."""
FIRST_COST_S = 0.0002
MANY = 100
"""Fewer firings say little about the cost of one among many."""
_FROM_NOW_ON = 2**62
"""For changes after this number, the store returns none, and its newest number."""

UPSTREAM_LOOK = 20 * MILLISECOND
"""How soon to look again for the firing of an upstream job at the same instant."""
UPSTREAM_PATIENCE = 2 * SECOND
"""How long to wait for it; then its last firing counts. Less than the grace after which an instant is a misfire."""
WINNER_LOOK = 50 * MILLISECOND
WINNER_SHARE = 4
"""How soon to look again at a job whose lease another node won. The pauses double up to this share of the lease's time
to live: if the winner has died, that is how much later than the lease expires another node fires."""

Leads = Callable[[], Term | None]


class Planner(Loop):
    """`leads` returns the term of this node, or None while it does not lead. Without `leads` every node plans, and with
    a `contender` fires only the jobs whose lease it has won. With shards, each planner plans its `shard` of the
    jobs."""

    name = "planner"

    def __init__(
        self,
        store: Store,
        leads: Leads | None,
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        shard: int = 0,
        contender: Contender | None = None,
    ) -> None:
        super().__init__(clock, random)
        self._shard = shard
        self._shards = 1 if leads is None else settings.shards
        if self._shards > 1:
            self.name = f"{self.name}:{shard + 1}/{self._shards}"
        self._store = store
        self._leads = leads
        self._contender = contender
        self._horizon = settings.horizon
        self._wheel: Wheel[str] = Wheel(store.now(), self._horizon)
        self._jobs: dict[str, Job] = {}
        self._due: FairQueue[Job] = FairQueue()
        self._budget = FiringBudget(store, settings, sole=leads is not None and self._shards == 1)
        self._throttled_until: dict[str, Instant] = {}
        """Until when each namespace last had to wait for its budget: what was due by then is late because of that."""
        self._overdue: set[str] = set()
        """Namespaces with more overdue jobs than were loaded."""
        self._ahead: dict[str, Plan] = {}
        self._cost_s = FIRST_COST_S
        """How long the store takes to write one of many firings."""
        self._planning_s = 0.0
        """How long planning took so far, since this process started."""
        self._begun_for: Instant | None = None
        self._loaded_at: Instant = 0
        self._reload_at: Instant = 0
        self._change = _FROM_NOW_ON
        self._hinted = True
        self._asked_at = 0.0
        """When the planner last asked for edits."""
        self._calendars: dict[str, dict[str, Calendar]] = {}
        self._zones_at = 0.0
        """When to make another step with other zone data, or to confirm that this is the data to plan with."""
        self._began: Term | None = None
        self.on_overtaken: list[Callable[[], None]] = []
        self.on_fired: Callable[[Plan, Fired], None] | None = None
        """Called with each plan that the store has applied, and what came of it."""

    async def turn(self) -> float:
        term = self._leads() if self._leads else None
        if self._leads is not None and term is None:
            return LONGEST_WAIT_S
        if term != self._began:
            # This wheel does not know what other nodes fired meanwhile: reload it once per term.
            self._change, self._reload_at, self._began, self._zones_at = _FROM_NOW_ON, 0, term, 0.0
        if self._may_rest():
            return self._next_look()
        if self.clock.monotonic() >= self._zones_at:
            await self._adopt_zones()
        await self._refresh()
        await self._fire_due(term)
        await self._fire_ahead(term)
        await self._plan_ahead()
        return self._next_look()

    def wake(self) -> None:
        self._hinted = True
        super().wake()

    def _may_rest(self) -> bool:
        """Whether nothing fires soon, no hint of an edit came, and no question for edits is due."""
        if self._hinted or self._change == _FROM_NOW_ON or self.clock.monotonic() >= self._next_question_at():
            return False
        now = self._store.now()
        return self._loaded_at <= now < self._reload_at and self._next_look() >= LONGEST_WAIT_S

    def _next_question_at(self) -> float:
        """When to ask for edits, or for the zone data of the others."""
        return min(self._asked_at + EDITS_S, self._zones_at)

    async def _adopt_zones(self) -> None:
        """Make a step with other zone data. Between two steps, jobs fire."""
        step = await self._store.adopt_zones(ZONE_DATA)
        for fault in step.faults:
            log.warning("%s; until it is edited, it is due as before zone data %s came in", fault, ZONE_DATA)
        self._zones_at = 0.0 if step.left else self.clock.monotonic() + CONFIRM_AFTER / SECOND

    @property
    def next_fire_at(self) -> Instant | None:
        """The next instant in the wheel."""
        return self._wheel.next_at()

    async def _refresh(self) -> None:
        """Apply edits, and load what has come within the horizon."""
        asked_at, self._hinted = self.clock.monotonic(), False
        try:
            self._change, changed = await self._store.changed_jobs(self._change, CHANGE_LIMIT)
        except BaseException:
            self._hinted = True
            raise
        self._asked_at = asked_at
        if changed:
            self._forget_calendars()
        now = self._store.now()
        # The clock may have been set back.
        if now < self._loaded_at or now >= self._reload_at or len(changed) > CHANGE_LIMIT or self._has_caught_up(now):
            await self._load(now)
            return
        for job in changed:
            self._put(job)

    def _has_caught_up(self, now: Instant) -> bool:
        """Whether all loaded jobs of a namespace have fired, and more of it is overdue."""
        return now >= self._loaded_at + RELOAD_GAP and any(name not in self._due for name in self._overdue)

    async def _load(self, now: Instant) -> None:
        """Load into a new wheel, because the clock of the old one may be wrong."""
        due = await self._store.due_jobs(now + self._horizon, LOAD_LIMIT)
        self._wheel = Wheel(now, self._horizon)
        self._jobs.clear()
        self._due.clear()
        self._forget_calendars()
        for job in due:
            self._put(job)
        self._loaded_at, self._reload_at = now, now + self._horizon // 2
        self._overdue.clear()
        if len(due) >= LOAD_LIMIT:
            self._note_incomplete(due, now)

    def _note_incomplete(self, due: Sequence[Job], now: Instant) -> None:
        """Namespaces share the limit; those that reached their share may have more jobs, later than the last loaded
        one."""
        last = {job.namespace: job.next_fire_at or now for job in due}
        counts = Counter(job.namespace for job in due)
        most = max(counts.values())
        for namespace in (name for name, count in counts.items() if count == most):
            if last[namespace] <= now:
                self._overdue.add(namespace)
            else:
                self._reload_at = min(self._reload_at, now + (last[namespace] - now) // 2)

    def _forget_calendars(self) -> None:
        self._calendars.clear()
        self._ahead.clear()

    def _is_ours(self, job: Job) -> bool:
        return self._shards == 1 or shard_of(job.id, self._shards) == self._shard

    def _put(self, job: Job) -> None:
        if not self._is_ours(job):
            return
        if job.next_fire_at is None or job.paused_at is not None or not self._wheel.insert(job.id, job.next_fire_at):
            self._drop(job.id)
        else:
            self._jobs[job.id] = job
            self._ahead.pop(job.id, None)

    def _drop(self, job_id: str) -> None:
        self._wheel.cancel(job_id)
        self._jobs.pop(job_id, None)
        self._ahead.pop(job_id, None)

    async def _fire_due(self, term: Term | None) -> None:
        for _, job_id in self._wheel.advance(self._store.now()):
            if (job := self._jobs.get(job_id)) is not None:
                self._due.push(job.namespace, job)
        with self._doubting():
            for _ in range(BATCHES_A_TURN):
                plans = await self._next_batch(self._store.now())
                if plans:
                    await self._fire(plans, term)
                if self._due.next_at(self._store.now()) is None:
                    return

    async def _next_batch(self, now: Instant) -> list[Plan]:
        """The plans of due jobs, namespaces in turns, as many as one transaction may hold."""
        plans: list[Plan] = []
        runs = size = work = 0
        began = rested = self._planning_s
        while len(plans) < BATCH and runs < BATCH_RUNS and size < BATCH_BYTES and self._planning_s - began < BATCH_S:
            job = self._due.pop(now)
            if job is None:
                break
            if self._jobs.get(job.id) is not job:
                continue  # It was changed, paused or removed while it waited.
            await self._load_calendars([job])
            before = self._planning_s
            made = await self._plan_within_budget(job, now)
            # Its time counts as the runs that could have been written in it.
            cost = max(1, round((self._planning_s - before) / FIRST_COST_S))
            if made is not None:
                plans.append(made)
                count = runs_in(made)
                runs, size, work = runs + count, size + count * len(job.args), work + len(made.firings)
                cost = max(cost, count)
            self._due.charge(job.namespace, cost)
            if work >= PLANS_AT_ONCE or self._planning_s - rested >= PLANNING_S:
                work, rested = 0, self._planning_s
                await self.clock.sleep(0)
        return plans

    async def _plan_within_budget(self, job: Job, now: Instant) -> Plan | None:
        """The part of a job's plan that its namespace may fire now; None if that is nothing. The rest stays due."""
        made = self._plan(job, now)
        if made is None:
            return None
        granted = await self._take_budget(made, now)
        part = cut(made, granted)
        self._budget.give_back(job.namespace, granted - (0 if part is None else runs_in(part)))
        if part is None:
            self._due.push_front(job.namespace, job)
        return part

    async def _take_budget(self, made: Plan, now: Instant) -> int:
        """How many runs of a plan its namespace may fire now. If not all, the namespace has to wait."""
        namespace, runs = made.job.namespace, runs_in(made)
        if not runs:
            return 0
        grant = await self._budget.take(namespace, runs)
        if grant.runs < runs:
            if self._throttled_until.get(namespace, 0) < now - MINUTE:
                why = rate_reason(namespace, self._budget.rate(namespace))
                log.warning("%s, and more is due: the rest fires late, by the misfire policies of its jobs", why)
            self._throttled_until[namespace] = now + grant.wait
            self._due.hold(namespace, now + grant.wait)
        return grant.runs

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """After a failed call it is unknown what was written: reload from the store."""
        try:
            yield
        except Exception as error:
            self._reload_at = 0
            if isinstance(error, TermPassed):
                for callback in self.on_overtaken:
                    callback()
            raise

    async def _fire(self, plans: Sequence[Plan], term: Term | None) -> None:
        """Fire upstream jobs first, so that dependent jobs of the same instant find their firings."""
        free = [made for made in plans if not made.job.policy.dependencies]
        await self._contend(free, term)
        if len(free) == len(plans):
            return
        ready = [await self._depend(made) for made in plans if made.job.policy.dependencies]
        await self._contend([made for made in ready if made is not None], term)

    async def _depend(self, made: Plan) -> Plan | None:
        """The plan with runs that wait for those of its upstream jobs. None, and looked at again soon, while an
        upstream job has yet to fire for an instant that counts."""
        job, now = made.job, self._store.now()
        instants = [firing.fire_at for firing in made.firings if firing.outcome == "fired"]
        if not instants:
            return made
        upstreams = {name: await self._find_job(job.namespace, name) for name in job.policy.dependencies}
        behind = [each for each in upstreams.values() if each is not None and _is_behind(each, instants[-1])]
        if behind and now < instants[-1] + UPSTREAM_PATIENCE:
            self._budget.give_back(job.namespace, runs_in(made))
            if not self._wheel.insert(job.id, now + UPSTREAM_LOOK):
                self._drop(job.id)
            return None
        firings = [
            depend(firing, job.policy, [await self._upstream(*each, firing.fire_at) for each in upstreams.items()])
            if firing.outcome == "fired"
            else firing
            for firing in made.firings
        ]
        dependent = Plan(job, tuple(firings), made.next_fire_at, made.kind)
        self._budget.give_back(job.namespace, runs_in(made) - runs_in(dependent))
        return dependent

    async def _find_job(self, namespace: str, name: str) -> Job | None:
        try:
            return await self._store.get_job(namespace, name)
        except NotFound:
            return None

    async def _upstream(self, name: str, job: Job | None, until: Instant) -> Upstream:
        if job is None:
            return Upstream(name, fault="does not exist")
        size = len(job.policy.regions) * job.policy.completions
        return newest_firing(name, await self._store.list_firings(job.id, before=until + 1, limit=size))

    async def _contend(self, plans: Sequence[Plan], term: Term | None) -> None:
        if not plans:
            return
        if self._contender is None:
            await self._write(plans, term)
            return
        async with self._contender.contest([made.job for made in plans]) as won:
            if won:
                await self._write([made for made in plans if made.job.id in won], term)
        for made in plans:
            if made.job.id not in won:
                self._budget.give_back(made.job.namespace, runs_in(made))
                if self._jobs.get(made.job.id) is made.job:
                    self._wait_for_winner(made.job, self._contender.ttl)

    def _wait_for_winner(self, job: Job, ttl: Duration) -> None:
        """Another node fires this instant, unless it dies. Firings are no edits, so this node is not notified: it looks
        again soon, in order to know the next instant too, and then ever less often until the lease has expired."""
        now, fire_at = self._store.now(), job.next_fire_at or 0
        pause = min(max(now - fire_at, WINNER_LOOK), ttl // WINNER_SHARE)
        if not self._wheel.insert(job.id, max(now, fire_at) + pause):
            self._drop(job.id)

    async def _write(self, plans: Sequence[Plan], term: Term | None) -> None:
        for made, fired in zip(plans, await self._store.fire(plans, term), strict=True):
            if not fired.applied:
                self._budget.give_back(made.job.namespace, runs_in(made))
            elif self.on_fired is not None:
                self.on_fired(made, fired)
            self._take_over(fired)

    async def _fire_ahead(self, term: Term | None) -> None:
        """Write one batch of the firings of the next instant, if it is time."""
        ready, now = self._ready(), self._store.now()
        if not ready or now < self._lead_at(ready):
            return
        self._begun_for = ready[0].job.next_fire_at
        batch = await self._pick_ahead(ready, now)
        if not batch:
            return
        began = self.clock.monotonic()
        with self._doubting():
            await self._fire([written_at(made, now) for made in batch], term)
        if len(batch) >= MANY:
            self._cost_s += ((self.clock.monotonic() - began) / len(batch) - self._cost_s) / 2

    async def _pick_ahead(self, ready: Sequence[Plan], now: Instant) -> list[Plan]:
        """The plans to write first: namespaces in turns, within their budgets. What exceeds a budget is planned again
        when it is due."""
        queue: FairQueue[Plan] = FairQueue()
        for each in ready:
            queue.push(each.job.namespace, each)
        batch: list[Plan] = []
        runs = size = 0
        while len(batch) < BATCH and runs < BATCH_RUNS and size < BATCH_BYTES and (made := queue.pop(now)) is not None:
            del self._ahead[made.job.id]
            granted, count = await self._take_budget(made, now), runs_in(made)
            if granted < count:
                self._budget.give_back(made.job.namespace, granted)
                queue.hold(made.job.namespace, now + 1)
                continue
            queue.charge(made.job.namespace, count)
            batch.append(made)
            runs, size = runs + count, size + count * len(made.job.args)
        return batch

    def _ready(self) -> list[Plan]:
        """The plans for the next instant that may be written before it."""
        next_at, now = self._wheel.next_at(), self._store.now()
        if not self._ahead or next_at is None or next_at <= now:
            return []
        made = [self._ahead[job_id] for job_id in self._wheel.soonest() if job_id in self._ahead]
        return [
            each
            for each in made
            if each.job is self._jobs.get(each.job.id)
            and may_precede(each)
            and not self._due.is_held(each.job.namespace, now)
        ]

    def _lead_at(self, ready: Sequence[Plan]) -> Instant:
        """When to write these. Once begun, the batches of an instant follow each other without a pause."""
        fire_at = ready[0].job.next_fire_at or 0
        lead = LEAD + int(len(ready) * self._cost_s * LEAD_SHARE * SECOND)
        return fire_at - (LONGEST_LEAD if fire_at == self._begun_for else min(lead, LONGEST_LEAD))

    async def _plan_ahead(self) -> None:
        """Plan jobs of the next instant while there is time. A job that changes meanwhile is planned again when it is
        due."""
        now, next_at = self._store.now(), self._wheel.next_at()
        if next_at is None or not now < next_at <= now + AHEAD:
            return
        soon = [self._jobs[job_id] for job_id in self._wheel.soonest() if job_id in self._jobs][:AHEAD_LIMIT]
        await self._load_calendars(soon)
        room, rested = AHEAD_LIMIT, self._planning_s
        for number, job in enumerate(soon, 1):
            room -= runs_of(job)
            if room < 0:
                return
            # Otherwise another node is about to fire it, or its namespace has to wait.
            awaited = job.next_fire_at == next_at and not self._due.is_held(job.namespace, now)
            if awaited and job.id not in self._ahead and not isinstance(job.trigger, AfterTrigger):
                made = self._plan(job, next_at)
                if made is not None:
                    self._ahead[job.id] = made
            if number % AHEAD_SLICE == 0 or self._planning_s - rested >= AHEAD_S:
                rested = self._planning_s
                await self.clock.sleep(0)
                if self._woken or self._store.now() >= next_at:
                    return

    def _plan(self, job: Job, now: Instant) -> Plan | None:
        """Plan one job. If it cannot be planned, say because its calendar is gone, the others still fire."""
        ahead = self._ahead.pop(job.id, None)
        if ahead is not None and ahead.job is job and (made := as_of(ahead, now)) is not None:
            return made
        rate = self._budget.rate(job.namespace)
        throttled = (job.next_fire_at or now) <= self._throttled_until.get(job.namespace, 0)
        why = rate_reason(job.namespace, rate) if throttled else ""
        began = self.clock.monotonic()
        try:
            bounds = Bounds(PLAN_RUNS, oversize(job, rate) or "", why)
            return plan(job, now, self._calendars.get(job.namespace, {}), bounds)
        except Exception as error:
            log.error("job %s cannot be planned and does not fire until it is edited: %s", job.name, error)
            self._drop(job.id)
            return None
        finally:
            self._planning_s += self.clock.monotonic() - began

    async def _load_calendars(self, jobs: Sequence[Job]) -> None:
        for namespace in {job.namespace for job in jobs if job.policy.calendars} - self._calendars.keys():
            self._calendars[namespace] = await self._store.list_calendars(namespace)

    def _take_over(self, fired: Fired) -> None:
        if fired.job is None:
            self._drop(fired.job_id)
        else:
            self._put(fired.job)

    def _next_look(self) -> float:
        ready, now = self._ready(), self._store.now()
        next_at = min(self._lead_at(ready) if ready else self._wheel.next_at() or self._reload_at, self._reload_at)
        waiting_at = self._due.next_at(now)
        if waiting_at is not None:
            next_at = min(next_at, waiting_at)
        if not self._zones_at:
            return 0.0
        return min(max((next_at - now) / SECOND, 0.0), LONGEST_WAIT_S)


def _is_behind(job: Job, instant: Instant) -> bool:
    """Whether a job has yet to fire for an instant, or for one before it."""
    return job.paused_at is None and job.next_fire_at is not None and job.next_fire_at <= instant
