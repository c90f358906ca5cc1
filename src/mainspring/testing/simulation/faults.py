"""What can go wrong, how often, and when: drawn from the seed before anything runs."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import MappingProxyType
from typing import Final, Literal

import msgspec

CALLS: Final = (
    "lost_request",
    "lost_reply",
    "delay",
    "long_delay",
    "late_delivery",
    "duplicate",
    "hang",
)
"""What may happen to one call to the store."""
EVENTS: Final = (
    "crash",
    "power_cut",
    "pause",
    "restart",
    "upgrade",
    "partition",
    "slow_disk",
    "store_down",
    "disk_full",
    "clock_jump",
    "clock_leap",
    "false_lease",
    "silent_lease",
    "broker_forgets",
    "broker_down",
    "short_of_connections",
    "cancelled_loop",
    "failed_sync",
)
"""What may happen to a process or to the store."""
BROKEN_BROKER: Final = frozenset({"broker_forgets", "broker_down"})
"""The faults that happen only where a broker delivers."""
HABITS: Final = (
    *("wrong_clocks", "lost_hints", "false_hints", "poison", "loose_broker", "hostile_tenant", "old_code"),
    "huge_completions",
    "forgotten_acks",
    "paused_queues",
)
"""What is wrong all the time."""
HOSTILE: Final = "hostile"
HUGE: Final = "huge"
"""The namespaces of the hostile tenant and of the jobs with huge completions, which no worker serves."""
FIRING_RATES: Final = MappingProxyType({HOSTILE: 600, HUGE: 2_000})
"""How many runs each of them may fire per minute."""
NO_EXCUSE: Final = frozenset({"hostile_tenant", "huge_completions"})
"""Faults that must not delay anything: where nothing else is wrong, everything has to be on time."""


class Profile(msgspec.Struct, frozen=True):
    """A kind of bad weather."""

    meaning: str
    calls: dict[str, float] = {}
    """Per cent of all calls."""
    events: dict[str, float] = {}
    """How often in ten minutes."""
    habits: frozenset[str] = frozenset()
    herd: int = 0
    """The number of jobs that are due at the same seconds."""
    broker: float = 0.0
    """In how many of the worlds a broker delivers."""
    transport: Literal["queue", "log", "hiding"] = "queue"
    """Which kind of broker: as Redis, Kafka or SQS."""
    tenants: float = 0.0
    """In how many of the worlds another tenant asks for more than it may."""
    huge: float = 0.0
    """In how many of the worlds another tenant has jobs whose firings have thousands of runs."""
    old_code: float = 0.0
    """In how many of the worlds some workers have older code, which does not take an argument of some runs."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong that would be an excuse for being late."""
        return not (self.calls or self.events or self.habits - NO_EXCUSE)


_LOSSES = {"lost_request": 0.6, "lost_reply": 0.6, "delay": 1.0, "long_delay": 0.1, "late_delivery": 0.15}
_NETWORK = {**_LOSSES, "duplicate": 0.4, "hang": 0.08}
_CRASHES = {"crash": 6.0, "power_cut": 0.7, "restart": 2.0, "upgrade": 0.5}
_EVILS = {
    "pause": 4.0,
    "partition": 2.0,
    "slow_disk": 1.0,
    "store_down": 1.0,
    "disk_full": 1.0,
    "clock_jump": 2.0,
    "clock_leap": 0.6,
    "false_lease": 2.0,
    "silent_lease": 2.0,
}
_FORGETTING = {"broker_forgets": 4.0, "broker_down": 3.0}
_SHORTAGES = {"short_of_connections": 1.5, "cancelled_loop": 1.5, "failed_sync": 0.7}

PROFILES: Final = MappingProxyType(
    {
        "calm": Profile("nothing goes wrong; everything must be on time"),
        "crash": Profile(
            "processes are killed, restarted and replaced", {"lost_reply": 0.2}, _CRASHES, frozenset({"poison"})
        ),
        "network": Profile(
            "calls and answers are lost, late, doubled",
            _NETWORK,
            {"partition": 4.0},
            frozenset({"lost_hints", "false_hints"}),
        ),
        "time": Profile(
            "clocks are wrong, processes stop for long, leases lie",
            {"delay": 0.5},
            {
                "pause": 6.0,
                "clock_jump": 4.0,
                "clock_leap": 1.5,
                "false_lease": 3.0,
                "silent_lease": 3.0,
                "slow_disk": 2.0,
            },
            frozenset({"wrong_clocks"}),
        ),
        "herd": Profile(
            "hundreds of jobs are due in the same second",
            {"lost_reply": 0.3},
            {"crash": 2.0, "pause": 2.0},
            herd=300,
        ),
        "broker": Profile(
            "a broker delivers, which forgets, stands still, loses, doubles and mixes up",
            {"lost_reply": 0.3},
            {**_FORGETTING, "crash": 2.0, "pause": 2.0, "partition": 2.0},
            frozenset({"loose_broker", "lost_hints"}),
            broker=1.0,
        ),
        "partitions": Profile(
            "a log with partitions delivers: commits are late, and partitions pass from worker to worker",
            {"lost_reply": 0.3},
            {"broker_down": 2.0, "crash": 4.0, "restart": 2.0, "pause": 2.0},
            broker=1.0,
            transport="log",
        ),
        "visibility": Profile(
            "a broker delivers that hides messages for a while: what is not acknowledged by then comes again",
            {"lost_reply": 0.3, "delay": 1.0, "long_delay": 0.3},
            {"broker_down": 3.0, "crash": 2.0, "pause": 6.0},
            frozenset({"forgotten_acks"}),
            broker=1.0,
            transport="hiding",
        ),
        "shortage": Profile(
            "connections are scarce, syncs fail, and loops are cancelled by mistake",
            {"lost_reply": 0.2},
            {name: 4 * rate for name, rate in _SHORTAGES.items()},
        ),
        "tenant": Profile(
            "another tenant asks for far more than it may; everything else must be on time",
            habits=frozenset({"hostile_tenant"}),
            tenants=1.0,
        ),
        "completions": Profile(
            "jobs of another tenant fire thousands of runs a hundred times a second; everything else must be on time",
            habits=frozenset({"huge_completions"}),
            huge=1.0,
        ),
        "versions": Profile(
            "a deploy is under way: some workers have older code, which does not take the arguments of some runs",
            {"lost_reply": 0.3},
            {"crash": 2.0, "restart": 2.0, "upgrade": 0.5, "pause": 1.0},
            frozenset({"old_code"}),
            old_code=1.0,
        ),
        "queues": Profile(
            "clients pause queues and let them go on, while processes are killed and answers are lost",
            {"lost_reply": 0.3, "delay": 0.5},
            {"crash": 2.0, "pause": 2.0, "restart": 1.0},
            frozenset({"paused_queues"}),
            broker=0.3,
        ),
        "chaos": Profile(
            "everything at once",
            _NETWORK,
            {**_CRASHES, **_EVILS, **_FORGETTING, **_SHORTAGES},
            frozenset(HABITS) - {"forgotten_acks", "paused_queues"},
            herd=30,
            broker=0.25,
            tenants=0.2,
            huge=0.2,
            old_code=0.2,
        ),
    }
)


class Event(msgspec.Struct, frozen=True):
    """Something that happens to a process or to the store, once."""

    at_s: float
    kind: str
    target: int
    length_s: float


_LENGTHS: Final = {
    "crash": (0.1, 15.0),
    "power_cut": (3.0, 40.0),
    "pause": (0.5, 20.0),
    "restart": (0.1, 3.0),
    "upgrade": (0.1, 1.0),
    "partition": (1.0, 15.0),
    "slow_disk": (2.0, 15.0),
    "store_down": (1.0, 12.0),
    "disk_full": (1.0, 10.0),
    "clock_jump": (0.0, 0.0),
    "clock_leap": (0.5, 90.0),
    "false_lease": (2.0, 15.0),
    "silent_lease": (2.0, 15.0),
    "broker_forgets": (0.0, 0.0),
    "broker_down": (0.5, 20.0),
    "short_of_connections": (3.0, 20.0),
    "cancelled_loop": (0.0, 0.0),
    "failed_sync": (0.1, 5.0),
}


def plan_events(profile: Profile, seed: str, minutes: float, without: frozenset[str]) -> list[Event]:
    """The events of a whole simulation in order. Each kind is drawn by itself, so that leaving one out does not move
    the others."""
    events = []
    for kind in EVENTS:
        rate = 0.0 if kind in without else profile.events.get(kind, 0.0)
        random, at_s = Random(f"{seed}:{kind}"), 0.0
        while rate > 0:
            at_s += random.expovariate(rate / 600)
            if at_s >= minutes * 60:
                break
            events.append(Event(at_s, kind, random.randrange(1_000), random.uniform(*_LENGTHS[kind])))
    return sorted(events, key=lambda event: (event.at_s, event.kind))


class Weather:
    """What the store and the way to it are like just now."""

    def __init__(self, profile: Profile, without: frozenset[str], happened: Counter[str]) -> None:
        self._rates = [
            (kind, profile.calls[kind] / 100) for kind in CALLS if kind in profile.calls and kind not in without
        ]
        self._total = sum(rate for _, rate in self._rates)
        self._habits = profile.habits - without
        self._happened = happened
        self.healed = False
        self.slow = self.down = self.full = self.mute = False

    def draw(self, random: Random) -> str | None:
        """What happens to one call, if anything does."""
        if self.healed or (chance := random.random()) >= self._total:
            return None
        for kind, rate in self._rates:
            chance -= rate
            if chance < 0:
                self._happened[kind] += 1
                return kind
        return None

    def has(self, habit: str) -> bool:
        """Whether something is wrong all the time."""
        return not self.healed and habit in self._habits

    def note(self, kind: str, times: int = 1) -> None:
        """Count something that went wrong."""
        self._happened[kind] += times

    def heal(self) -> None:
        """From now on all is well."""
        self.healed = True
        self.slow = self.down = self.full = self.mute = False
