"""Whether a failed attempt is followed by another, and after how long."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, parse_duration
from mainspring.errors import InvalidInput

Backoff = Literal["exponential", "fixed"]
RetryPolicy = Literal["fixed-5m", "doubling-1m", "doubling-2m", "doubling-30s-to-15m", "quadrupling-10s"]
Length = str | float | timedelta
"""A duration as people write it: `"30s"`, a timedelta, or a number of seconds."""
ErrorType = type[BaseException] | str
"""An exception class, or its full name (`"httpx.ReadTimeout"`; the module may be left out for built-in ones)."""

_POLICIES: dict[RetryPolicy, tuple[Duration, float, Duration]] = {
    "fixed-5m": (5 * MINUTE, 1.0, 5 * MINUTE),
    "doubling-1m": (MINUTE, 2.0, DAY),
    "doubling-2m": (2 * MINUTE, 2.0, DAY),
    "doubling-30s-to-15m": (30 * SECOND, 2.0, 15 * MINUTE),
    "quadrupling-10s": (10 * SECOND, 4.0, HOUR),
}
"""Waits by name: the first one, how it grows, and the longest. The last of them is the default."""
_RETRY_IN, _ABORT = "mainspring.errors.RetryIn", "mainspring.errors.Abort"
RETRIES = 3
# 10 s, 40 s, 2 min 40 s: the first soon enough for a glitch, the third late enough to outlive a restart or a failover.
DELAY: Duration = 10 * SECOND
FACTOR = 4.0
CAP: Duration = HOUR
JITTER = 0.1


# Not a Struct: those allow no `__init__`, and a 30 that a user writes (seconds) must not be taken for a stored one.
@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often, how late, and for which errors a failed run is tried again. `Retry(3)` is four attempts at most.

    The fields are what is stored, as JSON: durations in microseconds, errors by full name. The n-th wait is the n-th of
    `delays`; past their end the last one grows by `factor` each time, up to `cap`.
    """

    retries: int
    delays: tuple[Duration, ...]
    factor: float
    cap: Duration
    jitter: float
    on: tuple[str, ...]
    never: tuple[str, ...]

    def __init__(
        self,
        retries: int | None = None,
        *,
        policy: RetryPolicy | None = None,
        delay: Length | None = None,
        backoff: Backoff = "exponential",
        factor: float | None = None,
        delays: Iterable[Length] | None = None,
        cap: Length | None = None,
        jitter: float = JITTER,
        on: ErrorType | Iterable[ErrorType] | None = None,
        never: ErrorType | Iterable[ErrorType] | None = None,
    ) -> None:
        """Three retries after 10 s, 40 s and 2 min 40 s by default.

        - `retries`: how many after the first attempt; 0 for none. With `delays`, by default one for each.
        - `policy`: all waits by name, instead of `delay`, `backoff`, `factor`, `delays` and `cap`: `"fixed-5m"`,
          `"doubling-1m"` (1, 2, 4 ... minutes), `"doubling-2m"`, `"doubling-30s-to-15m"`, `"quadrupling-10s"`.
        - `delay`: before the first retry. It grows by `factor` (4), or stays with `backoff="fixed"`.
        - `delays`: each wait by itself, instead of `delay` and `factor`; the last one repeats.
        - `cap`: no wait is longer. An hour by default, or the longest delay given.
        - `jitter`: up to this fraction is taken off each wait at random, so that runs that failed together part.
        - `on`: retry these errors only; `never`: never these, even if `on` has them. Subclasses are meant too.
        """
        if policy is not None:
            own = {"delay": delay, "factor": factor, "delays": delays, "cap": cap}
            own["backoff"] = None if backoff == "exponential" else backoff
            waits, growth, longest = _read_policy(policy, own)
        else:
            waits = _read_delays(delay, delays)
            growth = _read_factor(factor, backoff, listed=delays is not None)
            longest = _read_cap(cap, max(waits))
        if retries is None:
            retries = RETRIES if delays is None else len(waits)
        set_field = object.__setattr__
        set_field(self, "retries", _check_retries(retries))
        set_field(self, "delays", waits)
        set_field(self, "factor", growth)
        set_field(self, "cap", longest)
        set_field(self, "jitter", _check_jitter(jitter))
        set_field(self, "on", _read_errors(on, "on"))
        set_field(self, "never", _read_errors(never, "never"))


class Again(msgspec.Struct, frozen=True):
    """Try again after `delay`."""

    delay: Duration


class GiveUp(msgspec.Struct, frozen=True):
    """The run has failed for good."""

    reason: str


def decide(
    policy: Retry, failures: int, error_types: Sequence[str], noise: float, asked: Duration | None = None
) -> Again | GiveUp:
    """What follows the `failures`-th failed attempt (from 1), of an error with these names (`error_names`).

    The policy's wait w is cut by the fraction `jitter * noise`, `noise` in [0, 1), so it lies in [w * (1 - jitter), w].
    `asked` is a wait that the other side demands (as `Retry-After` does): it replaces the policy's own, and the jitter
    is added to it, so that no run returns too early. No wait exceeds `cap`, not even one asked for. A wait that the
    task itself names (`RetryIn`) is kept to the microsecond, whatever the policy says of errors and delays.
    """
    if asked is not None and _RETRY_IN in error_types and failures <= policy.retries:
        return Again(asked)
    if refusal := _refusal(policy, failures, error_types):
        return GiveUp(refusal)
    if asked is not None:
        return Again(min(asked + int(asked * policy.jitter * noise), policy.cap))
    wait = _wait(policy, failures)
    return Again(wait - int(wait * policy.jitter * noise))


def error_names(error: type[BaseException]) -> tuple[str, ...]:
    """The full names of an exception class and of the classes that it derives from, the nearest first."""
    return tuple(_name(each) for each in error.__mro__ if each is not object)


def _refusal(policy: Retry, failures: int, error_types: Sequence[str]) -> str:
    """Why there is no retry; empty if there is one."""
    names = {name.removeprefix("builtins.") for name in error_types}
    shown = error_types[0].removeprefix("builtins.") if error_types else "an error without a type"
    if _ABORT in error_types:
        return "the task asked not to be retried"
    if not policy.retries:
        return "it has no retries"
    if not names.isdisjoint(policy.never):
        return f"{shown} is among the errors that are never retried"
    if policy.on and names.isdisjoint(policy.on) and _RETRY_IN not in error_types:
        return f"{shown} is not among the errors that are retried ({', '.join(policy.on)})"
    if failures > policy.retries:
        return f"all retries are used up ({policy.retries})"
    return ""


def _wait(policy: Retry, failures: int) -> Duration:
    """The wait before the retry of that number, before jitter."""
    if failures <= len(policy.delays):
        return policy.delays[failures - 1]
    last = policy.delays[-1]
    if last == 0:
        return 0
    try:
        return min(round(last * policy.factor ** (failures - len(policy.delays))), policy.cap)
    except OverflowError:
        return policy.cap


def _read_policy(policy: RetryPolicy, others: Mapping[str, object]) -> tuple[tuple[Duration, ...], float, Duration]:
    """The waits, their growth and their cap."""
    if policy not in _POLICIES:
        raise InvalidInput("policy", policy, "is not a retry policy", f"choose one of {', '.join(_POLICIES)}")
    for name, given in others.items():
        if given is not None:
            raise InvalidInput(name, given, f"is given together with the policy {policy}", "give one of them")
    first, growth, longest = _POLICIES[policy]
    return (first,), growth, longest


def _read_delays(delay: Length | None, delays: Iterable[Length] | None) -> tuple[Duration, ...]:
    if delays is None:
        return (DELAY if delay is None else parse_duration(delay, "delay"),)
    if delay is not None:
        raise InvalidInput("delay", delay, "is given together with `delays`", "give one of them")
    if isinstance(delays, str) or not isinstance(delays, Iterable):
        raise InvalidInput("delays", delays, "is not a list of durations", 'write it like ["1s", "10s", "1m"]')
    waits = tuple(parse_duration(each, f"delays[{index}]") for index, each in enumerate(delays))
    if not waits:
        raise InvalidInput("delays", delays, "is empty", "Retry(0) is the policy without retries")
    return waits


def _read_factor(factor: float | None, backoff: Backoff, *, listed: bool) -> float:
    if backoff not in get_args(Backoff):
        raise InvalidInput("backoff", backoff, "is not a backoff", 'choose "exponential" or "fixed"')
    if listed or backoff == "fixed":
        if factor is not None:
            raise InvalidInput("factor", factor, "has no use where the delays are fixed", "leave it out")
        return 1.0
    if factor is None:
        return FACTOR
    if not _is_number(factor) or not 1 <= factor < math.inf:
        raise InvalidInput("factor", factor, "is not a growth factor", "choose a number from 1 up")
    return float(factor)


def _read_cap(cap: Length | None, longest: Duration) -> Duration:
    if cap is None:
        return max(CAP, longest)
    limit = parse_duration(cap, "cap")
    if limit < longest:
        raise InvalidInput("cap", cap, "is shorter than a delay", "choose a longer cap, or a shorter delay")
    return limit


def _check_retries(retries: int) -> int:
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise InvalidInput("retries", retries, "is not a number of retries", "choose a whole number from 0 up")
    return retries


def _check_jitter(jitter: float) -> float:
    if not _is_number(jitter) or not 0 <= jitter <= 1:
        raise InvalidInput("jitter", jitter, "is not a fraction", "choose a number from 0 (none) to 1 (the whole wait)")
    return float(jitter)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_errors(given: ErrorType | Iterable[ErrorType] | None, field: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, Iterable) and not isinstance(given, type):
        raise InvalidInput(field, given, "is not a list of errors", "give exception classes or their full names")
    names = tuple(_read_error(each, field) for each in ([given] if isinstance(given, str | type) else given))
    if not names:
        raise InvalidInput(field, given, "names no error", "leave it out")
    return names


def _read_error(error: ErrorType, field: str) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        return _name(error)
    if not isinstance(error, str) or not all(part.isidentifier() for part in error.split(".")):
        raise InvalidInput(field, error, "is not an error", "give an exception class or its full name")
    name = error.removeprefix("builtins.")
    known = getattr(builtins, name, None)
    if "." not in name and not (isinstance(known, type) and issubclass(known, BaseException)):
        raise InvalidInput(field, error, "is not a built-in error", 'write its full name, like "httpx.ReadTimeout"')
    return name


def _name(error: type) -> str:
    return f"{error.__module__}.{error.__qualname__}".removeprefix("builtins.")
