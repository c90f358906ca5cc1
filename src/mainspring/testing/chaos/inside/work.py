"""The app that the processes of a run are started with: the simulation's tasks as real ones, under every policy.

What an attempt does depends on the run and the attempt alone, so that it does not matter which worker executes it. Each
writes its start and its end into the ledger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from mainspring import Retry, after, cron, current_run, every, manual
from mainspring.calendars import Calendar, CronRule
from mainspring.core.ids import fraction_of
from mainspring.core.schedules.triggers import Trigger
from mainspring.testing.chaos.inside.ledger import Ledger
from mainspring.testing.chaos.inside.orders import Orders
from mainspring.testing.chaos.inside.planted import planted_in
from mainspring.testing.chaos.inside.recording import RecordedApp
from mainspring.testing.chaos.inside.timing import StoreTime, live_skewed
from mainspring.testing.simulation.load.tasks import TASKS, Traits
from mainspring.testing.simulation.load.workload import LIMIT

PACE: Final = 0.25
"""Real time is dear: work is shorter than in the simulation by this factor."""

live_skewed()
HARSH: Final = ("poison", "blocking", "apart", "stubborn")
"""Tasks that kill their process, or that it cannot stop but by ending itself."""
LEFT_OUT: Final = ("even", "timed", "perhaps-late", "after-both", "after-any")
"""Jobs that are not needed where faults are steered: there it is the faults that count."""

orders = Orders.received()
_bug = planted_in(os.environ["MAINSPRING_STORE"], orders.bug)
_bug.__enter__()  # For as long as the process lives: what is not kept would be undone with the last look at it.
app = RecordedApp(
    orders.place, orders.actor, true=None if orders.epoch is None else StoreTime(orders.epoch), name="chaos"
)
ledger = Ledger(app.recorder)
BY_HAND: Final = ("by-hand", "by-hand-alone")
"""Jobs that clients fire."""
PAUSABLE: Final = ("tick", "flaky", "in-line") if orders.gentle else ("tick", "interval", "flaky", "in-line")
"""Jobs that clients pause and resume."""


def _draw(what: str) -> float:
    return fraction_of(orders.seed, what, current_run().id, current_run().attempt)


def _length_s(traits: Traits) -> float:
    return PACE * (traits.shortest_s + _draw("duration") * (traits.longest_s - traits.shortest_s))


def _make(traits: Traits) -> Callable[[], Coroutine[Any, Any, int]]:
    async def work() -> int:
        with ledger.noted():
            if _draw("deadly") < traits.deadly and not orders.reached("calm"):
                _die()
            await _last(_length_s(traits), traits.stubborn)
            if _draw("failing") < traits.failing:
                raise ValueError("it did not work out")
        return 1

    return work


async def _last(seconds: float, stubborn: int) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            await asyncio.sleep(max(until - time.monotonic(), 0.0))
            return
        except asyncio.CancelledError:
            if stubborn == 0:
                raise
            stubborn -= 1


def _die() -> None:
    app.recorder.write("fault", orders.actor, app.clock, name="poison")
    os.kill(os.getpid(), signal.SIGKILL)


for _name, _traits in TASKS.items():
    app.task(name=_name, limit=LIMIT if _name == "limited" else None)(_make(_traits))


@app.task
def blocking() -> int:
    """In a thread, which cannot be stopped: a worker that loses its claim has to end itself."""
    with ledger.noted():
        time.sleep(_length_s(TASKS["steady"]))
    return 1


@app.task
def apart() -> int:
    """With a timeout it gets its own process, which can be killed."""
    with ledger.noted():
        time.sleep(_length_s(TASKS["slow"]))
    return 1


odd = app.calendar(Calendar("odd", (CronRule("1/2 * * * * *"),)))


def _job(task: str, trigger: Trigger, name: str, **words: Any) -> None:
    if orders.gentle and (task in HARSH or name in LEFT_OUT):
        return
    app.job(trigger, name=name, **words)(app.tasks[task])


_again = partial(Retry, factor=2.0)

_job("quick", cron("* * * * * *"), "tick", misfire="all", grace="1s")
_job("blocking", every("1s"), "interval", misfire="once", grace="500ms", overlap="forbid")
_job("flaky", every("2s"), "flaky", misfire="skip", grace="1s", retry=_again(2, delay="200ms"))
_job("slow", every("3s"), "newest", overlap="replace")
_job("stubborn", every("5s"), "newest-stubborn", overlap="replace", priority=2)
_job("steady", every("2s"), "in-line", overlap="queue", misfire="once", catch_up_limit=2)
_job("limited", every("1s"), "limited", priority=7, retry=_again(1, delay="500ms"))
_job("steady", every("5s"), "parts", completions=3, parallelism=2)
_job("quick", every("4s"), "perhaps-late", start_deadline="1s", jitter="500ms", misfire="all")
_job("slow", every("4s"), "timed", timeout="1s", retry=_again(1, delay="300ms"))
_job("apart", every("6s"), "apart", timeout="2s", retry=_again(0))
_job("steady", every("3s"), "keyed", key="red", priority=1)
_job("poison", every("4s"), "poison", max_losses=1, retry=_again(1, delay="300ms"))
_job("quick", cron("* * * * * *"), "even", calendars=[odd], misfire="all")
_job("broken", every("7s"), "broken", retry=_again(1, delay="500ms"))
_job("quick", after("flaky"), "after-flaky")
_job("quick", after("after-flaky", "broken", on_failure="run"), "after-both")
_job("quick", after("timed", "in-line", when="any_finished"), "after-any")
_job("quick", manual(), BY_HAND[0])
_job("steady", manual(), BY_HAND[1], overlap="forbid")
_job("quick", every(f"{2 + orders.version % 3}s"), "edited", priority=1 + orders.version % 10)
