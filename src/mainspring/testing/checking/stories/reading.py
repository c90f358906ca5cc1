"""Reading single records: what they must have, what they carry, and when they took effect.

That is often known only within bounds. Whatever the checker concludes holds wherever within them it happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from mainspring.core.instants import Instant
from mainspring.errors import InvalidInput
from mainspring.testing.history import Record

T = TypeVar("T")


def earliest(record: Record) -> Instant:
    """It took effect then or later; and if it was answered, not after `store`."""
    return record.store if record.sent is None else record.sent


def surely_before(one: Record, other: Record) -> bool:
    """Whether one thing, which was answered, took effect before the other, wherever within their bounds."""
    if one.store < earliest(other):
        return True
    return one.sent is None and other.sent is None and one.store == other.store and one.seq < other.seq


def given(record: Record, field: str, value: T | None) -> T:
    """A value that a record of its kind must have."""
    if value is None:
        raise InvalidInput(field, value, f"is missing in record {record.seq} ({record.what})", "see testing.history")
    return value


def carried(record: Record, decode: Callable[[str], T]) -> T:
    """The JSON that a record of its kind must carry."""
    text = given(record, "data", record.data)
    try:
        return decode(text)
    except msgspec.DecodeError as error:
        problem = f"of record {record.seq} ({record.what}) cannot be read: {error}"
        raise InvalidInput("data", text, problem, "see testing.history") from None
