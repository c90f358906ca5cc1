"""For tests of apps and of Mainspring itself: a clock that a test moves, and a checker of what happened.

`ManualClock` is a settable clock; `ManualScheduler` runs an app's jobs and tasks on one. `check` judges a history, as
`mainspring.testing.history` defines it. `simulate` runs the program itself through a world where everything fails.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mainspring.testing.clock import ManualClock
from mainspring.testing.scheduler import BlockingScheduler, ManualScheduler

if TYPE_CHECKING:
    from mainspring.testing.checking import check
    from mainspring.testing.simulation import simulate

__all__ = ["BlockingScheduler", "ManualClock", "ManualScheduler", "check", "simulate"]

_LATER = {"check": "mainspring.testing.checking", "simulate": "mainspring.testing.simulation"}


def __getattr__(name: str) -> object:
    # Imported when they are first asked for: most tests judge no history.
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
