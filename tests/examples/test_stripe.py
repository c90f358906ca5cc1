"""The payouts of examples/stripe: a stalled holder is overtaken and refused, and every payout is booked once."""

from pathlib import Path

import pytest

from examples.stripe.scenario import ACCOUNTS, AMOUNT, BALANCE, LOCK_TTL_S, PAYOUTS, STALLED, Kind, play


@pytest.mark.parametrize("kind", ["redis", "redlock"])
async def test_every_payout_is_booked_once_whichever_machine_stalls_dies_or_forgets(kind: Kind, tmp_path: Path) -> None:
    outcome = await play(kind, tmp_path)
    assert outcome.verdict.ok, str(outcome.verdict)
    assert {1, 3, 4, 5, 6, 7, 8, 19} <= set(outcome.verdict.judged)
    assert outcome.booked == outcome.bank_transfers == PAYOUTS
    assert outcome.bank_calls > PAYOUTS, "the stalled payout was paid by two machines"
    assert outcome.balances == ACCOUNTS * BALANCE - PAYOUTS * AMOUNT
    assert (STALLED, True) in outcome.refusals, "the token of the stalled machine was older"
    assert outcome.slow_s > LOCK_TTL_S, "one payout outlived the TTL of its lock"
    assert outcome.overlaps == [], "the watchdog kept the lock, and no other payout of an account ran beside"
    assert outcome.reconciliation == {"payouts": PAYOUTS, "unbooked": 0, "unpaid": 0}
