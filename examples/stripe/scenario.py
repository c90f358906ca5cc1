"""Three machines share a Redis. A payout outlives its lock's TTL, a holder stands still and is overtaken, a machine
dies, Redis restarts empty.

`python -m examples.stripe.scenario` plays it with one Redis, `… redlock` with three independent ones.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from examples.running import Process, Stage, connected, new_stage, report, until
from mainspring.testing.checking import Verdict
from mainspring.testing.servers.redis import RedisServer

HERE = Path(__file__).parent
ACCOUNTS = 6
PAYOUTS = 48
BALANCE = 1_000_000
AMOUNT = 250
STALLED = "payout-7"
SLOW = 8
"""The payout whose bank call takes longer than the lock lives without its watchdog."""
LOCK_TTL_S = 2
Kind = Literal["redis", "redlock"]


class Outcome(NamedTuple):
    """What came of it."""

    verdict: Verdict
    booked: int
    balances: int
    """The sum of all balances."""
    bank_transfers: int
    bank_calls: int
    slow_s: float
    """How long the slowest call of the bank held the lock of its account."""
    overlaps: list[tuple[str, str]]
    """Payouts of one account that called the bank at the same time, while the lock's servers remembered it."""
    refusals: list[tuple[str, bool]]
    """Payouts whose late booking was refused, and whether its token was older than the newest."""
    reconciliation: dict[str, int]


async def play(kind: Kind = "redis", folder: Path | None = None) -> Outcome:
    """The whole scenario."""
    with ExitStack() as stack, report(f"Stripe: payouts under a lock of {kind}") as tell:
        async with new_stage(HERE / "app.py", folder=folder) as stage:
            servers = [RedisServer(stage.folder).start() for _ in range(1 if kind == "redis" else 3)]
            for server in servers:
                stack.callback(server.kill)
            hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
            stage.environment |= {"MAINSPRING_LEASE": f"{kind}://{hosts}"}
            stage.environment |= {"PAYOUT_LOCK_TTL": f"{LOCK_TTL_S}s", "PAYOUT_SWEEP": "1s"}
            return await _play(stage, servers, tell)


async def _play(stage: Stage, servers: list[RedisServer], tell: Any) -> Outcome:
    async with connected(stage.store) as ledger:
        await _open_accounts(ledger)
        machines = [stage.node(f"machine-{number}") for number in range(3)]
        await stage.workers_ready(3)
        tell("three machines work")
        slow_s = await _outlive_ttl(stage, ledger)
        overlaps = await _overlaps(ledger)
        tell(f"a payout took {slow_s:.1f} s; its lock of {LOCK_TTL_S} s was renewed, and the next ones waited")
        await _request(ledger, range(PAYOUTS // 2))
        stalled = await _find_stalled(ledger, stage, machines)
        tell(f"{stalled.name} stands still while it pays {STALLED}, and holds the lock of its account")
        await until(lambda: _booked(ledger, STALLED), "booking by another machine", stage.logs)
        tell(f"another machine has paid {STALLED}, with a newer token")
        stalled.send(signal.SIGCONT)
        await until(lambda: ledger.fetchval("SELECT count(*) FROM stripe.refusals"), "refusal", stage.logs)
        tell(f"{stalled.name} goes on, and the ledger refuses its token")
        await _request(ledger, range(PAYOUTS // 2, PAYOUTS))
        forgotten_at = await ledger.fetchval("SELECT clock_timestamp()") if len(servers) == 1 else None
        victim = next(machine for machine in machines if machine is not stalled)
        stage.kill(victim)
        servers[0].kill()
        stage.note("redis restarts empty")
        servers[0].start()
        tell(f"{victim.name} was killed, and one Redis restarted empty")
        await until(lambda: _all_booked(ledger, PAYOUTS), "booking of all payouts", stage.logs)
        tell(f"all {PAYOUTS} payouts are booked")
        firing = await stage.client.jobs.trigger("payment_reconciliation")
        checked = await stage.client.runs.result(firing.run_id or "")
        await stage.drained()
        overlaps += await _overlaps(ledger, without=stalled.pid, before=forgotten_at)
        return await _outcome(stage, ledger, slow_s, overlaps, checked)


async def _open_accounts(ledger: Any) -> None:
    await ledger.executemany(
        "INSERT INTO stripe.accounts VALUES ($1, $2)", [(f"account-{n}", BALANCE) for n in range(ACCOUNTS)]
    )
    faults = [(STALLED, "stall"), (f"payout-{SLOW}", "slow")]
    await ledger.executemany("INSERT INTO stripe.bank_faults VALUES ($1, $2)", faults)


async def _outlive_ttl(stage: Stage, ledger: Any) -> float:
    """Pay the slow payout, and meanwhile the others of its account; the seconds that it held the lock."""
    others = range(SLOW + ACCOUNTS, PAYOUTS // 2, ACCOUNTS)
    await _request(ledger, range(SLOW, SLOW + 1))
    await until(lambda: ledger.fetchval("SELECT count(*) FROM stripe.bank_calls"), "call of the bank", stage.logs)
    await _request(ledger, others)
    await until(lambda: _all_booked(ledger, 1 + len(others)), "booking of the account's payouts", stage.logs)
    longest = "SELECT extract(epoch FROM max(ended_at - began_at))::float8 FROM stripe.bank_calls"
    return float(await ledger.fetchval(longest))


async def _request(ledger: Any, numbers: range) -> None:
    """Ask for payouts, each of them twice, as a client that got no answer does."""
    for _ in range(2):
        await ledger.executemany(
            "INSERT INTO stripe.requests VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            [(f"payout-{n}", f"account-{n % ACCOUNTS}", AMOUNT) for n in numbers],
        )


async def _find_stalled(ledger: Any, stage: Stage, machines: list[Process]) -> Process:
    async def find() -> int | None:
        gone = not await ledger.fetchval("SELECT count(*) FROM stripe.bank_faults")
        calls = "SELECT process FROM stripe.bank_calls WHERE payout = $1 ORDER BY id LIMIT 1"
        return await ledger.fetchval(calls, STALLED) if gone else None

    pid = await until(find, "process that stands still", stage.logs)
    stalled = next(machine for machine in machines if machine.pid == pid)
    stage.note_pause(stalled)
    return stalled


async def _booked(ledger: Any, payout: str) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) FROM stripe.entries WHERE payout = $1", payout))


async def _all_booked(ledger: Any, count: int) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) = $1 FROM stripe.entries", count))


async def _overlaps(ledger: Any, *, without: int = 0, before: datetime | None = None) -> list[tuple[str, str]]:
    """Calls of the bank for one account at the same time: those of all processes but one, until an instant.

    A machine that stands still cannot keep a lock, nor can one Redis that restarts empty.
    """
    calls = await ledger.fetch(
        "SELECT account, payout, began_at, ended_at FROM stripe.bank_calls"
        " WHERE ended_at IS NOT NULL AND process <> $1 AND ($2::timestamptz IS NULL OR ended_at < $2)"
        " ORDER BY account, began_at",
        without,
        before,
    )
    return [
        (one["payout"], other["payout"])
        for one, other in pairwise(calls)
        if one["account"] == other["account"] and other["began_at"] < one["ended_at"]
    ]


async def _outcome(
    stage: Stage, ledger: Any, slow_s: float, overlaps: list[tuple[str, str]], reconciliation: dict[str, int]
) -> Outcome:
    refusals = await ledger.fetch("SELECT payout, fence < newest AS older FROM stripe.refusals")
    return Outcome(
        verdict=await stage.judge(),
        booked=await ledger.fetchval("SELECT count(*) FROM stripe.entries"),
        balances=int(await ledger.fetchval("SELECT sum(balance) FROM stripe.accounts")),
        bank_transfers=await ledger.fetchval("SELECT count(*) FROM stripe.bank_transfers"),
        bank_calls=await ledger.fetchval("SELECT count(*) FROM stripe.bank_calls"),
        slow_s=slow_s,
        overlaps=overlaps,
        refusals=[(row["payout"], row["older"]) for row in refusals],
        reconciliation=reconciliation,
    )


if __name__ == "__main__":
    outcome = asyncio.run(play("redlock" if "redlock" in sys.argv[1:] else "redis"))
    print(
        f"{outcome.verdict}\n{outcome.booked} payouts booked, {outcome.bank_transfers} paid by the bank in"
        f" {outcome.bank_calls} calls; refused: {[payout for payout, _ in outcome.refusals]}"
    )
