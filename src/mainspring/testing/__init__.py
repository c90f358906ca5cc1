"""For users' tests and for ours: time that moves only when told to.

`ManualClock` is a settable clock; `ManualScheduler` runs an app's jobs and tasks on one.
"""

from mainspring.testing.clock import ManualClock
from mainspring.testing.scheduler import ManualScheduler

__all__ = ["ManualClock", "ManualScheduler"]
