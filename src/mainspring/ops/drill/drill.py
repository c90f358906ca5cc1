"""Plays a disaster drill: checks, baseline, failure, fail-over, validation, integrity, fail-back.

Each line of the checklist passes or fails by itself, and the drill goes on: an operator wants to know everything that
does not work. Only a primary that must not be failed, because the standby cannot take over, ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from mainspring.adapter import Describes
from mainspring.broker import Place
from mainspring.core.instants import MINUTE, SECOND, Duration, Instant
from mainspring.core.model import DEFAULT
from mainspring.core.runs.retry import Retry
from mainspring.core.runs.status import subject_of_run
from mainspring.ops.drill.checklist import MOST_LOST, MOST_RECOVERY, Check, CheckFailed, Checklist, Report, need
from mainspring.ops.drill.site import Site, answers, fetch, join_hosts, replication, wait_until
from mainspring.ops.drill.traffic import Memory, Sample, Traffic, compare, count, describe, look_back, pick
from mainspring.process.urls import show_url
from mainspring.sdk.app import Mainspring

PRE, BASE, FAILURE, FAILOVER = "Before the drill", "Baseline", "Failure of the primary", "Fail-over"
VALID, INTEGRITY, BACK = "Validation", "Data integrity", "Fail-back"
COUNTED = ("jobs", "runs", "firings")
GOOD = 0.99
"""The share of jobs that has to be scheduled and executed."""
SAMPLED = 100
"""Runs that are submitted for the baseline, and compared afterwards."""
LATER = 3_600 * SECOND
LOOKED_BACK = 30 * MINUTE
"""The baseline of the fleet's own traffic is that of this time before the drill."""
HEALTHY_S = 120.0
REQUIRED_ALERTS = ("MainspringStoreUnreachable", "MainspringReplicationLagCritical", "MainspringNoLeader")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decides."""

    runs: int = 1_000
    """How many runs validate the standby."""
    quiet: Duration = 5 * MINUTE
    """How long the primary is watched after the fail-back."""
    on_call: str | None = None
    """The engineer who was notified."""
    prometheus: str | None = None
    """The Prometheus server that evaluates the alerts."""
    broker: str | None = None
    cache: str | None = None
    """The status cache of the fleet."""


class Drill:
    """One drill of one site."""

    def __init__(self, site: Site, options: Options, on_line: Callable[[Check], None] = lambda line: None) -> None:
        self._site, self._options = site, options
        self._list = Checklist(on_line)
        self._url = join_hosts(site.primary, site.standby)
        self._app = Mainspring(name="drill")
        # As flags: what the environment names is another store than the two of the drill.
        self._app.configure(store=self._url, broker=options.broker, cache=options.cache)
        self._traffic = Traffic(self._app, site.task, site.args)
        self._figures: dict[str, float] = {}
        self._failed_at = 0.0
        self._recovery_s: float | None = None
        self._lost: list[str] | None = None

    async def play(self, began_at: Instant) -> Report:
        """Play all of it. The primary is failed only if the standby could take over."""
        try:
            await self._check_before()
            if all(line.state != "fail" for line in self._list.lines):
                before = await self._take_baseline()
                if before is not None:
                    await self._fail_over(*before)
        finally:
            await self._traffic.end()
            await self._app.close()
        return self._report(began_at)

    async def _fail_over(self, memory: Memory, sample: Sample) -> None:
        self._traffic.begin()
        with self._list.line(BASE, "steady traffic flows"):
            await self._traffic.resumed_after(0.0, HEALTHY_S)
        await self._fail()
        await self._take_over()
        await self._validate(sample)
        await self._compare(memory)
        await self._fail_back()

    def _report(self, began_at: Instant) -> Report:
        accepted, lost = self._traffic.accepted, self._lost
        lost_s = None if lost is None else max((self._failed_at - accepted[run_id] for run_id in lost), default=0.0)
        return Report(
            began_at=began_at,
            primary=show_url(self._site.primary),
            standby=show_url(self._site.standby),
            lines=self._list.lines,
            recovery_s=self._recovery_s,
            lost_s=lost_s,
            lost=len(lost or ()),
            figures=self._figures,
        )

    async def _check_before(self) -> None:
        site, line = self._site, partial(self._list.line, PRE)
        with line("the standby answers and follows") as found:
            state = await asyncio.to_thread(replication, site.standby)
            need(state.in_recovery, "it is not in recovery: it is a primary of its own")
            need(state.streaming, "it does not receive the log of the primary")
            found.detail = "streaming"
        with line("replication lag below 5 minutes") as found:
            found.detail = await self._lag(site.standby)
        await self._check_services()
        with line("clients can be redirected") as found:
            found.detail = f"{await asyncio.to_thread(site.rehearse)}; {await self._reach_primary()}"
        await self._check_alerts()
        if self._options.on_call is None:
            self._list.skip(PRE, "the on-call engineer is notified", "name the engineer with --on-call")
        else:
            with line("the on-call engineer is notified") as found:
                found.detail = self._options.on_call
        with line("no critical run under way") as found:
            critical = (await count(site.primary, 0)).critical
            need(critical == 0, f"{critical} runs of priority 1 or 2 are being executed: wait, or drill later")

    async def _check_services(self) -> None:
        await self._check_broker(PRE, "the broker answers")
        if not self._site.servers:
            self._list.skip(PRE, "servers are healthy", "name them with --server")
        await self._check_servers(PRE)

    async def _check_broker(self, part: str, name: str) -> None:
        if self._options.broker is None:
            self._list.skip(part, name, "none is named: runs go through the store")
        else:
            with self._list.line(part, name) as line:
                line.detail = await self._ask_broker()

    async def _check_servers(self, part: str) -> None:
        for server in self._site.servers:
            with self._list.line(part, "servers are healthy") as line:
                line.detail = server
                await self._until_ready(server)

    async def _reach_primary(self) -> str:
        """Whether a URL with both hosts leads to the primary."""
        (row,) = await fetch(self._url, "SELECT pg_is_in_recovery() AS in_recovery")
        need(not row["in_recovery"], "a URL with both hosts leads to a server that follows")
        return "a URL with both hosts leads to the primary"

    async def _ask_broker(self) -> str:
        """Whether the broker takes a message, and its replicas are in sync. The message names no run, so workers ignore
        it."""
        from mainspring.operations.doctor import look_at_broker
        from mainspring.wiring import open_broker

        store = await self._app.open()
        broker = open_broker(self._app.settings, self._app.clock, store.metrics)
        assert broker is not None, "the caller has checked that there is one"
        try:
            found = await look_at_broker(broker, Place(self._app.settings.namespace, DEFAULT, DEFAULT))
            behind = (await broker.describe()).behind if isinstance(broker, Describes) else ""
            need(not behind, behind)
            return found
        finally:
            await broker.close()

    async def _check_alerts(self) -> None:
        name, url = "alerts are configured", self._options.prometheus
        if url is None:
            self._list.skip(PRE, name, "name a Prometheus with --prometheus")
            return
        with self._list.line(PRE, name) as line:
            answer = await _get(f"{url.rstrip('/')}/api/v1/rules")
            try:
                rules = {rule["name"] for group in answer["data"]["groups"] for rule in group["rules"]}
            except (KeyError, TypeError):
                raise CheckFailed(f"what answers at {url} is no Prometheus: correct --prometheus") from None
            missing = [alert for alert in REQUIRED_ALERTS if alert not in rules]
            remedy = "load deploy/prometheus/alerts.rules.yml of the source distribution into it"
            need(not missing, f"Prometheus does not know {', '.join(missing)}: {remedy}")
            line.detail = f"{len(rules)} rules"

    async def _take_baseline(self) -> tuple[Memory, Sample] | None:
        site, traffic, line = self._site, self._traffic, partial(self._list.line, BASE)
        memory = sample = None
        with line("the traffic of the last 30 minutes is recorded") as found:
            store = await self._app.open()
            recent = await look_back(site.primary, store.now() - LOOKED_BACK)
            rate, p99_ms = recent.runs * SECOND / LOOKED_BACK, recent.p99_us / 1_000
            self._figures |= {"before_rate": rate, "before_p99_ms": p99_ms, "before_success": recent.success}
            late = f"{p99_ms:.1f} ms late at p99"
            found.detail = f"{recent.runs} runs, {rate:.2f}/s, {late}, {100 * recent.success:.1f} % succeeded"
        with line(f"{SAMPLED} sample jobs are scheduled: traffic, latency, errors") as found:
            sample = await traffic.sample(SAMPLED)
            found.detail = self._note("baseline", sample)
            need(sample.success > GOOD, f"{sample.errors} of {sample.asked} were refused")
        with line("and executed: the success rate") as found:
            share = await traffic.executed(sample.ids if sample else [])
            found.detail = f"{100 * share:.1f} % succeeded"
            need(share > GOOD, found.detail)
        with line("active jobs, runs and states are recorded") as found:
            memory = await self._remember()
            found.detail = f"{memory.counts.jobs} jobs, {memory.counts.runs} runs; {describe(memory.states)}"
        with line("replication lag below 5 minutes") as found:
            found.detail = await self._lag(site.standby)
        return None if memory is None or sample is None else (memory, sample)

    async def _remember(self) -> Memory:
        """Leave a long, a later and a failed run behind, and write down what there is."""
        app, site, store = self._app, self._site, await self._app.open()
        long_run = await app.submit(site.task, site.long_args)
        later = await app.submit(site.task, site.args, delay=LATER / SECOND)
        failed = await app.submit(site.task, site.failing_args, retry=Retry(0))  # It fails now, not minutes later.
        deadline = time.monotonic() + HEALTHY_S
        while (await self._traffic.state(long_run.id), await self._traffic.state(failed.id)) != ("running", "failed"):
            need(time.monotonic() < deadline, "a long run does not start, or a failing one does not fail")
            await asyncio.sleep(0.1)
        at = store.now()
        counts, jobs = await count(site.primary, at), await self._traffic.jobs()
        states = await pick(site.primary, app.settings.namespace, at, counts.runs, SAMPLED)
        return Memory(at, counts, states, jobs, long_run.id, later.id, failed.id)

    async def _fail(self) -> None:
        site, line = self._site, partial(self._list.line, FAILURE)
        self._figures["lag_at_failure_s"] = (await asyncio.to_thread(replication, site.standby)).lag_s
        self._failed_at = time.monotonic()
        with line("the primary is stopped, with what runs beside it"):
            await asyncio.to_thread(site.fail)
        with line("health checks fail: the failure is detected") as found:
            await asyncio.to_thread(wait_until, lambda: not answers(site.primary), "the primary no longer answers")
            found.detail = f"{self._since_failure():.1f} s after the failure"
            self._figures["detection_s"] = self._since_failure()
        with line("no traffic reaches the primary"):
            need(not await asyncio.to_thread(answers, site.primary), "it still answers")

    async def _take_over(self) -> None:
        site, line = self._site, partial(self._list.line, FAILOVER)
        with line("the standby is promoted") as found:
            await asyncio.to_thread(site.promote)
            state = await asyncio.to_thread(replication, site.standby)
            need(not state.in_recovery, "it is still in recovery")
            found.detail = f"{self._since_failure():.1f} s after the failure"
            self._figures["promotion_s"] = self._since_failure()
        with line("clients are redirected") as found:
            found.detail = await asyncio.to_thread(site.redirect)
        promoted_at = time.monotonic()
        with line("traffic resumes: work is accepted") as found:
            await self._traffic.resumed_after(promoted_at, MOST_RECOVERY / SECOND)
            self._recovery_s = self._since_failure()
            found.detail = f"{self._recovery_s:.1f} s after the failure"
            self._figures["recovery_s"] = self._recovery_s
        await self._check_broker(FAILOVER, "the broker takes messages")
        await self._check_cache(promoted_at)
        await self._check_servers(FAILOVER)

    async def _check_cache(self, promoted_at: float) -> None:
        """Runs that were accepted since the promotion are read, and the cache knows the newest events again."""
        name, line = "the status cache is warm", partial(self._list.line, FAILOVER)
        with line("statuses are read") as found:
            ids = [run_id for run_id, sent in self._traffic.accepted.items() if sent > promoted_at][-SAMPLED:]
            known = await self._traffic.states(ids)
            found.detail = f"{len(known)} of {len(ids)} of the newest runs"
            need(len(known) == len(ids), found.detail)
        if self._options.cache is None:
            self._list.skip(FAILOVER, name, "none is named with --cache: statuses come from the store")
            return
        with line(name) as found:
            found.detail = await self._until_warm()

    async def _until_warm(self) -> str:
        """Wait until the cache follows: an emptied or late one begins anew, and learns of what happens from then on."""
        from mainspring.wiring import open_cache

        store = await self._app.open()
        cache = open_cache(self._app.settings, self._app.clock, store.metrics)
        assert cache is not None, "the caller has checked that there is one"
        deadline = time.monotonic() + HEALTHY_S
        try:
            while True:
                ids = list(self._traffic.accepted)[-SAMPLED:]
                looked = [await cache.read(subject_of_run(run_id)) for run_id in ids]
                known = sum(status is not None for _, status in looked)
                if known and all(mark is not None and not mark.late for mark, _ in looked):
                    return f"{known} of the {len(ids)} newest statuses, {self._since_failure():.1f} s after the failure"
                need(time.monotonic() < deadline, f"no leader has filled it {HEALTHY_S:g} s later")
                await asyncio.sleep(0.1)
        finally:
            await cache.close()

    async def _validate(self, before: Sample) -> None:
        traffic, runs, line = self._traffic, self._options.runs, partial(self._list.line, VALID)
        after = None
        with line("recovery time below 15 minutes") as found:
            need(self._recovery_s is not None, "work was never accepted again")
            found.detail = f"{self._recovery_s:.1f} s"
            need((self._recovery_s or 0.0) * SECOND < MOST_RECOVERY, found.detail)
        with line("recovery point below 5 minutes") as found:
            self._lost = await traffic.lost()
            age_s = max((self._failed_at - traffic.accepted[run_id] for run_id in self._lost), default=0.0)
            lag = f"the standby was {self._figures['lag_at_failure_s']:.1f} s behind"
            lost = f"{len(self._lost)} of {len(traffic.accepted)} acknowledged submissions lost"
            found.detail = f"{lost}, {age_s:.1f} s; {lag}"
            need(age_s * SECOND < MOST_LOST, found.detail)
        with line(f"{runs:,} jobs are scheduled, more than 99 %") as found:
            after = await traffic.sample(runs)
            found.detail = self._note("validation", after)
            need(after.success > GOOD, f"{after.errors} of {runs} were refused")
        with line("and executed, more than 99 %") as found:
            share = await traffic.executed(after.ids if after else [])
            found.detail = f"{100 * share:.2f} % succeeded"
            need(share > GOOD, found.detail)
        with line("traffic, latency and errors are back at the baseline") as found:
            need(after is not None, "nothing was measured")
            assert after is not None
            deadline = time.monotonic() + HEALTHY_S
            while not after.is_back(before):
                # The standby fills its caches, and recovers the runs of the failed primary's workers.
                need(time.monotonic() < deadline, f"{after.beside(before)}, {HEALTHY_S:g} s later")
                await asyncio.sleep(1)
                after = await traffic.sample(SAMPLED)
            found.detail = after.beside(before)

    async def _compare(self, memory: Memory) -> None:
        traffic, line = self._traffic, partial(self._list.line, INTEGRITY)
        with line("numbers of jobs, runs and firings match, within the window") as found:
            now, was = await count(self._site.standby, memory.at), memory.counts
            found.detail = ", ".join(f"{part} {getattr(was, part)} → {getattr(now, part)}" for part in COUNTED)
            need((now.jobs, now.runs >= was.runs, now.firings >= was.firings) == (was.jobs, True, True), found.detail)
        with line("all jobs are accessible") as found:
            names = set(await traffic.jobs())
            missing = [name for name in memory.jobs if name not in names]
            need(not missing, f"missing: {', '.join(missing)}")
            found.detail = f"{len(memory.jobs)} jobs"
        with line(f"{len(memory.states)} random runs are accessible, in the state of before") as found:
            after = await traffic.states(list(memory.states))
            missing_runs, changed = compare(memory.states, after)
            found.detail = f"{missing_runs} missing, {changed} in another state"
            need(missing_runs + changed == 0, found.detail)
        with line("a scheduled run still waits for its time"):
            state = await traffic.state(memory.due_later)
            need(state == "pending", f"it is {state}")
        with line("a failed run is still failed"):
            state = await traffic.state(memory.failed)
            need(state == "failed", f"it is {state}")
        with line("a long run goes on, or ran to its end") as found:
            state = found.detail = await traffic.state(memory.long_run) or "missing"
            need(state in ("running", "pending", "succeeded"), f"it is {state}")

    async def _fail_back(self) -> None:
        site, traffic, line = self._site, self._traffic, partial(self._list.line, BACK)
        with line("the first primary runs again, and follows") as found:
            await asyncio.to_thread(site.restore)
            found.detail = f"{self._since_failure():.1f} s after the failure"
        with line("it has caught up: lag below 5 minutes") as found:
            found.detail = await self._lag(site.primary)
        with line("it is the primary again"):
            await asyncio.to_thread(site.fail_back)
            state = await asyncio.to_thread(replication, site.primary)
            need(not state.in_recovery, "it is still in recovery")
        back_at = time.monotonic()
        with line("traffic resumes there") as found:
            await traffic.resumed_after(back_at, MOST_RECOVERY / SECOND)
            found.detail = f"{time.monotonic() - back_at:.1f} s after the switch"
            self._figures["fail_back_s"] = time.monotonic() - back_at
        quiet_s = self._options.quiet / SECOND
        with line(f"{quiet_s:g} quiet seconds") as found:
            resumed = time.monotonic()
            await asyncio.sleep(quiet_s)
            errors = sum(sent > resumed for sent in traffic.errors)
            found.detail = f"{errors} errors"
            need(errors == 0, found.detail)
        with line("nothing that was acknowledged during the drill is lost") as found:
            await traffic.end()
            before = self._lost or []
            lost = [run_id for run_id in await traffic.lost() if run_id not in before]
            self._lost = [*before, *lost]
            found.detail = f"{len(traffic.accepted)} steady submissions, {len(lost)} lost in the fail-back"
            need(not lost, found.detail)

    async def _lag(self, standby: str) -> str:
        lag_s = (await asyncio.to_thread(replication, standby)).lag_s
        need(lag_s * SECOND < MOST_LOST, f"{lag_s:.1f} s")
        return f"{lag_s:.1f} s"

    async def _until_ready(self, server: str) -> None:
        deadline, said = time.monotonic() + HEALTHY_S, "no answer"
        while time.monotonic() < deadline:
            try:
                answer = await _get(f"{server.rstrip('/')}/health/ready")
                if (said := str(answer.get("status", "what answers is no Mainspring"))) == "ready":
                    return
            except (CheckFailed, OSError):
                pass
            await asyncio.sleep(0.1)
        raise CheckFailed(f"{server} is not ready after {HEALTHY_S:g} s: {said}")

    def _since_failure(self) -> float:
        return time.monotonic() - self._failed_at

    def _note(self, name: str, sample: Sample) -> str:
        self._figures |= {f"{name}_p50_ms": sample.p50_ms, f"{name}_p99_ms": sample.p99_ms, f"{name}_rate": sample.rate}
        return f"{sample.rate:.0f}/s, p50 {sample.p50_ms:.1f} ms, p99 {sample.p99_ms:.1f} ms, {sample.errors} errors"


async def _get(url: str) -> Mapping[str, Any]:
    import httpx

    try:
        async with httpx.AsyncClient(timeout=5) as client:
            answer = (await client.get(url)).json()
    except (httpx.HTTPError, ValueError) as error:
        raise CheckFailed(f"{url}: {error}") from None
    if not isinstance(answer, dict):
        raise CheckFailed(f"{url}: what answers is not what was asked for")
    return answer
