"""Payouts of a payment service: one at a time for each account, on several machines that share a Redis.

Settings come from the environment: `MAINSPRING_STORE`, `MAINSPRING_LEASE` (`redis://` or `redlock://`), `DATABASE_URL`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from examples.stripe import bank
from mainspring import Mainspring, Retry, cron, current_run, every
from mainspring.errors import LockRefused

LOCK_TTL = os.environ.get("PAYOUT_LOCK_TTL", "30s")
SWEEP = os.environ.get("PAYOUT_SWEEP", "5s")
MOST_PER_SWEEP = 500

app = Mainspring(name="stripe", coordination="lock")


@app.lifespan
async def database() -> AsyncIterator[Any]:
    """The connection pool of each worker."""
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=10) as pool:
        yield pool


@app.job(every(SWEEP), overlap="forbid", misfire="once")
async def submit_due_payouts() -> int:
    """Turn due requests into runs. The payout is the idempotency key, so a sweep that is repeated adds no run."""
    rows = await app.state.fetch(
        "SELECT payout, account, amount FROM stripe.requests WHERE NOT submitted AND due_at <= now()"
        " ORDER BY due_at LIMIT $1",
        MOST_PER_SWEEP,
    )
    for row in rows:
        await pay_out.options(idempotency_key=row["payout"]).submit(row["payout"], row["account"], row["amount"])
    await app.state.execute(
        "UPDATE stripe.requests SET submitted = true WHERE payout = ANY($1)", [row["payout"] for row in rows]
    )
    return len(rows)


@app.task(priority=1, timeout="30s", retry=Retry(10, delay="1s", backoff="fixed"))
async def pay_out(payout: str, account: str, amount: int) -> str:
    """Pay one payout out, under the lock of its account. The ledger refuses a holder that was overtaken."""
    try:
        async with app.lock(f"account:{account}", ttl=LOCK_TTL, wait=5) as lock:
            await bank.transfer(app.state, payout, account, amount, lock.token)
            # Shielded: once the bank has paid, a cancellation must not stop the booking. The ledger judges the token.
            answer = await asyncio.shield(book(payout, account, amount, lock.token))
    except LockRefused as error:
        raise ConnectionError(f"another payout of {account} takes longer than 5 s") from error
    if answer == "overtaken":  # By another payout, perhaps: this one is paid but not booked, so it is tried again.
        raise ConnectionError(f"the lock of {account} passed to another holder before {payout} was booked")
    return answer


async def book(payout: str, account: str, amount: int, token: int) -> str:
    """Write a payout to the ledger, which answers `paid`, `paid before` or `overtaken`."""
    statement = "SELECT stripe.book($1, $2, $3, $4, $5)"
    return str(await app.state.fetchval(statement, payout, account, amount, token, current_run().id))


@app.job(cron("0 2 * * *", tz="America/Los_Angeles"), overlap="forbid", misfire="once")
async def payment_reconciliation() -> dict[str, int]:
    """Compare the ledger with the bank: what one of them has, the other must have, too."""
    async with app.lock("payment-reconciliation", ttl=LOCK_TTL, wait=0):
        row = await app.state.fetchrow(
            "SELECT count(*) AS payouts, count(*) FILTER (WHERE e.payout IS NULL) AS unbooked,"
            " count(*) FILTER (WHERE t.payout IS NULL) AS unpaid"
            " FROM stripe.entries e FULL JOIN stripe.bank_transfers t USING (payout)"
        )
    return dict(row)
