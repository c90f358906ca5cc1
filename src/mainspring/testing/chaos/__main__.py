"""`python -m mainspring.testing.chaos`: one run, with a line for each thing that is done, and the verdict."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import SystemRandom

import click

from mainspring.testing.chaos.cluster.directed import DIRECTED
from mainspring.testing.chaos.driver import Plan, Result, Run, draw_settings
from mainspring.testing.chaos.inside.planted import BUGS
from mainspring.testing.simulation.bugs.planted import PLANTED


@click.command()
@click.option("--seconds", type=float, default=120.0, show_default=True, help="How long there is work.")
@click.option("--seed", type=int, help="Which faults at which times; drawn if left out.")
@click.option("--nodes", type=int, default=3, show_default=True, help="How many `mainspring up`.")
@click.option("--workers", type=int, default=3, show_default=True, help="How many `mainspring worker`.")
@click.option("--clients", type=int, default=2, show_default=True, help="How many processes that submit.")
@click.option("--store", help="The URL of an empty store; a SQLite file of its own if left out.")
@click.option("--keep", type=click.Path(path_type=Path), help="A new folder for histories and logs, which stays.")
@click.option("--postgres", is_flag=True, help="On its own PostgreSQL server, which is not spared either.")
@click.option("--skewed", is_flag=True, help="With wall clocks that are apart by up to an hour, by libfaketime.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(sorted(DIRECTED)), help="Instead of drawn ones.")
@click.option("--bug", type=click.Choice(sorted({*PLANTED, *BUGS})), help="A bug to plant into every process.")
def main(
    seconds: float,
    seed: int | None,
    nodes: int,
    workers: int,
    clients: int,
    store: str | None,
    keep: Path | None,
    postgres: bool,
    skewed: bool,
    faults: tuple[str, ...],
    bug: str | None,
) -> None:
    """Kill, stop, drain and restart real processes, and judge what they wrote down."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # As Ctrl-C: no process stays behind.
    seed = SystemRandom().randrange(1_000_000) if seed is None else seed
    if keep is not None:
        keep.mkdir(parents=True)
    folder = (keep or Path(tempfile.mkdtemp(prefix="mainspring-chaos-"))).resolve()
    store = store or f"sqlite:///{folder / 'chaos.db'}"
    where = "its own PostgreSQL server" if postgres else store
    click.echo(f"seed {seed}: {nodes} up, {workers} workers, {clients} clients on {where} for {seconds:g} s")
    click.echo(" ".join(f"{name}={value}" for name, value in draw_settings(seed).items()))
    plan = Plan(
        store, folder, seed, seconds, nodes, workers, clients, bug, postgres, None, skewed, faults or None,
        bug is not None,
    )  # fmt: skip
    result = asyncio.run(Run(plan, click.echo).play())
    _report(result)
    if result.ok and keep is None:
        shutil.rmtree(folder)
    else:
        click.echo(f"histories and logs: {folder}")
    sys.exit(0 if result.ok else 1)


def _report(result: Result) -> None:
    click.echo(f"faults     {_listed(result.faults)}; {result.processes} processes started")
    for what in ("run", "firing", "attempt", "claim", "report", "fire", "submit", "term", "start"):
        of_kind = {kind: count for kind, count in result.counts.items() if kind.split()[0] == what}
        counts = Counter({kind.partition(" ")[2]: count for kind, count in of_kind.items()})
        click.echo(f"{what + 's':<10} {sum(of_kind.values()):>6}  ({_listed(counts)})")
    for trouble in result.troubles:
        click.echo(f"trouble    {trouble}")
    verdict = result.verdict
    click.echo(f"verdict    {verdict.records} records, {len(verdict.judged)} invariants judged: ", nl=False)
    if verdict.ok:
        click.echo("ok")
        return
    broken = Counter(violation.invariant for violation in verdict.violations)
    click.echo(f"broken: {_listed(broken)}. The smallest part that shows it:")
    click.echo(str(min(verdict.violations, key=lambda violation: len(violation.evidence))))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


if __name__ == "__main__":
    main()
