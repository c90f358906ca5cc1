"""What the processes of a test wrote down, and what the store holds in the end, before the history checker."""

import asyncio
from collections import Counter
from pathlib import Path

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.testing.chaos.driver import PASSING
from mainspring.testing.chaos.inside.recording import Journal, gather
from mainspring.testing.checking import Verdict, check
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.world.ending import record_end


def judge(folder: Path, store: str, *, brokered: bool = False) -> Verdict:
    """The verdict on all histories in a folder. Their processes must have ended. A broker that has not heard of a run
    yet, or has forgotten it, lets others pass."""
    asyncio.run(_record_end(folder, store))
    return check(gather(folder), passing_bound=PASSING if brokered or store.startswith("postgresql:") else 0)


async def _record_end(folder: Path, store: str) -> None:
    app, clock = Mainspring(store), SystemClock()
    await record_end(await app.open(), Scribe(Journal(folder, "end"), clock, Counter()), clock)
    await app.close()
