"""For users' tests and for ours: time that moves only when told to, and a judge of what happened.

`ManualClock` is a settable clock; `ManualScheduler` runs an app's jobs and tasks on one. `check` judges a history, as
`mainspring.testing.history` defines it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mainspring.testing.clock import ManualClock
from mainspring.testing.scheduler import ManualScheduler

if TYPE_CHECKING:
    from mainspring.testing.checking import check

__all__ = ["ManualClock", "ManualScheduler", "check"]


def __getattr__(name: str) -> object:
    # Imported when it is first asked for: most tests judge no history.
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = import_module("mainspring.testing.checking").check
    globals()[name] = value
    return value
