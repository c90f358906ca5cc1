"""`mainspring cost`: what the fleet costs in a month, by component and by tag, and what would save most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple

import click
import msgspec

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, is_served, open_app, with_app, with_scheduler
from mainspring.cli.output.screen import Cell, Screen, Value
from mainspring.cli.output.times import seconds_of
from mainspring.cli.session import Session
from mainspring.core.instants import SECOND, parse_duration, to_datetime
from mainspring.errors import InvalidInput
from mainspring.operations import records
from mainspring.ops.cost.bill import (
    HOURS_PER_MONTH,
    Bill,
    Measured,
    Savings,
    Share,
    Usage,
    charge,
    price,
    save,
)
from mainspring.ops.cost.prices import DEFAULT_PRICES, PriceList, read_prices
from mainspring.ops.cost.reference import Finding, findings, reference_bill, reference_savings
from mainspring.sdk.app import Mainspring
from mainspring.wiring import database_status

By = Literal["tag", "queue", "task", "job"]
_NAMES: dict[By, Callable[[records.Run], tuple[str, ...]]] = {
    "tag": lambda run: tuple(run.tags),
    "queue": lambda run: (run.queue,),
    "task": lambda run: (run.task,),
    "job": lambda run: () if run.job is None else (run.job,),
}


class Kept(NamedTuple):
    """What the store keeps: runs of the namespace, and bytes of all."""

    rows: int = 0
    bytes: int = 0


NOTHING = Kept()


class Report(msgspec.Struct, frozen=True):
    """What `mainspring cost` answers."""

    measured_s: float
    """How long the measured period is; the month is scaled from it."""
    measured_runs: int
    usage: Usage
    bill: Bill
    savings: Savings
    shares: list[Share]


class Reference(msgspec.Struct, frozen=True):
    """What `mainspring cost --reference` answers."""

    bill: Bill
    savings: Savings
    findings: list[Finding]


@click.command(cls=RemoteVerb)
@click.option("--since", default="24h", show_default=True, metavar="DURATION", help="Measure this long, until now.")
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Prices (TOML), as below.")
@click.option("--by", type=click.Choice(tuple(_NAMES)), default="tag", show_default=True, help="What to charge by.")
@click.option("--schedulers", type=click.IntRange(1), default=1, show_default=True, help="How many servers run.")
@click.option("-n", "--limit", type=click.IntRange(1), default=10_000, show_default=True, help="Read this many runs.")
@click.option("--prometheus", metavar="URL", help="Ask it for CPU time, of which the store knows nothing.")
@click.option("--reference", is_flag=True, help="Price the worked example, and check its sums.")
@click.pass_obj
def cost(
    session: Session,
    since: str,
    prices: Path | None,
    by: By,
    schedulers: int,
    limit: int,
    prometheus: str | None,
    reference: bool,
) -> None:
    """Show what the fleet costs in a month of 30 days: by component, for a run, for a million, by tag.
    It also names what would save most.

    Runs and workers of the last 24 hours are measured and scaled to a month. Where more than --limit runs ended, the
    newest are measured and the period is as long as they reach back.

    \b
    A file of prices has a table per component, in dollars by unit, and one per saving:
      [components.workers]
      unit = "worker_hour"  # or busy_hour, cpu_hour, million_runs, scheduler_month, million_rows, gigabyte_month, month
      price = 0.096
      [savings.spot]
      component = "workers"
      share = 0.6
    """
    screen = Screen(session)
    if reference:
        example = Reference(reference_bill(), reference_savings(), findings())
        screen.answer(example, lambda: _draw_reference(screen, example))
        return
    chosen = DEFAULT_PRICES if prices is None else read_prices(_read(prices), str(prices))
    since_s = parse_duration(since, "since") / SECOND
    start = datetime.now(UTC) - timedelta(seconds=since_s)
    cpu = Decimal(0) if prometheus is None else _cpu_share(prometheus, since_s)
    kept = _look_at_store(session, chosen)

    async def look(scheduler: Backend) -> Report:
        found = scheduler.runs.list(states=("succeeded", "failed", "cancelled"), since=start, limit=limit)
        runs = [run async for run in found]
        now = to_datetime(scheduler.now())
        begin = min((run.created_at for run in runs), default=start) if len(runs) == limit else start
        workers = await scheduler.workers.list()
        return measure(runs, workers, max(begin, start), now, chosen, schedulers, by, cpu, kept)

    report = with_scheduler(session, look)
    screen.answer(report, lambda: _draw(screen, report, by, cut=report.measured_runs == limit))
    if prices is None:
        screen.hint("These prices fit a fleet of 3 billion runs a month: name your own with --prices (see --help).")


def _look_at_store(session: Session, chosen: PriceList) -> Kept:
    """How many runs the store keeps, and its size. A server does not say: it is asked for neither."""
    app = open_app(session)
    if is_served(session, app):
        for each in chosen.prices:
            if each.unit in ("million_rows", "gigabyte_month"):
                problem = f"prices {each.component} by {each.unit}, which a server does not say"
                raise InvalidInput("prices", each.component, problem, "name the database itself with --store")
        return NOTHING

    async def count(app: Mainspring) -> int:
        return sum((await (await app.open()).count_runs(app.settings.namespace)).values())

    return Kept(with_app(session, count, app=app), database_status(app.settings).size)


def _cpu_share(url: str, since_s: float) -> Decimal:
    """How many processors the fleet used on average, as Prometheus says."""
    import httpx

    query = f"sum(rate(mainspring_process_cpu_seconds_total[{max(int(since_s), 60)}s]))"
    try:
        answer = httpx.get(f"{url.rstrip('/')}/api/v1/query", params={"query": query}, timeout=30).json()
        found = answer["data"]["result"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise click.UsageError(f"Prometheus at '{url}' does not answer: {error}") from None
    if not found:
        raise click.UsageError(
            f"Prometheus at '{url}' knows no mainspring_process_cpu_seconds_total: let it scrape /metrics everywhere"
        )
    return Decimal(found[0]["value"][1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"Cannot read the prices in '{path}': {error}") from None


def measure(
    runs: Sequence[records.Run],
    workers: Sequence[records.Worker],
    begin: datetime,
    now: datetime,
    chosen: PriceList,
    schedulers: int,
    by: By,
    cpu: Decimal = Decimal(0),
    kept: Kept = NOTHING,
) -> Report:
    """Scale what was measured to a month, and price it. `cpu` is the number of processors that are in use."""
    length_s = max((now - begin).total_seconds(), 1.0)
    scale = Decimal(HOURS_PER_MONTH * 3600) / Decimal(str(length_s))
    measured = [Measured(_NAMES[by](run), seconds_of(run)) for run in runs]
    alive_s = sum(_overlap_s(worker, begin, now) for worker in workers)
    usage = Usage(
        runs=len(runs) * scale,
        busy_hours=Decimal(str(sum(each.busy_s for each in measured))) / 3600 * scale,
        worker_hours=Decimal(str(alive_s)) / 3600 * scale,
        cpu_hours=cpu * HOURS_PER_MONTH,
        schedulers=schedulers,
        rows=kept.rows,
        bytes=kept.bytes,
    )
    bill = price(chosen.prices, usage)
    shares = charge(bill, chosen.prices, measured, scale)
    return Report(length_s, len(runs), usage, bill, save(bill, chosen.savings), shares)


def _overlap_s(worker: records.Worker, begin: datetime, now: datetime) -> float:
    """How long a worker lived within the period; one that ended lived until its last heartbeat."""
    end = now if worker.state in ("active", "draining") else worker.heartbeat_at
    return max((min(end, now) - max(worker.started_at, begin)).total_seconds(), 0.0)


def _draw(screen: Screen, report: Report, by: By, cut: bool) -> None:
    hours = report.measured_s / 3600
    screen.line(f"{report.measured_runs:,} runs of the last {hours:.1f} hours, scaled to a month of 30 days.")
    if cut:
        screen.hint("There are more runs than --limit: the period is as long as the newest of them reach back.")
    _draw_bill(screen, report.bill)
    _draw_savings(screen, report.savings)
    if report.shares:
        screen.title(f"By {by}")
        rows = [
            [share.name, f"{share.runs:,.0f}", f"{share.busy_hours:,.2f}", _money(share.amount)]
            for share in report.shares
        ]
        screen.table((by.upper(), "RUNS", "HOURS", "A MONTH"), rows, cut=(by.upper(),))


def _draw_bill(screen: Screen, bill: Bill) -> None:
    screen.title("By component")
    rows = [[item.component, _money(item.amount), f"{item.share * 100:.1f} %"] for item in bill.items]
    screen.table(("COMPONENT", "A MONTH", "SHARE"), [*rows, ["total", _money(bill.total), "100 %"]])
    if bill.per_run is not None and bill.per_million is not None:
        screen.line(f"${bill.per_run:.8f} for a run, {_money(bill.per_million)} for a million.")


def _draw_savings(screen: Screen, savings: Savings) -> None:
    if not savings.items:
        return
    screen.title("Savings, the largest first")
    rows = [
        [each.name, f"{each.share:.0%} of {each.component}", _money(each.alone), _money(each.in_turn), each.trade_off]
        for each in savings.items
    ]
    screen.table(("SAVING", "OF", "ALONE", "IN TURN", "TRADE-OFF"), rows, fold=("TRADE-OFF",), spare=("TRADE-OFF",))
    screen.line(f"Together {_money(savings.total)} a month; {_money(savings.left)} remain.")
    if savings.sum_alone != savings.total:
        screen.hint(f"Added up alone they would be {_money(savings.sum_alone)}: savings of one component overlap.")


def _draw_reference(screen: Screen, example: Reference) -> None:
    screen.line("The worked example: 3 billion runs a month, 15 schedulers.")
    _draw_bill(screen, example.bill)
    _draw_savings(screen, example.savings)
    screen.title("Its published sums, computed again")
    rows: list[list[Value]] = [
        [
            Cell("holds", "green") if each.holds else Cell("differs", "yellow"),
            each.what,
            _plain(each.stated),
            _plain(each.computed),
            each.note,
        ]
        for each in example.findings
    ]
    screen.table(("", "FIGURE", "PUBLISHED", "COMPUTED", "NOTE"), rows, fold=("NOTE",), cut=("FIGURE",))


def _money(amount: Decimal) -> str:
    return f"${amount:,.2f}"


def _plain(amount: Decimal) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount.normalize():f}"
