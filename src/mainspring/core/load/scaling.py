"""How many workers there should be: one policy for the local autoscaler, its simulation and the Kubernetes manifests.

The rule is that of a horizontal pod autoscaler. Each target proposes a number of workers; the largest wins. Growth
waits until the load has asked for it during a whole window, and then takes steps of a percentage. Shrinking waits
longer, and takes steps of a few workers. So a lasting load adds workers within minutes, and a gap removes none.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import msgspec

from mainspring.core.instants import MINUTE, SECOND, Duration, Instant
from mainspring.errors import InvalidInput

TOLERANCE = 0.1
"""A load within a tenth of its target changes nothing: neighbouring numbers of workers would alternate otherwise."""


class ScalingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds, targets and speeds. A target that is None proposes nothing."""

    minimum: int = 1
    maximum: int = 10
    depth_per_worker: int | None = 1_000
    """Due runs that one worker may have before it."""
    utilisation_percent: int | None = 70
    """Busy slots of all slots."""
    oldest_due: Duration | None = None
    """How long a due run may wait. While the oldest waits longer, there are too few workers."""
    up_percent: int = 50
    """At most this much growth within `up_period`, but always one worker."""
    up_period: Duration = MINUTE
    up_window: Duration = 60 * SECOND
    """The load must have asked for more during all of this time."""
    down_workers: int = 2
    """At most this many fewer within `down_period`."""
    down_period: Duration = 2 * MINUTE
    down_window: Duration = 300 * SECOND
    """The load must have asked for fewer during all of this time."""


class Load(NamedTuple):
    """What the fleet has to do at an instant."""

    at: Instant
    workers: int
    """How many there are now."""
    depth: int
    """Due runs that no worker has claimed."""
    busy: int
    """Slots that execute a run."""
    slots: int
    oldest_due: Duration = 0
    """How long the oldest due run has waited."""


class Change(NamedTuple):
    """A step that was taken."""

    at: Instant
    before: int
    after: int


class ScalingState(msgspec.Struct, frozen=True):
    """What the policy remembers: what the load asked for lately, and the steps taken lately."""

    wishes: tuple[tuple[Instant, int], ...] = ()
    changes: tuple[Change, ...] = ()


class Decision(NamedTuple):
    """How many workers there should be, why, and what to remember."""

    workers: int
    reason: str
    state: ScalingState


def check_policy(policy: ScalingPolicy) -> ScalingPolicy:
    """The policy itself; InvalidInput if it contradicts itself."""
    if policy.minimum < 0:
        raise InvalidInput("minimum", policy.minimum, "is negative", "give 0 or more")
    if policy.maximum < max(policy.minimum, 1):
        raise InvalidInput("maximum", policy.maximum, f"is less than {max(policy.minimum, 1)}", "raise it")
    for name in ("depth_per_worker", "utilisation_percent", "up_percent", "down_workers"):
        value = getattr(policy, name)
        if value is not None and value < 1:
            raise InvalidInput(name, value, "is less than 1", "give 1 or more")
    if policy.depth_per_worker is None and policy.utilisation_percent is None and policy.oldest_due is None:
        raise InvalidInput("depth_per_worker", None, "leaves no target", "set a depth, a utilisation or a waiting time")
    return policy


def wish(policy: ScalingPolicy, load: Load) -> tuple[int, str]:
    """How many workers the load asks for, within the bounds, and which target asks."""
    proposals = list(_proposals(policy, load)) or [(policy.minimum, "nothing waits")]
    wanted, reason = max(proposals)
    if wanted > policy.maximum:
        return policy.maximum, f"{reason}; at the maximum of {policy.maximum}"
    if wanted < policy.minimum:
        return policy.minimum, f"at the minimum of {policy.minimum}"
    return wanted, reason


def _proposals(policy: ScalingPolicy, load: Load) -> list[tuple[int, str]]:
    found = []
    if policy.depth_per_worker is not None:
        wanted = ceil(load.depth / policy.depth_per_worker)
        found.append((wanted, f"{load.depth} due runs, {policy.depth_per_worker} per worker"))
    if policy.utilisation_percent is not None and load.slots:
        ratio = 100 * load.busy / load.slots / policy.utilisation_percent
        near = abs(ratio - 1) <= TOLERANCE
        wanted = load.workers if near else ceil(load.workers * ratio)
        found.append((wanted, f"{load.busy} of {load.slots} slots busy, target {policy.utilisation_percent} %"))
    if policy.oldest_due is not None and load.oldest_due > policy.oldest_due:
        found.append((load.workers + 1, f"the oldest run has waited {load.oldest_due // SECOND} s"))
    return found


def decide(policy: ScalingPolicy, state: ScalingState, load: Load) -> Decision:
    """The number of workers from now on. Call it every few seconds with the state of the last decision."""
    wanted, reason = wish(policy, load)
    wishes = (*_kept(state.wishes, load.at - max(policy.up_window, policy.down_window)), (load.at, wanted))
    steady_up = min(each for at, each in wishes if at >= load.at - policy.up_window)
    steady_down = max(each for at, each in wishes if at >= load.at - policy.down_window)
    kept_changes = tuple(
        each for each in state.changes if each.at > load.at - max(policy.up_period, policy.down_period)
    )
    if _observed(wishes, load.at, policy.up_window) and steady_up > load.workers:
        target = min(steady_up, _ceiling(policy, kept_changes, load))
    elif _observed(wishes, load.at, policy.down_window) and steady_down < load.workers:
        target = max(steady_down, _floor(policy, kept_changes, load))
    else:
        target = load.workers
    target = min(max(target, policy.minimum), policy.maximum)
    if target == load.workers:
        return Decision(
            target, "as it is" if wanted == target else f"{reason}; waiting", ScalingState(wishes, kept_changes)
        )
    changes = (*kept_changes, Change(load.at, load.workers, target))
    return Decision(target, reason, ScalingState(wishes, changes))


def _kept(wishes: tuple[tuple[Instant, int], ...], since: Instant) -> tuple[tuple[Instant, int], ...]:
    """The wishes since an instant, and the last one before: without it, nothing would show that the load has been
    watched for the whole window."""
    older = sum(at <= since for at, _ in wishes)
    return wishes[max(older - 1, 0) :]


def _observed(wishes: tuple[tuple[Instant, int], ...], now: Instant, window: Duration) -> bool:
    """Whether the load has been watched for the whole window."""
    return wishes[0][0] <= now - window or window == 0


def _ceiling(policy: ScalingPolicy, changes: tuple[Change, ...], load: Load) -> int:
    """What growth allows now: a percentage above the number at the beginning of the period. The start of the minimum
    does not count as growth."""
    begun = [each.before for each in changes if each.at > load.at - policy.up_period and each.after > each.before]
    base = max(begun[0] if begun else load.workers, policy.minimum)
    return max(base + max(ceil(base * policy.up_percent / 100), 1), load.workers)


def _floor(policy: ScalingPolicy, changes: tuple[Change, ...], load: Load) -> int:
    """What shrinking allows now: a few below the number at the beginning of the period."""
    begun = [each.before for each in changes if each.at > load.at - policy.down_period and each.after < each.before]
    base = begun[0] if begun else load.workers
    return min(base - policy.down_workers, load.workers)
