"""A worker that has nothing to do offers to take what comes: a lone submission, from whatever process, is claimed for
it and handed over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import msgspec
import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Claim, NewRun, Worker
from mainspring.process.ids import IdSource
from mainspring.store import StandingClaim
from mainspring.stores.postgres.store import PostgresStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
WORKER = Worker(id="w", tasks=("t",))
PATIENCE_S = 20.0

Open = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Open]:
    """Open a store that is closed after the test."""
    stores: list[PostgresStore] = []

    async def open_one() -> PostgresStore:
        stores.append(await PostgresStore.open(postgres_url, CLOCK))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


def a_run(**changes: Any) -> NewRun:
    facts: dict[str, Any] = {"id": IDS.new(), "task": "t", "due_at": 0, "created_at": CLOCK.now()} | changes
    return NewRun(**facts)


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(int(PATIENCE_S * 200)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


class Taker:
    """A worker's side: what it was given, and how many hints there were."""

    def __init__(self, store: PostgresStore, worker: Worker = WORKER) -> None:
        self.store, self.worker = store, worker
        self.claims: list[Claim] = []
        self.sent: list[float] = []
        self.hints = 0
        store.on_change(self._hint)

    def _hint(self) -> None:
        self.hints += 1

    def _take(self, claims: Sequence[Claim], sent_at: float) -> None:
        self.claims += claims
        self.sent.append(sent_at)

    async def stand(self, ttl: int = MINUTE) -> None:
        """Stand, and wait until the server knows."""
        await until(lambda: self.store._db.listener.address)
        self.store.leave_claim(StandingClaim(self.worker, 10, ttl, "strict", self._take))
        await settled(self.store)


async def settled(store: PostgresStore) -> None:
    await until(lambda: store._offers._saying is None)


async def offers(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT worker FROM mainspring.offers ORDER BY worker")
    await connection.close()
    return [row[0] for row in rows]


async def test_a_submission_of_another_process_is_handed_over_with_its_claim(opened: Open) -> None:
    taker, submitter = Taker(await opened()), await opened()
    began = CLOCK.monotonic()
    await taker.stand()
    hints = taker.hints
    run = a_run(args='{"x": "ä\\"\\u0007"}', priority=3)
    assert await submitter.submit([run]) == [run.id]
    await until(lambda: taker.claims)
    (claim,) = taker.claims
    assert (claim.run_id, claim.token, claim.attempt, claim.losses, claim.args, claim.priority, claim.due_at) == (
        *(run.id, 1, 0, 0, run.args, 3, 0),
    )
    stored = await submitter.get_run("default", run.id)
    assert (stored.state, stored.worker, stored.token) == ("running", "w", 1)
    assert 59 * SECOND < claim.claimed_until - CLOCK.now() <= MINUTE + SECOND
    assert began <= taker.sent[0] <= CLOCK.monotonic()
    assert await submitter.claim(WORKER, 10, MINUTE, "strict") == []
    assert taker.hints == hints  # No other worker is woken.


async def test_both_of_its_events_are_reported_in_order(opened: Open) -> None:
    taker = Taker(await opened())
    await taker.stand()
    run = a_run()
    await taker.store.submit([run])
    await taker.store.number_events(10)
    events = [event for batch in await taker.store.events_since(0, 10) for event in batch.events]
    assert [event.kind for event in events if event.run_id == run.id] == ["run.submitted", "run.running"]
    (started,) = [event for event in events if event.kind == "run.running"]
    assert (started.worker, started.priority) == ("w", run.priority)
    assert started.late is not None
    assert started.late == started.at - run.due_at


async def test_its_result_is_accepted_once(opened: Open) -> None:
    taker = Taker(await opened())
    await taker.stand()
    run = a_run()
    await taker.store.submit([run])
    await until(lambda: taker.claims)
    assert await taker.store.hand_back([(run.id, 1)]) == 1
    again = list[Claim]()
    async with asyncio.timeout(20):
        while not again:  # Its offer may stand still: then it is handed over instead.
            again = taker.claims[1:] or await taker.store.claim(WORKER, 10, MINUTE, "strict")
            await asyncio.sleep(0.01)
    assert [(claim.run_id, claim.token) for claim in again] == [(run.id, 2)]
    assert await taker.store.hand_back([(run.id, 1)]) == 0


async def test_an_offer_stands_for_several_submissions(opened: Open) -> None:
    taker, submitter = Taker(await opened()), await opened()
    await taker.stand()
    runs = [a_run() for _ in range(20)]
    for run in runs:
        await submitter.submit([run])
        await asyncio.sleep(0.01)
    await until(lambda: len(taker.claims) == 20)
    assert [claim.run_id for claim in taker.claims] == [run.id for run in runs]


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "unknown"},
        {"queue": "other"},
        {"region": "other"},
        {"namespace": "other"},
        {"due_at": CLOCK.now() + HOUR},
        {"expires_at": CLOCK.now() + HOUR},
        {"gates": ()},
        {"args": '{"x": "' + "y" * 8_000 + '"}'},
        {"args": '{"x": "' + '\\"' * 2_500 + '"}'},
    ],
    ids=["task", "queue", "region", "namespace", "not due", "may expire", "nothing", "long", "long as JSON"],
)
async def test_only_what_the_worker_can_begin_with_is_handed_over(opened: Open, changes: dict[str, Any]) -> None:
    taker = Taker(await opened())
    await taker.stand()
    run = a_run(**changes)
    await taker.store.submit([run])
    stored = await taker.store.get_run(run.namespace, run.id)
    handed = changes == {"gates": ()}  # Which is no change: the others differ from this one only in what they name.
    assert stored.state == ("running" if handed else "pending")
    await until(lambda: len(taker.claims) == handed)


async def test_submissions_one_after_another_are_each_handed_over(opened: Open) -> None:
    taker, submitter = Taker(await opened()), await opened()
    await taker.stand()
    runs = [a_run() for _ in range(30)]
    for run in runs:
        await submitter.submit([run])
    await until(lambda: len(taker.claims) == len(runs))
    assert [claim.run_id for claim in taker.claims] == [run.id for run in runs]


async def test_submissions_at_the_same_time_are_handed_over_side_by_side(opened: Open) -> None:
    """To different workers: a worker is given one at a time."""
    takers = [Taker(await opened(), Worker(id=name, tasks=("t",))) for name in ("v", "w")]
    submitter = await opened()
    for taker in takers:
        await taker.stand()
    await submitter.submit([a_run()])  # From now on it is likely.
    for _ in range(10):
        await asyncio.gather(*(submitter.submit([a_run()]) for _ in range(3)))
        await asyncio.sleep(0.01)
    given = [len(taker.claims) for taker in takers]
    # Of 31. If they went one after another, the second and third of three would share a transaction.
    assert sum(given) > 15
    assert all(given)


async def test_those_of_one_key_keep_their_order(opened: Open) -> None:
    taker, submitter = Taker(await opened()), await opened()
    await taker.stand()
    await submitter.submit([a_run()])
    runs = [a_run(key="k") for _ in range(20)]
    await asyncio.gather(*(submitter.submit([run]) for run in runs))
    claims = await submitter.claim(WORKER, 100, MINUTE, "strict")
    given = [claim.run_id for claim in [*taker.claims, *claims]]
    assert [run_id for run_id in given if run_id in {run.id for run in runs}] == [run.id for run in runs]


async def test_of_submissions_that_come_thick_and_fast_none_is_lost(opened: Open) -> None:
    """They are not announced one by one, nor handed over so."""
    taker, submitter = Taker(await opened()), await opened()
    await taker.stand()
    runs = [a_run() for _ in range(100)]
    await asyncio.gather(*(submitter.submit([run]) for run in runs))
    states = [(await submitter.get_run("default", run.id)).state for run in runs]
    await until(lambda: len(taker.claims) == states.count("running"))
    claims = await submitter.claim(WORKER, 100, MINUTE, "strict")
    assert {claim.run_id for claim in [*claims, *taker.claims]} == {run.id for run in runs}
    assert states.count("pending") == len(claims) > 50


async def test_a_repeated_submission_is_not_handed_over_again(opened: Open) -> None:
    taker = Taker(await opened())
    await taker.stand()
    run = a_run()
    for _ in range(3):
        assert await taker.store.submit([run]) == [run.id]
    await taker.store.submit([other := a_run()])
    await until(lambda: len(taker.claims) == 2)
    assert [(claim.run_id, claim.token) for claim in taker.claims] == [(run.id, 1), (other.id, 1)]


async def test_an_offer_that_was_taken_back_is_not_used(opened: Open, postgres_url: str) -> None:
    taker = Taker(await opened())
    await taker.stand()
    assert await offers(postgres_url) == ["w"]
    taker.store.leave_claim(None)
    await until(lambda: taker.store._offers._out is None)
    await settled(taker.store)
    assert await offers(postgres_url) == []
    run = a_run()
    await taker.store.submit([run])
    assert (await taker.store.get_run("default", run.id)).state == "pending"


async def test_a_worker_that_is_busy_for_a_moment_does_not_withdraw_its_offer(opened: Open, postgres_url: str) -> None:
    taker = Taker(await opened())
    await taker.stand()
    taker.store.leave_claim(None)
    await taker.stand()
    await asyncio.sleep(0.02)
    await settled(taker.store)
    assert await offers(postgres_url) == ["w"]


async def test_an_offer_that_is_taken_back_while_it_is_being_made_is_taken_back(
    opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.stores.postgres.submissions.idle_workers.LINGER_S", 0.0)
    taker = Taker(await opened())
    await until(lambda: taker.store._db.listener.address)
    taker.store.leave_claim(StandingClaim(WORKER, 10, MINUTE, "strict", taker._take))
    await asyncio.sleep(0)
    assert taker.store._offers._saying is not None, "it is on its way"
    taker.store.leave_claim(None)
    await until(lambda: taker.store._offers._out is None)
    await settled(taker.store)
    assert await offers(postgres_url) == []


async def test_an_offer_runs_out(opened: Open) -> None:
    taker = Taker(await opened())
    await taker.stand(ttl=SECOND // 10)
    await asyncio.sleep(0.05)
    run = a_run()
    await taker.store.submit([run])
    assert (await taker.store.get_run("default", run.id)).state == "pending"


async def test_an_offer_is_void_as_soon_as_the_connection_of_its_process_is_gone(
    opened: Open, postgres_url: str
) -> None:
    taker, submitter = Taker(await opened()), await opened()
    await taker.stand()
    address = taker.store._db.listener.address
    connection = await asyncpg.connect(postgres_url)
    await connection.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'mainspring listener' AND datname = current_database()"
    )
    await connection.close()
    run = a_run()
    await submitter.submit([run])
    assert (await submitter.get_run("default", run.id)).state == "pending"
    assert await offers(postgres_url) == []
    await until(lambda: taker.store._db.listener.address != address)
    await taker.stand()
    await submitter.submit([other := a_run()])
    await until(lambda: taker.claims)
    assert taker.claims[0].run_id == other.id


async def test_a_worker_that_is_given_something_is_not_given_more_at_the_same_time(
    opened: Open, postgres_url: str
) -> None:
    taker = Taker(await opened())
    await taker.stand()
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        await connection.execute("SELECT FROM mainspring.offers FOR UPDATE")
        run = a_run()
        await taker.store.submit([run])
        assert (await taker.store.get_run("default", run.id)).state == "pending"
    await connection.close()


async def test_a_worker_that_drains_takes_its_offer_back_and_gives_back_what_it_has_not_heard_of(
    opened: Open, postgres_url: str
) -> None:
    taker, submitter = Taker(await opened()), await opened()
    await taker.store.register(WORKER)
    await taker.stand()
    await submitter.submit([run := a_run()])
    await taker.store.register(msgspec.structs.replace(WORKER, state="draining"))
    assert await offers(postgres_url) == []
    assert (await submitter.get_run("default", run.id)).state == "running"
    await taker.store.register(msgspec.structs.replace(WORKER, state="stopped"))
    stored = await submitter.get_run("default", run.id)
    assert (stored.state, stored.losses) == ("pending", 0)


async def test_what_dead_workers_offered_goes_away(opened: Open, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "INSERT INTO mainspring.offers VALUES ('dead', 'default', '{default}', '{default}', '{t}', 'none', 1, 1, 1)"
    )
    await connection.close()
    await Taker(await opened()).stand()
    assert await offers(postgres_url) == ["w"]


async def test_how_old_a_claim_may_be_is_decided_by_the_offer_that_it_was_made_for(
    opened: Open, postgres_url: str
) -> None:
    """However late it is heard of: an offer that was repeated meanwhile does not make it younger."""
    taker = Taker(await opened())
    await taker.stand()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("UPDATE mainspring.offers SET offered_at = 5 * 1000000")
    await connection.close()
    await taker.store.submit([a_run()])
    await until(lambda: taker.claims)
    assert taker.sent == [5.0]
