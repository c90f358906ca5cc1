from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration
from mainspring.core.runs.retry import Again, GiveUp, Retry, RetryPolicy, decide, error_names
from mainspring.errors import InvalidInput

TIMEOUT = ("httpx.ReadTimeout", "httpx.TimeoutException", "httpx.TransportError", "builtins.Exception")

SECONDS = st.floats(0, 7_200, allow_nan=False)
NOISES = st.floats(0, 1, exclude_max=True)
PATIENT = 20_000
FAILURES = st.integers(1, PATIENT - 10)
POLICIES = st.one_of(
    st.builds(
        Retry,
        st.just(PATIENT),
        delay=SECONDS,
        factor=st.floats(1, 1e6),
        cap=st.floats(7_200, 1e6),
        jitter=st.floats(0, 1),
    ),
    st.builds(Retry, st.just(PATIENT), delays=st.lists(SECONDS, min_size=1, max_size=5), jitter=st.floats(0, 1)),
)


def waits(policy: Retry, noise: float = 0.0) -> list[Duration]:
    """The waits before each retry, until the policy gives up."""
    found: list[Duration] = []
    while isinstance(decision := decide(policy, len(found) + 1, ["ValueError"], noise), Again):
        found.append(decision.delay)
    return found


def gives_up(policy: Retry, *error_types: str) -> bool:
    return isinstance(decide(policy, 1, error_types, 0.0), GiveUp)


def test_by_default_three_retries_follow_after_ten_seconds_and_four_times_longer_each() -> None:
    assert waits(Retry()) == waits(Retry(3)) == [10 * SECOND, 40 * SECOND, 160 * SECOND]


def test_exponential_waits_grow_to_the_cap() -> None:
    policy = Retry(6, delay="1m", factor=2, cap="10m")
    assert waits(policy) == [1 * MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE, 10 * MINUTE, 10 * MINUTE]


def test_fixed_waits_stay() -> None:
    assert waits(Retry(4, delay="30s", backoff="fixed")) == [30 * SECOND] * 4


def test_listed_waits_are_one_retry_each() -> None:
    assert waits(Retry(delays=["1s", timedelta(seconds=10), 60])) == [SECOND, 10 * SECOND, MINUTE]


def test_the_last_of_the_listed_waits_repeats_and_fewer_retries_use_fewer() -> None:
    assert waits(Retry(4, delays=["1s", "10s"])) == [SECOND, 10 * SECOND, 10 * SECOND, 10 * SECOND]
    assert waits(Retry(1, delays=["1s", "10s"])) == [SECOND]


def test_no_retries_is_a_policy() -> None:
    assert decide(Retry(0), 1, ["ValueError"], 0.0) == GiveUp("it has no retries")


def test_giving_up_after_the_last_retry_says_so() -> None:
    assert decide(Retry(2), 3, ["ValueError"], 0.0) == GiveUp("all retries are used up (2)")


def test_a_delay_of_zero_stays_zero_however_often() -> None:
    policy = Retry(100_000, delay=0)
    assert [decide(policy, failures, [], 0.5) for failures in (1, 2, 1_100, 100_000)] == [Again(0)] * 4


def test_the_cap_follows_a_longer_delay_unless_it_is_given() -> None:
    assert waits(Retry(2, delay="3h")) == [3 * HOUR, 3 * HOUR]
    assert waits(Retry(delays=["1s", "1d"])) == [SECOND, DAY]


@given(POLICIES, FAILURES, NOISES)
def test_jitter_takes_off_at_most_its_fraction_and_the_cap_always_holds(
    policy: Retry, failures: int, noise: float
) -> None:
    longest = decide(policy, failures, [], 0.0)
    decision = decide(policy, failures, [], noise)
    assert isinstance(longest, Again)
    assert isinstance(decision, Again)
    assert decision.delay <= longest.delay <= policy.cap
    assert decision.delay >= math.floor(longest.delay * (1 - policy.jitter))


@given(POLICIES, FAILURES)
def test_past_the_listed_delays_waits_never_shrink(policy: Retry, more: int) -> None:
    failures = len(policy.delays) + more
    before, after = decide(policy, failures - 1, [], 0.0), decide(policy, failures, [], 0.0)
    assert isinstance(before, Again)
    assert isinstance(after, Again)
    assert before.delay <= after.delay


def test_ten_thousand_failures_do_not_overflow() -> None:
    assert decide(Retry(10_000, factor=1e300), 10_000, [], 0.0) == Again(HOUR)


def test_different_noise_spreads_runs_that_failed_together() -> None:
    delays = {decide(Retry(jitter=0.5), 1, [], step / 100) for step in range(100)}
    assert len(delays) == 100


@given(POLICIES, st.integers(0, 2 * DAY), NOISES)
def test_an_asked_delay_is_never_undercut_except_by_the_cap(policy: Retry, asked: Duration, noise: float) -> None:
    decision = decide(policy, 1, [], noise, asked=asked)
    assert isinstance(decision, Again)
    assert min(asked, policy.cap) <= decision.delay <= min(asked * (1 + policy.jitter), policy.cap) + 1


def test_an_asked_delay_gives_no_further_retries() -> None:
    assert isinstance(decide(Retry(1), 2, [], 0.0, asked=SECOND), GiveUp)


def test_without_a_choice_every_error_is_retried() -> None:
    assert not gives_up(Retry(), *TIMEOUT)
    assert not gives_up(Retry())


def test_only_chosen_errors_and_their_subclasses_are_retried() -> None:
    policy = Retry(on=["httpx.TransportError", OSError])
    assert not gives_up(policy, *TIMEOUT)
    assert not gives_up(policy, *error_names(ConnectionResetError))
    assert gives_up(policy, *error_names(ValueError))
    assert gives_up(policy)


def test_never_beats_on() -> None:
    policy = Retry(on=Exception, never="httpx.TimeoutException")
    assert gives_up(policy, *TIMEOUT)
    assert not gives_up(policy, "httpx.ConnectError", "httpx.TransportError", "builtins.Exception")


@pytest.mark.parametrize("written", [TimeoutError, "TimeoutError", "builtins.TimeoutError"])
@pytest.mark.parametrize("reported", ["TimeoutError", "builtins.TimeoutError"])
def test_built_in_errors_match_with_and_without_their_module(written: type[BaseException] | str, reported: str) -> None:
    assert not gives_up(Retry(on=[written]), reported)
    assert gives_up(Retry(never=[written]), reported)


def test_giving_up_on_an_error_names_it() -> None:
    assert decide(Retry(never=OSError), 1, error_names(FileNotFoundError), 0.0) == GiveUp(
        "FileNotFoundError is among the errors that are never retried"
    )
    assert decide(Retry(on=OSError), 1, error_names(KeyError), 0.0) == GiveUp(
        "KeyError is not among the errors that are retried (OSError)"
    )


def test_the_names_of_an_error_are_those_of_the_exceptions_it_derives_from() -> None:
    assert error_names(ConnectionResetError) == (
        "ConnectionResetError",
        "ConnectionError",
        "OSError",
        "Exception",
        "BaseException",
    )
    assert error_names(InvalidInput)[0] == "mainspring.errors.InvalidInput"


def test_an_error_class_defined_in_a_function_can_be_chosen() -> None:
    class Flaky(Exception):
        pass

    assert not gives_up(Retry(on=Flaky), *error_names(Flaky))


@given(POLICIES)
def test_a_policy_survives_json(policy: Retry) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Retry) == policy


def test_what_is_stored_is_microseconds_and_names() -> None:
    policy = Retry(5, delay=30, cap="1h", on=[TimeoutError, "httpx.ReadTimeout"])
    assert msgspec.to_builtins(policy) == {
        "retries": 5,
        "delays": (30 * SECOND,),
        "factor": 4.0,
        "cap": HOUR,
        "jitter": 0.1,
        "on": ("TimeoutError", "httpx.ReadTimeout"),
        "never": (),
    }


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": True}, "retries"),
        ({"retries": 2.5}, "retries"),
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"delay": "1s", "delays": ["1s"]}, "delay"),
        ({"delays": []}, "delays"),
        ({"delays": "1s"}, "delays"),
        ({"delays": 5}, "delays"),
        ({"delays": ["1s", "later"]}, "delays[1]"),
        ({"delays": ["1s"], "factor": 2}, "factor"),
        ({"backoff": "linear"}, "backoff"),
        ({"backoff": ["fixed"]}, "backoff"),
        ({"backoff": "fixed", "factor": 2}, "factor"),
        ({"factor": 0.5}, "factor"),
        ({"factor": math.inf}, "factor"),
        ({"factor": math.nan}, "factor"),
        ({"factor": "2"}, "factor"),
        ({"cap": "5s"}, "cap"),
        ({"cap": "never"}, "cap"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
        ({"jitter": math.nan}, "jitter"),
        ({"jitter": True}, "jitter"),
        ({"on": []}, "on"),
        ({"on": 5}, "on"),
        ({"on": [int]}, "on"),
        ({"on": "ReadTimeout"}, "on"),
        ({"on": "int"}, "on"),
        ({"never": ["not a name"]}, "never"),
        ({"never": [""]}, "never"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field_named(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Retry(**arguments)
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fixed-5m", [5 * MINUTE] * 6),
        ("doubling-1m", [2**n * MINUTE for n in range(6)]),
        ("doubling-2m", [2**n * MINUTE for n in range(1, 7)]),
        ("doubling-30s-to-15m", [30 * SECOND, *(2**n * MINUTE for n in range(4)), 15 * MINUTE]),
        ("quadrupling-10s", [10 * SECOND * 4**n for n in range(5)] + [HOUR]),
    ],
)
def test_waits_have_names(policy: RetryPolicy, expected: list[Duration]) -> None:
    assert waits(Retry(6, policy=policy)) == expected
    assert Retry(policy=policy).retries == 3


def test_a_policy_by_name_takes_no_waits_besides() -> None:
    assert Retry(policy="quadrupling-10s") == Retry()
    unknown: Any = "often"
    with pytest.raises(InvalidInput, match=r"policy: 'often' is not a retry policy; choose one of fixed-5m"):
        Retry(policy=unknown)
    for words in ({"delay": "1s"}, {"factor": 2}, {"delays": ["1s"]}, {"cap": "1h"}, {"backoff": "fixed"}):
        with pytest.raises(InvalidInput, match="together with the policy fixed-5m"):
            Retry(policy="fixed-5m", **words)


def test_an_error_has_one_spelling() -> None:
    verdict = decide(Retry(on=ConnectionError), 1, ["builtins.ValueError"], 0.0)
    assert verdict == GiveUp("ValueError is not among the errors that are retried (ConnectionError)")
