"""All figures of docs/reference-systems.md by one command: `python -m examples.measure`, in about 28 minutes.

The load scripts of the five systems run one after another, each at the rate of its row, then the five approaches. At
the end the tables are printed, and written to `--markdown FILE`, if one is named. What fails is reported in its row,
and leaves the others their turn; the exit code is 1 then. `--seconds 20` takes five minutes, `--only Google` measures a
part.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from examples.airbnb import load as airbnb
from examples.five_approaches import scenario as approaches
from examples.google import load as google
from examples.measuring import AIRBNB, GOOGLE, NETFLIX, STRIPE, UBER, Load, Measured, machine
from examples.netflix import load as netflix
from examples.stripe import load as stripe
from examples.uber import load as uber

Measure = Callable[[Load], Awaitable[Measured]]
APPROACH_S = 5
REPORTS = 3
HEAD = """| system | approach | source: a day | within | held here | p50 / p99 / longest |
|---|---|---|---|---|---|"""
CPU_HEAD = """| system | client | scheduler | workers | PostgreSQL | together | two cores carry |
|---|---|---|---|---|---|---|"""


def systems(seconds: float, google_rate: float, future: int) -> Mapping[str, tuple[Measure, Load]]:
    """What is played, in the order of the tables."""
    return {
        STRIPE.system: (stripe.measure, Load(20, seconds)),
        AIRBNB.system: (airbnb.measure, Load(20, seconds)),
        NETFLIX.system: (netflix.measure, Load(120, seconds)),
        UBER.system: (uber.measure, Load(UBER.per_s, seconds, future)),
        GOOGLE.system: (google.measure, Load(google_rate, seconds)),
    }


async def play(chosen: Mapping[str, tuple[Measure, Load]]) -> list[Measured]:
    """One after another. A system that fails is reported, and leaves the others their turn."""
    found: list[Measured] = []
    for name, (measure, load) in chosen.items():
        try:
            found.append(await measure(load))
        except Exception as error:  # Not done in time, or a server broke off.
            reason = str(error).partition("\n")[0]
            row = f"| {name} | failed at {load.rate:,.0f}/s for {load.seconds:g} s: {reason} | | | | |"
            found.append(Measured(f"{name}: {error}", row, "", failed=True))
        print(found[-1].figures, flush=True)
    return found


def tables(found: Sequence[Measured]) -> str:
    """The tables of the systems, as docs/reference-systems.md has them."""
    costs = [each.cpu_row for each in found if each.cpu_row]
    return "\n".join([HEAD, *(each.row for each in found), *(["", CPU_HEAD, *costs] if costs else [])])


def play_approaches(seconds: float) -> str:
    """The table of the five approaches."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = asyncio.run(approaches.play_all(Path(folder), REPORTS, min(APPROACH_S, seconds)))
    return approaches.table(outcomes)


def main() -> int:
    """Print the figures as they come, and the tables in the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="for each system (default: %(default)s)")
    parser.add_argument(
        "--google-rate", type=float, default=GOOGLE.per_s, help="probes per second (default: %(default).0f)"
    )
    parser.add_argument("--future", type=int, default=1_000_000, help="waiting runs beside Uber (default: %(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="SYSTEM", help="may be repeated; or: approaches")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there as well")
    words = parser.parse_args()
    known = systems(words.seconds, words.google_rate, words.future)
    if unknown := set(words.only) - {*known, "approaches"}:
        parser.error(f"--only {sorted(unknown)[0]}: use one of {', '.join(known)}, approaches")
    found = asyncio.run(play({name: each for name, each in known.items() if not words.only or name in words.only}))
    parts, failed = [tables(found)] if found else [], any(each.failed for each in found)
    if not words.only or "approaches" in words.only:
        try:
            parts.append(play_approaches(words.seconds))
        except Exception as error:
            parts.append(f"The five approaches failed: {error}")
            failed = True
    text = "\n\n".join([*parts, f"Measured {machine()}."])
    print(f"\n{text}")
    if words.markdown is not None:
        words.markdown.write_text(f"{text}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
