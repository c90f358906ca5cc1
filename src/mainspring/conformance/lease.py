"""What a lease must do: one holder at a time, for a limited time, with a token that grows."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import msgspec

from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Hold
from mainspring.lease import Lease

Elapse = Callable[[Duration], Awaitable[None]]


class LeaseConformance:
    """All guarantees of the lease port. Subclass it and provide the fixtures `lease`, on which nothing is held yet, and
    `elapse`, which lets time pass for the backend."""

    ttl: Duration = 30 * SECOND
    """The time to live of the leases here. Where `elapse` cannot move the backend's clock, a short one."""
    moment: Duration = SECOND
    """A time before or after which the backend is sure about an expiry."""
    patience_s = 20.0
    """How long the backend may take to notice an expiry, or to call back."""

    async def held(self, lease: Lease, name: str, owner: str) -> Hold:
        """A lease that must be free."""
        hold = await lease.acquire(name, owner, self.ttl)
        assert hold is not None
        return hold

    async def expired(self, lease: Lease, name: str, owner: str) -> Hold:
        """A lease whose time is over: free, as soon as a backend with a clock of its own has noticed."""
        async with asyncio.timeout(self.patience_s):
            while True:
                hold = await lease.acquire(name, owner, self.ttl)
                if hold is not None:
                    return hold
                await asyncio.sleep(0.05)

    async def test_its_own_times_leave_room_to_renew(self, lease: Lease) -> None:
        if lease.times is not None:
            assert 0 < lease.times.renew_every < lease.times.ttl
            assert 0 < lease.times.retry_every <= lease.times.ttl

    async def test_a_lease_has_one_holder(self, lease: Lease) -> None:
        hold = await self.held(lease, "scheduler", "a")
        assert (hold.name, hold.owner) == ("scheduler", "a")
        assert 0 < hold.ttl <= self.ttl
        assert await lease.acquire("scheduler", "b", self.ttl) is None

    async def test_a_lease_is_not_given_twice_even_to_its_owner(self, lease: Lease) -> None:
        await self.held(lease, "payroll", "a")
        assert await lease.acquire("payroll", "a", self.ttl) is None

    async def test_of_many_callers_that_ask_at_once_at_most_one_gets_it(self, lease: Lease) -> None:
        for number in range(5):
            name = f"contended-{number}"
            answers = await asyncio.gather(*(lease.acquire(name, f"node-{n}", self.ttl) for n in range(10)))
            given = [hold for hold in answers if hold is not None]
            assert len(given) <= 1
            for hold in given:
                assert await lease.renew(hold) is not None

    async def test_of_many_owners_that_ask_under_one_name_at_once_at_most_one_gets_it(self, lease: Lease) -> None:
        answers = await asyncio.gather(*(lease.acquire("same", "a", self.ttl) for _ in range(10)))
        given = [hold for hold in answers if hold is not None]
        assert len(given) <= 1
        for hold in given:
            assert await lease.renew(hold) is not None

    async def test_a_caller_that_asks_again_and_again_gets_it_though_others_ask_too(self, lease: Lease) -> None:
        async def insist(owner: str) -> Hold:
            while True:
                hold = await lease.acquire("wanted", owner, self.ttl)
                if hold is not None:
                    await lease.release(hold)
                    return hold
                await asyncio.sleep(0.001)

        holds = await asyncio.wait_for(asyncio.gather(*(insist(f"node-{n}") for n in range(5))), 60)
        assert len({hold.token for hold in holds}) == 5

    async def test_leases_of_other_names_are_free(self, lease: Lease) -> None:
        for name in ("scheduler", "payroll", "job:a", "job:{a}", "job:%7Ba%7D", "scheduler:1/3", "naïve ☃"):
            await self.held(lease, name, "a")

    async def test_a_lease_expires(self, lease: Lease, elapse: Elapse) -> None:
        await self.held(lease, "scheduler", "a")
        await elapse(self.ttl - self.moment)
        assert await lease.acquire("scheduler", "b", self.ttl) is None
        await elapse(2 * self.moment)
        assert (await self.expired(lease, "scheduler", "b")).owner == "b"

    async def test_its_token_grows_across_expiry(self, lease: Lease, elapse: Elapse) -> None:
        tokens = []
        for owner in "aba":
            tokens.append((await self.expired(lease, "scheduler", owner)).token)
            await elapse(self.ttl + self.moment)
        assert tokens == sorted(set(tokens))

    async def test_its_token_grows_across_release(self, lease: Lease) -> None:
        tokens = []
        for _ in range(20):
            hold = await self.held(lease, "scheduler", "a")
            tokens.append(hold.token)
            await lease.release(hold)
        assert tokens == sorted(set(tokens))

    async def test_a_renewed_lease_lives_on_with_its_token(self, lease: Lease, elapse: Elapse) -> None:
        hold = await self.held(lease, "scheduler", "a")
        await elapse(self.ttl - self.moment)
        renewed = await lease.renew(hold)
        assert renewed is not None
        assert renewed.expires_at > hold.expires_at - self.ttl
        assert msgspec.structs.replace(renewed, expires_at=hold.expires_at) == hold
        await elapse(self.ttl - self.moment)
        assert await lease.acquire("scheduler", "b", self.ttl) is None

    async def test_an_expired_lease_is_renewed_or_free_but_never_both(self, lease: Lease, elapse: Elapse) -> None:
        hold = await self.held(lease, "scheduler", "a")
        await elapse(3 * self.ttl)
        renewed = await lease.renew(hold)
        other = await lease.acquire("scheduler", "b", self.ttl)
        assert (renewed is None) != (other is None)

    async def test_a_lease_that_passed_to_another_is_not_renewed(self, lease: Lease, elapse: Elapse) -> None:
        old = await self.held(lease, "scheduler", "a")
        await elapse(self.ttl + self.moment)
        new = await self.expired(lease, "scheduler", "b")
        assert await lease.renew(old) is None
        assert await lease.renew(new) is not None

    async def test_an_earlier_hold_of_the_same_owner_is_not_renewed(self, lease: Lease, elapse: Elapse) -> None:
        old = await self.held(lease, "scheduler", "a")
        await elapse(self.ttl + self.moment)
        await self.expired(lease, "scheduler", "a")
        assert await lease.renew(old) is None

    async def test_a_released_lease_is_free_at_once_and_not_renewed(self, lease: Lease) -> None:
        hold = await self.held(lease, "scheduler", "a")
        await lease.release(hold)
        assert await lease.renew(hold) is None
        assert (await self.held(lease, "scheduler", "b")).owner == "b"

    async def test_only_the_holder_releases_or_renews(self, lease: Lease, elapse: Elapse) -> None:
        old = await self.held(lease, "scheduler", "a")
        await elapse(self.ttl + self.moment)
        new = await self.expired(lease, "scheduler", "a")
        stolen = msgspec.structs.replace(new, owner="b")
        assert await lease.renew(stolen) is None
        await lease.release(old)
        await lease.release(stolen)
        assert await lease.acquire("scheduler", "c", self.ttl) is None

    async def test_releasing_twice_does_no_harm(self, lease: Lease) -> None:
        hold = await self.held(lease, "scheduler", "a")
        await lease.release(hold)
        await lease.release(hold)
        await self.held(lease, "scheduler", "b")


class WatchedLeaseConformance(LeaseConformance, ABC):
    """For a lease that calls back by itself: when it is free (`on_free`), and when a hold is lost (`on_lost`). Subclass
    it instead, and define `doubt`."""

    @abstractmethod
    async def doubt(self, lease: Lease, hold: Hold) -> None:
        """Bring the backend to doubt a hold: cut its session, or give the lease to another owner behind its back."""

    async def test_a_candidate_hears_that_the_lease_is_free(self, lease: Lease) -> None:
        heard, stopped = asyncio.Event(), asyncio.Event()
        stop = lease.on_free("scheduler", heard.set)
        lease.on_free("scheduler", stopped.set)()
        lease.on_free("another", stopped.set)
        async with asyncio.timeout(self.patience_s):
            while not heard.is_set():  # A watch takes a moment to begin: what happens before is not its to report.
                await lease.release(await self.held(lease, "scheduler", "a"))
                await asyncio.wait([asyncio.ensure_future(heard.wait())], timeout=0.2)
        stop()
        heard.clear()
        await lease.release(await self.held(lease, "scheduler", "b"))
        await asyncio.sleep(0.1)
        assert not heard.is_set()
        assert not stopped.is_set()

    async def test_a_holder_hears_of_its_loss_with_a_reason(self, lease: Lease) -> None:
        hold, reasons, heard = await self.held(lease, "scheduler", "a"), list[str](), asyncio.Event()

        def hear(reason: str) -> None:
            reasons.append(reason)
            heard.set()

        stop = lease.on_lost(hold, hear)
        assert await lease.renew(hold) is not None
        assert reasons == []
        await self.doubt(lease, hold)
        await asyncio.wait_for(heard.wait(), self.patience_s)
        assert reasons[0]
        stop()

    async def test_a_holder_that_does_not_listen_any_more_hears_nothing(self, lease: Lease) -> None:
        hold, reasons, heard = await self.held(lease, "scheduler", "a"), list[str](), asyncio.Event()
        lease.on_lost(hold, reasons.append)()
        lease.on_lost(hold, lambda _: heard.set())
        await self.doubt(lease, hold)
        await asyncio.wait_for(heard.wait(), self.patience_s)
        assert reasons == []
