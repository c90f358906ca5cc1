"""How often loops look by themselves: in the simulated world less often than in the real one. And how much one
transaction does: less than in the real one.

Hints wake loops for nearly everything; that they also look now and then is for lost hints. In virtual time
nearly all of these looks find nothing, and they would cost more than all the work. So there are fewer of them here.
What only happens behind thousands of dependants happens here behind the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from mainspring.services.chores import reaper, relay
from mainspring.services.scheduler import dispatcher, elector, planner, scheduler
from mainspring.services.worker import broker_source as delivered
from mainspring.services.worker import claimer, heartbeat, reporter

_ENDINGS: Final = import_module("mainspring.stores.sqlite.ends.endings")
"""By name, as for planted bugs: the program's own layers forbid it."""
_VALUES: Final = (
    (claimer, "LONGEST_WAIT_S", 3.0),
    (claimer, "SHORTEST_WAIT_S", 0.03),
    (claimer, "FULL_WAIT_S", 2.0),
    (dispatcher, "LONGEST_WAIT_S", 3.0),
    (dispatcher, "GAP_S", 0.05),
    (delivered, "LOOK_S", 3.0),
    (planner, "LONGEST_WAIT_S", 3.0),
    (reaper, "EVERY_S", 2.5),
    (relay, "BUSY_S", 0.5),
    (relay, "IDLE_S", 3.0),
    (reporter, "OUTPUT_S", 1.5),
    (heartbeat, "HEAR_S", 0.3),
    (elector, "SHORTEST_S", 0.5),
    (scheduler, "PLANNER_GAP_S", 0.1),
    (_ENDINGS, "JUDGED_AT_ONCE", 1),
)


@contextmanager
def unhurried() -> Iterator[None]:
    """While this lasts, loops without hints wait longer, and transactions do less."""
    usual = [(module, name, getattr(module, name)) for module, name, _ in _VALUES]
    for module, name, value in _VALUES:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in usual:
            setattr(module, name, value)
