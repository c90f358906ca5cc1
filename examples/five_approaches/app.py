"""Reports, generated and sent at each instant of their schedule. How nodes coordinate is not in the code.

Settings: `MAINSPRING_STORE`, `DATABASE_URL`, and those of one approach (see approaches.py).
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg

from mainspring import Mainspring, Retry, cron, current_run

SCHEDULE = os.environ.get("REPORT_SCHEDULE", "0 2 * * *")
REPORTS = int(os.environ.get("REPORTS", "1"))

app = Mainspring(name="reports")


@app.task(timeout="2h", retry=Retry(3, delay="1s", backoff="fixed"))
def generate_and_send(report: str) -> int:
    """Generate the revenue of each country and send it; the number of countries.

    A plain function with a timeout: it runs in a process that can be killed.
    """
    return asyncio.run(_send(report))


async def _send(report: str) -> int:
    connection: Any = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        rows = await connection.fetch(
            "SELECT country, count(*) AS orders, sum(amount) AS revenue FROM reports.orders GROUP BY country ORDER BY 1"
        )
        text = "".join(f"{row['country']},{row['orders']},{row['revenue']}\n" for row in rows)
        run = current_run()
        await connection.execute(
            "INSERT INTO reports.sent VALUES ($1, $2, $3, $4, $5)", report, run.fire_at, run.id, os.getpid(), text
        )
        return len(rows)
    finally:
        await connection.close()


for number in range(REPORTS):
    app.job(cron(SCHEDULE), name=f"report-{number}", args={"report": f"report-{number}"}, misfire="all", grace="10s")(
        generate_and_send
    )
