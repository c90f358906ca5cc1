"""Ids: 26 characters that sort by time, written in Crockford's base 32 (a ULID).

A run of a firing has the id that its firing implies, so the same firing planned twice is the same run.
"""

from __future__ import annotations

from hashlib import blake2b

from mainspring.core.instants import MILLISECOND, Instant

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_VALUES = {character: value for value, character in enumerate(ALPHABET)}
LENGTH = 26
TAIL = 8
"""The number of final characters that identify a run to people: even their first few mostly differ."""


def encode_time(instant: Instant) -> str:
    """The first ten characters of an id: the milliseconds of an instant."""
    return encode_bits(max(instant, 0) // MILLISECOND, 10)


def encode_bits(number: int, length: int) -> str:
    """A number in `length` (even) characters."""
    return "".join([PAIRS[number >> shift & 1023] for shift in range(5 * length - 10, -1, -10)])


def time_of(run_id: str) -> Instant | None:
    """The millisecond of which `encode_time` made the beginning of an id; None for an id that contains no time."""
    number = 0
    for character in run_id[:10]:
        value = _VALUES.get(character)
        if value is None:
            return None
        number = number << 5 | value
    return number * MILLISECOND if len(run_id) >= 10 else None


def run_id_of(job_id: str, fire_at: Instant, region: str, idx: int) -> str:
    """The id of the run that one firing, region and index stands for."""
    seed = blake2b(f"{job_id}\0{fire_at}\0{region}\0{idx}".encode(), digest_size=10).digest()
    return encode_time(fire_at) + encode_bits(int.from_bytes(seed, "big"), 16)


def fraction_of(*parts: object) -> float:
    """A number in [0, 1) that looks random but depends only on the parts: every node computes the same jitter."""
    seed = blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(seed, "big") / 2**64
