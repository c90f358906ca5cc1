"""`mainspring scale`: the local autoscaler, and its simulation."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from mainspring.cli.lazy import Verb, stack
from mainspring.cli.opening import check_made, open_app
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.instants import HOUR, MINUTE, SECOND, parse_duration
from mainspring.core.load.scaling import ScalingPolicy, check_policy

if TYPE_CHECKING:
    from mainspring.ops.scaling.autoscaler import Autoscaler, Step
    from mainspring.ops.scaling.fleet import Fleet
    from mainspring.ops.scaling.simulation import Day, Sample
    from mainspring.sdk.app import Mainspring

_OWN_OPTIONS = ("--reload", "--health-port")
_ROWS = 10
_BLOCKS = " ▁▂▃▄▅▆▇█"


class Words(TypedDict):
    """The values of the options."""

    minimum: int
    maximum: int
    depth_per_worker: int
    utilisation: int
    oldest_due: str | None
    up_percent: int
    up_window: str
    down_workers: int
    down_window: str
    interval: str
    fleet: str | None
    log: Path | None
    leave: bool
    simulated: bool
    csv: bool
    peak: float
    run_time: str
    concurrency: int


def _option(
    flag: str, kind: click.IntRange | click.FloatRange, default: object, text: str, *names: str
) -> Callable[[Any], Any]:
    return click.option(flag, *names, type=kind, default=default, show_default=True, help=text)


def _duration(flag: str, default: str, text: str) -> Callable[[Any], Any]:
    return click.option(flag, metavar="DURATION", default=default, show_default=True, help=text)


_PERCENT, _FROM_0, _FROM_1 = click.IntRange(0, 100), click.IntRange(0), click.IntRange(1)
policy_options = stack(
    _option("--min", _FROM_0, 1, "The fewest workers.", "minimum"),
    _option("--max", _FROM_1, 10, "The most workers.", "maximum"),
    _option("--depth-per-worker", _FROM_0, 1_000, "Due runs that one worker may have before it; 0: no such target."),
    _option("--utilisation", _PERCENT, 70, "Percentage of slots that should be busy; 0: no such target."),
    click.option("--oldest-due", metavar="DURATION", help="How long a due run may wait; no such target unless given."),
    _option("--up-percent", _FROM_1, 50, "The most growth within a minute, in percent."),
    _duration("--up-window", "60s", "How long load asks before growth."),
    _option("--down-workers", _FROM_1, 2, "The most workers drained within two minutes."),
    _duration("--down-window", "300s", "How long the load must be less before workers drain."),
)
simulation_options = stack(
    click.option("--simulate", "simulated", is_flag=True, help="Start nothing: draw a day of load and its workers."),
    click.option("--csv", is_flag=True, help="Print the simulated day as CSV, one line per minute."),
    _option("--peak", click.FloatRange(0.0, min_open=True), 300.0, "Simulated runs each second in the busiest hour."),
    _duration("--run-time", "2s", "Simulated time of a run."),
    _option("--concurrency", _FROM_1, 10, "Simulated runs at once of each worker."),
)


@click.command(cls=Verb)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- worker APP ...]")
@policy_options
@_duration("--interval", "5s", "How often to look at the load.")
@click.option("--fleet", metavar="NAME", help="The name in its workers' names; that of APP unless given.")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Append the output of workers to a file.")
@click.option("--leave", is_flag=True, help="When stopped, leave the workers running for the next `scale`.")
@simulation_options
@click.pass_obj
def scale(session: Session, argv: Sequence[str], **words: Unpack[Words]) -> int:
    """Run as many worker processes on this host as the load needs.

    \b
    mainspring scale --min 2 --max 20 -- worker work.py --concurrency 10
    mainspring scale --min 10 --max 100 --simulate

    What follows `--` is the command of one worker. Ctrl-C or SIGTERM drains all workers, and waits for them; a second
    one ends the wait. If this process dies, its workers go on, and the next `scale` of the same fleet adopts them.
    """
    policy = _read_policy(words)
    if words["simulated"] or words["csv"]:
        _simulate(session, policy, words)
        return 0
    if not argv or argv[0] != "worker":
        raise click.UsageError("Say what to run: `mainspring scale --min 2 --max 20 -- worker APP`.")
    return _scale(session, policy, words, argv[1:])


def _read_policy(words: Words) -> ScalingPolicy:
    oldest = words["oldest_due"]
    return check_policy(
        ScalingPolicy(
            minimum=words["minimum"],
            maximum=words["maximum"],
            depth_per_worker=words["depth_per_worker"] or None,
            utilisation_percent=words["utilisation"] or None,
            oldest_due=None if oldest is None else parse_duration(oldest, "oldest-due"),
            up_percent=words["up_percent"],
            up_window=parse_duration(words["up_window"], "up-window"),
            down_workers=words["down_workers"],
            down_window=parse_duration(words["down_window"], "down-window"),
        )
    )


def _scale(session: Session, policy: ScalingPolicy, words: Words, argv: Sequence[str]) -> int:
    app, ref = _open_worker_app(session, argv)
    check_made(app)
    screen = Screen(session)
    fleet = _make_fleet(session, words, argv, words["fleet"] or _name_of(ref))

    async def run() -> None:
        autoscaler = _make_autoscaler(app, fleet, policy, words, screen)
        stop, hurry = asyncio.Event(), asyncio.Event()
        _hear_signals(stop, hurry)
        try:
            await autoscaler.run(stop)
            if not words["leave"]:
                screen.hint("Draining the workers; Ctrl-C again leaves them to finish alone.")
                await autoscaler.drain_all(hurry)
        finally:
            await autoscaler.release()
            await app.close()

    asyncio.run(run())
    screen.hint("Stopped.")
    return 0


def _open_worker_app(session: Session, argv: Sequence[str]) -> tuple[Mainspring, str | None]:
    """The app of the workers, under the settings that the workers will have; the command is checked by this."""
    from mainspring.cli.processes.up import worker

    for option in _OWN_OPTIONS:
        if any(word == option or word.startswith(f"{option}=") for word in argv):
            raise click.UsageError(f"{option} is for a single worker: `scale` runs several with the same words.")
    own = Session(store=session.store, namespace=session.namespace)
    given: dict[str, Any] = worker.make_context("mainspring worker", list(argv), obj=own).params
    flags = {name: given[name] or None for name in ("concurrency", "pools", "queues", "regions", "broker")}
    return open_app(own, given["ref"], **flags), given["ref"]


def _name_of(ref: str | None) -> str:
    """The name of a fleet, from its app: `work.py` and `work:app` are `work`."""
    if ref is None:
        return "commands"
    stem = Path(ref).stem if ref.endswith(".py") else ref.partition(":")[0]
    return re.sub(r"[^a-z0-9_-]", "-", stem.lower())[:40] or "workers"


def _make_fleet(session: Session, words: Words, argv: Sequence[str], name: str) -> Fleet:
    from mainspring.ops.scaling.fleet import Fleet
    from mainspring.process.secrets import environment

    # Not as flags: a command line is visible to every user of the host, and a URL may have a password in it.
    own = {"FLEET": name, "STORE": session.store, "NAMESPACE": session.namespace}
    environ = {
        **environment(),
        **{f"MAINSPRING_{variable}": value for variable, value in own.items() if value is not None},
    }
    command = [sys.executable, "-m", "mainspring", "worker", *argv]
    return Fleet(name, socket.gethostname(), command, environ, words["log"])


def _make_autoscaler(app: Mainspring, fleet: Fleet, policy: ScalingPolicy, words: Words, screen: Screen) -> Autoscaler:
    from mainspring.operations.operations import Operations
    from mainspring.ops.scaling.autoscaler import Autoscaler, Scope
    from mainspring.wiring import name_process

    settings = app.settings
    return Autoscaler(
        app,
        Operations(app, by="scale").workers,
        fleet,
        policy,
        Scope(settings.namespace, settings.queues or app.queues(), settings.regions),
        owner=name_process(SystemRandom()),
        interval_s=parse_duration(words["interval"], "interval") / SECOND,
        on_step=_printer(screen),
        on_trouble=screen.warn,
    )


def _hear_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    def hear() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, hear)


def _printer(screen: Screen) -> Callable[[Step], None]:
    """Prints the first step, and each that changes something."""
    first = True

    def show(step: Step) -> None:
        nonlocal first
        if not first and step.before == step.after:
            return
        if screen.session.as_json:
            click.echo(screen.encode(step._asdict()))
        elif step.before != step.after:
            screen.hint(f"{step.before} → {step.after} workers: {step.reason}")
        else:
            screen.hint(f"{step.after} workers: {step.reason}")
        first = False

    return show


def _simulate(session: Session, policy: ScalingPolicy, words: Words) -> None:
    from mainspring.ops.scaling.simulation import Day, simulate_day

    day = Day(
        peak_per_s=words["peak"],
        run_time=max(parse_duration(words["run_time"], "run-time"), 1),
        concurrency=words["concurrency"],
    )
    samples = list(simulate_day(policy, day))
    screen = Screen(session)
    if words["csv"]:
        for line in _csv(samples):
            click.echo(line)
        return
    screen.answer([_row(each) for each in _each_minute(samples)], lambda: _draw(screen, samples, policy, day))


def _each_minute(samples: Sequence[Sample]) -> list[Sample]:
    return [each for each in samples if each.at % MINUTE == 0]


def _row(sample: Sample) -> dict[str, object]:
    hour, minute = divmod(sample.at // MINUTE, 60)
    return {
        "time": f"{hour:02}:{minute:02}",
        "arrivals_per_s": round(sample.arrivals_per_s, 1),
        "depth": sample.depth,
        "busy": sample.busy,
        "workers": sample.workers,
        "oldest_due_s": round(sample.oldest_due / SECOND, 1),
    }


def _csv(samples: Sequence[Sample]) -> Iterator[str]:
    rows = [_row(each) for each in _each_minute(samples)]
    yield ",".join(rows[0])
    for row in rows:
        yield ",".join(str(value) for value in row.values())


def _draw(screen: Screen, samples: Sequence[Sample], policy: ScalingPolicy, day: Day) -> None:
    columns = max(min(screen.console.width - 10, 96), 24)
    groups = [samples[n * len(samples) // columns : (n + 1) * len(samples) // columns] for n in range(columns)]
    charts = [
        ("Arrivals, runs per second", [max(each.arrivals_per_s for each in group) for group in groups]),
        (
            f"Workers, {policy.minimum} to {policy.maximum}",
            [float(max(each.workers for each in group)) for group in groups],
        ),
        ("Due runs that wait", [float(max(each.depth for each in group)) for group in groups]),
    ]
    for title, values in charts:
        screen.title(title)
        for line in _chart(values, _ROWS if title.startswith("Workers") else 4):
            click.echo(line)
    click.echo(" " * 9 + "".join(f"{f'{hour:02}':<{columns // 8}}" for hour in range(0, 24, 3)).rstrip())
    hours = sum(each.workers for each in samples) * (samples[1].at - samples[0].at) / HOUR
    screen.facts(
        [
            ("", ""),
            ("workers", f"{min(each.workers for each in samples)} to {max(each.workers for each in samples)}"),
            ("hours", f"{hours:.0f} worker hours; {24 * policy.maximum} at the maximum all day"),
            ("waits", f"at most {max(each.oldest_due for each in samples) / SECOND:.0f} s"),
            ("each", f"{day.concurrency} at once, {day.run_time / SECOND:g} s a run"),
        ]
    )


def _chart(values: Sequence[float], rows: int) -> Iterator[str]:
    """Bars of eighths of a character, with the largest value at the top left."""
    top = max(*values, 1e-9)
    eighths = [round(value / top * rows * 8) for value in values]
    for row in reversed(range(rows)):
        label = f"{top:.0f}" if row == rows - 1 else "0" if row == 0 else ""
        yield f"{label:>7} │" + "".join(_BLOCKS[min(max(each - row * 8, 0), 8)] for each in eighths).rstrip()
