"""`mainspring advise`: which coordination, queue, store and how many workers fit, why, and what would change it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

import click
import msgspec

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session, is_attended
from mainspring.core.instants import MILLISECOND, SECOND, parse_duration, to_datetime
from mainspring.errors import InvalidInput, NotAllowed
from mainspring.operations import records
from mainspring.ops.advice.advise import DAY_S, INFRASTRUCTURE, TREE, Advice, Infrastructure, Situation, advise
from mainspring.ops.advice.matrices import APPROACHES, ELECTORS, QUESTIONS, QUEUES

MEASURED_RUNS = 10_000
"""This many of the newest runs say how many there are in a day, and how long they take."""
LATENCY = "1m"
_SERVERS: Mapping[str, Infrastructure] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "redlock": "redis",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "kafka": "kafka",
    "sqs": "aws",
    "etcd": "etcd",
    "zookeeper": "zookeeper",
    "kubernetes": "kubernetes",
}
"""What the scheme of a URL says about the servers that are there."""
_COMPLEX = re.compile(r"(^|[\s,])L|\dL\b|\d*W\b|#")
"""What a plain cron expression does not have: last days, nearest weekdays, the second Friday."""


class Answer(msgspec.Struct, frozen=True):
    """What `mainspring advise` answers."""

    situation: Situation
    advice: Advice


@click.command("advise", cls=RemoteVerb)
@click.option("--runs-per-day", type=click.IntRange(0), metavar="N", help="How many runs there are in a day.")
@click.option("--instances", type=click.IntRange(1), metavar="N", help="How many machines or pods take part.")
@click.option("--latency", metavar="DURATION", help="How late a run may start.  [default: 1m]")
@click.option("--run-time", metavar="DURATION", help="How long a run takes.  [default: 1s]")
@click.option("--peak", type=click.FloatRange(1), default=10, show_default=True, help="Busiest rate over the mean.")
@click.option("--complex", "complicated", is_flag=True, help="Schedules use calendars, L, W, # or follow each other.")
@click.option("--priorities", is_flag=True, help="Some runs go before others.")
@click.option("--have", multiple=True, type=click.Choice(INFRASTRUCTURE), help="What is there already; repeatable.")
@click.option("--concurrency", type=click.IntRange(1), default=10, show_default=True, help="Runs at once in a worker.")
@click.option("--measured", is_flag=True, help="Read what is missing from the running system.")
@click.option("--matrices", is_flag=True, help="Show the comparisons that the advice rests on.")
@click.pass_obj
def advise_command(
    session: Session,
    runs_per_day: int | None,
    instances: int | None,
    latency: str | None,
    run_time: str | None,
    peak: float,
    complicated: bool,
    priorities: bool,
    have: tuple[Infrastructure, ...],
    concurrency: int,
    measured: bool,
    matrices: bool,
) -> None:
    """Say which coordination, queue, store and how many workers fit: with the reasons, the settings, and what would
    change the answer.

    \b
    mainspring advise --runs-per-day 50000 --instances 3 --have redis
    mainspring advise --measured
    """
    screen = Screen(session)
    if matrices:
        tree = [{"when": branch.when, "pattern": branch.pattern} for branch in TREE]
        tables = {
            "tree": tree,
            "approaches": APPROACHES,
            "queues": QUEUES,
            "electors": ELECTORS,
            "questions": QUESTIONS,
        }
        screen.answer(tables, lambda: _draw_matrices(screen))
        return
    situation = Situation(
        runs_per_day=runs_per_day or 0,
        instances=instances or 1,
        latency_ms=parse_duration(latency or LATENCY, "latency") // MILLISECOND,
        run_s=parse_duration(run_time or "1s", "run-time") / SECOND,
        peak=peak,
        complex_schedules=complicated,
        priorities=priorities,
        have=have,
        concurrency=concurrency,
    )
    if measured:
        seen = with_scheduler(session, lambda scheduler: _measure(scheduler, situation))
        given = {
            "runs_per_day": runs_per_day,
            "instances": instances,
            "latency_ms": latency and situation.latency_ms,
            "run_s": run_time and situation.run_s,
        }
        situation = msgspec.structs.replace(seen, **{key: value for key, value in given.items() if value is not None})
    elif runs_per_day is None:
        situation = _ask(situation, instances, latency)
    answer = Answer(situation, advise(situation))
    screen.answer(answer, lambda: _draw(screen, answer))


def _ask(situation: Situation, instances: int | None, latency: str | None) -> Situation:
    """Ask for what the command line does not say."""
    if not is_attended():
        raise click.UsageError("Say how many runs there are with --runs-per-day, or read it with --measured.")
    return msgspec.structs.replace(
        situation,
        runs_per_day=click.prompt("How many runs are there in a day?", type=click.IntRange(0), err=True),
        instances=instances or click.prompt("On how many machines?", type=click.IntRange(1), default=1, err=True),
        latency_ms=situation.latency_ms
        if latency
        else click.prompt("How late may a run start?", default=LATENCY, value_proc=_read_latency, err=True),
        complex_schedules=situation.complex_schedules
        or click.confirm("Do schedules use calendars, L, W or #, or follow each other?", err=True),
        priorities=situation.priorities or click.confirm("Do some runs go before others?", err=True),
        have=situation.have
        or click.prompt(f"What is there already, of {', '.join(INFRASTRUCTURE)}?", default="", show_default=False,
                        value_proc=_read_infrastructure, err=True),
    )  # fmt: skip


def _read_latency(text: str) -> int:
    try:
        return parse_duration(text, "latency") // MILLISECOND
    except InvalidInput as error:
        raise click.UsageError(str(error)) from None


def _read_infrastructure(text: str) -> tuple[Infrastructure, ...]:
    words = text.replace(",", " ").split()
    for word in words:
        if word not in INFRASTRUCTURE:
            raise click.UsageError(f"'{word}' is none of {', '.join(INFRASTRUCTURE)}; leave it empty if there is none.")
    return tuple(each for each in INFRASTRUCTURE if each in words)


async def _measure(scheduler: Backend, situation: Situation) -> Situation:
    """What the running system does: a day's runs, how long they take, its hosts, the words of its schedules. Its
    settings say which servers are there, and what its shortest service level is."""
    now = to_datetime(scheduler.now())
    found = scheduler.runs.list(since=now - timedelta(days=1), limit=MEASURED_RUNS)
    runs = [run async for run in found]
    length_s = (now - min(run.created_at for run in runs)).total_seconds() if len(runs) == MEASURED_RUNS else DAY_S
    took = [(run.finished_at - run.started_at).total_seconds() for run in runs if run.started_at and run.finished_at]
    workers = [each for each in await scheduler.workers.list() if each.state in ("active", "draining")]
    settings = await _settings(scheduler)
    complicated = [job.name async for job in scheduler.jobs.list() if _is_complex(job)]
    return msgspec.structs.replace(
        situation,
        runs_per_day=round(len(runs) * DAY_S / max(length_s, 1.0)),
        instances=max(len({each.host for each in workers}), 1),
        run_s=sum(took) / len(took) if took else situation.run_s,
        complex_schedules=situation.complex_schedules or bool(complicated),
        priorities=situation.priorities or len({run.priority for run in runs}) > 1,
        latency_ms=_service_level_ms(settings.get("service_levels", "")) or situation.latency_ms,
        have=_infrastructure(settings, situation.have),
    )


async def _settings(scheduler: Backend) -> dict[str, str]:
    """The settings in effect, by name; none where the token does not allow to read them."""
    try:
        return {each.name: each.value for each in (await scheduler.settings()).items}
    except NotAllowed:
        click.echo("The token may not read settings: say what is there with --have, and --latency.", err=True)
        return {}


def _service_level_ms(levels: str) -> int | None:
    """The shortest of service levels as they are written: 1=1m,2=5m."""
    durations = [parse_duration(level.partition("=")[2], "service_levels") for level in levels.split(",") if level]
    return min(durations) // MILLISECOND if durations else None


def _infrastructure(settings: Mapping[str, str], given: Sequence[Infrastructure]) -> tuple[Infrastructure, ...]:
    """What is there: what was given, and the servers that settings name by their URLs."""
    urls = [settings.get(name) or "" for name in ("store", "broker", "cache", "lease", "sink")]
    found = {_SERVERS.get(url.partition("://")[0]) for each in urls for url in each.split()}
    return tuple(each for each in INFRASTRUCTURE if each in given or each in found)


def _is_complex(job: records.Job) -> bool:
    """Whether a job asks for more than a plain cron expression or interval."""
    waits = job.policy.get("calendars") or job.policy.get("dependencies")
    return bool(waits) or "after" in job.trigger or bool(_COMPLEX.search(str(job.trigger.get("cron", ""))))


def _draw(screen: Screen, answer: Answer) -> None:
    advice, situation = answer.advice, answer.situation
    screen.line(f"{advice.approach.known_as.capitalize()}.", "bold")
    screen.facts(
        [
            ("for", f"{situation.runs_per_day:,} runs a day on {situation.instances} instance(s)"),
            ("coordination", advice.coordination),
            ("elector", f"{advice.elector.name}, failover within {advice.elector.failover_s:g} s"),
            ("queue", "none: workers claim from the store" if advice.queue is None else advice.queue.name),
            ("store", advice.store),
            ("workers", f"{advice.workers:,} with {situation.concurrency} runs at once"),
        ]
    )
    screen.items("Why", advice.reasons)
    screen.title("Settings")
    for name, value in advice.settings.items():
        screen.line(f"  {name}={value}")
    screen.items("What would change it", [f"{each.if_}: {each.then}" for each in advice.changes])


def _draw_matrices(screen: Screen) -> None:
    screen.title("Decision tree: the first that applies")
    known_as = {each.pattern: each.known_as for each in APPROACHES}
    screen.table(("WHEN", "THEN"), [[branch.when, known_as[branch.pattern]] for branch in TREE])
    screen.title("Approaches")
    columns = ("APPROACH", "SET-UP", "OVERHEAD", "SCALES", "NEEDS", "BEST FOR")
    screen.table(
        columns,
        [[each.known_as, each.setup, each.overhead, each.scales, each.needs, each.best_for] for each in APPROACHES],
        fold=("APPROACH", "OVERHEAD", "NEEDS", "BEST FOR"),
    )
    screen.title("Queues")
    screen.table(
        ("QUEUE", "A SECOND", "LATENCY", "ORDER", "KEPT", "SET-UP", "COST", "BEST FOR"),
        [
            [each.name, f"{each.per_second:,}", f"{each.latency_ms} ms", each.ordering, each.retention, each.setup,
             each.cost, each.best_for]
            for each in QUEUES
        ],
        fold=("BEST FOR",),
        spare=("KEPT", "COST"),
    )  # fmt: skip
    screen.title("Electors")
    screen.table(
        ("ELECTOR", "FAILOVER", "SET-UP", "COMPLEXITY"),
        [[each.name, f"within {each.failover_s:g} s", each.setup, each.complexity] for each in ELECTORS],
    )
    screen.title("Questions")
    screen.table(
        ("QUESTION", "EITHER", "OR"), [[each.question, each.first, each.second] for each in QUESTIONS],
        fold=("EITHER", "OR"),
    )  # fmt: skip
