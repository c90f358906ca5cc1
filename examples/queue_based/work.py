"""Queue-based scheduling: a scheduler that only publishes, a broker, and workers that scale with the load.

See README.md beside this file for the three commands.
"""

import os
import time

from mainspring import Mainspring, Retry, cron

app = Mainspring(name="reports")


@app.job(cron("0 2 * * *", tz="Europe/Berlin"), misfire="once", overlap="forbid")
async def daily_reports() -> int:
    """At two in the morning: one run per customer, in one transaction."""
    customers = range(int(os.environ.get("CUSTOMERS", "1000")))
    await report.submit_many([{"customer": customer} for customer in customers])
    return len(customers)


@app.task(retry=Retry(3, delay="30s"), timeout="10m")
def report(customer: int) -> str:
    """The work. Whichever worker receives the message does it; the store lets one of them begin."""
    time.sleep(0.1)
    return f"report of customer {customer}"
