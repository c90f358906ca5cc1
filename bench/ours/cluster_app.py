"""What `mainspring worker` runs on PostgreSQL: a task that does nothing but mark that it ran."""

from __future__ import annotations

import os

from bench.harness.slate import Slate
from mainspring import Mainspring

app = Mainspring(os.environ["BENCH_POSTGRES"])
slate = Slate.given()


@app.task
async def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)
