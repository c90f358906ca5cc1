"""A stand-in for a bank. It takes idempotency keys, as real ones do, and fails on request.

A row in `bank_faults` makes one call take long, or makes the calling process stand still in the middle of it, as a
suspended machine does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

CALL_S = 0.02
"""How long a transfer takes."""
SLOW_S = 3.0
"""How long a slow one takes: longer than the lock of the scenario lives without its watchdog."""


async def transfer(pool: Any, payout: str, account: str, amount: int, token: int) -> None:
    """Move money to the owner of an account: once for each payout, however often it is called."""
    call = await pool.fetchval(
        "INSERT INTO stripe.bank_calls (payout, account, token, process) VALUES ($1, $2, $3, $4) RETURNING id",
        payout, account, token, os.getpid(),
    )  # fmt: skip
    fault = await pool.fetchval("DELETE FROM stripe.bank_faults WHERE payout = $1 RETURNING fault", payout)
    await asyncio.sleep(SLOW_S if fault == "slow" else CALL_S)
    await pool.execute("INSERT INTO stripe.bank_transfers VALUES ($1, $2) ON CONFLICT DO NOTHING", payout, amount)
    if fault == "stall":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    await pool.execute("UPDATE stripe.bank_calls SET ended_at = clock_timestamp() WHERE id = $1", call)
