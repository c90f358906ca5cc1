"""One field of a cron expression: what may stand in it, and which values it names."""

from __future__ import annotations

import re

import msgspec

from mainspring.errors import InvalidCron

FIRST_YEAR = 1970
LAST_YEAR = 2199

# ASCII letters and digits spelled out: `\d` and IGNORECASE would let other scripts' digits and letters through.
_RANGE = re.compile(r"(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?")
_BARE_STEP = re.compile(r"/[0-9]+")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Kind(msgspec.Struct, frozen=True):
    """A position in an expression: its name in errors, its range, and the names it knows."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Stand for `low`, `low + 1` and so on."""
    wraps: bool = False
    """Whether a range may run past the end and on from the start, as FRI-MON does."""
    special_forms: str = ""
    """Examples of what else may stand here, for errors."""
    bare_steps: bool = False
    """Whether `/15` stands for `*/15`, as in Quartz."""

    @property
    def period(self) -> int:
        """The number of values after which a range wraps; in Unix both 0 and 7 are Sunday."""
        return 7 if self.names is _WEEKDAYS else self.high - self.low + 1


def _of_quartz(kind: Kind) -> Kind:
    return msgspec.structs.replace(kind, wraps=True, bare_steps=True)


_CLOCK = (Kind("second", 0, 59), Kind("minute", 0, 59), Kind("hour", 0, 23))
_DAY_AND_MONTH = (
    Kind("day of month", 1, 31, special_forms=", L, L-3, 15W or LW"),
    Kind("month", 1, 12, _MONTHS),
)
UNIX_WEEKDAY = Kind("day of week", 0, 7, _WEEKDAYS, wraps=True, special_forms=", 5L or MON#2")
_QUARTZ_WEEKDAY = Kind("day of week", 1, 7, _WEEKDAYS, special_forms=", 6L or MON#2")

UNIX_FIELDS = (*_CLOCK, *_DAY_AND_MONTH, UNIX_WEEKDAY)
QUARTZ_FIELDS = (
    *(_of_quartz(kind) for kind in (*_CLOCK, *_DAY_AND_MONTH, _QUARTZ_WEEKDAY)),
    Kind("year", FIRST_YEAR, LAST_YEAR),
)


class Field(msgspec.Struct, frozen=True):
    """The text at one position of an expression, ready to be read."""

    expression: str
    text: str
    kind: Kind

    @property
    def starred(self) -> bool:
        """Begins with `*`: what cron means by "not restricted", for the day rule and for daylight saving."""
        return self.text.startswith(("*", "/"))

    def parts(self) -> list[str]:
        """The members of the list that the field is; most have one."""
        parts = self.text.split(",")
        if not all(parts):
            raise self.refusal(self.text, "has nothing before or after a comma", "put a value there or drop the comma")
        return parts

    def values(self, part: str) -> list[int]:
        """The values that `*`, a value or a range names, with or without a step."""
        kind = self.kind
        return [
            kind.low + (value - kind.low) % kind.period if value > kind.high else value for value in self._range(part)
        ]

    def _range(self, part: str) -> range:
        """The values of a range; those of a range that wraps exceed `high`."""
        match = _RANGE.fullmatch(f"*{part}" if self.kind.bare_steps and _BARE_STEP.fullmatch(part) else part)
        if match is None:
            raise self._unreadable(part)
        star, first, last, step = match.groups()
        kind = self.kind
        low = kind.low if star else self.value(first, part)
        if last is not None:
            high = self._range_end(low, self.value(last, part), part)
        else:
            high = kind.high if star or step else low
        return range(low, high + 1, 1 if step is None else self._step(int(step), part))

    def mask(self) -> int:
        """The whole field as bits: bit n is set when it names the value n."""
        bits = 0
        for part in self.parts():
            for value in self.values(part):
                bits |= 1 << value
        return bits

    def value(self, text: str, part: str) -> int:
        """One number or name, which must lie in the field's range."""
        kind = self.kind
        if not text.isdigit():
            if text.upper() not in kind.names:
                raise self._unreadable(part)
            return kind.low + kind.names.index(text.upper())
        number = int(text)
        if not kind.low <= number <= kind.high:
            raise self.refusal(part, "is out of range", f"use {kind.low} to {kind.high}")
        return number

    def refusal(self, part: str, problem: str, remedy: str) -> InvalidCron:
        """The error for a part of this field."""
        return InvalidCron("cron", self.expression, f"cannot be used: {self.kind.name} {part!r} {problem}", remedy)

    def _range_end(self, low: int, high: int, part: str) -> int:
        if low <= high:
            return high
        kind = self.kind
        if not kind.wraps:
            remedy = f"if it should run past the end write {low}-{kind.high},{kind.low}-{high}"
            raise self.refusal(part, "is a range that runs backwards", remedy)
        return high + kind.period

    def _step(self, step: int, part: str) -> int:
        largest = self.kind.high - self.kind.low + 1
        if step == 0:
            raise self.refusal(part, "has a step of 0", f"use a step of 1 to {largest}")
        if step > largest:
            # Cron silently reads */90 as "once an hour"; its author means every 90 minutes.
            remedy = f"use a step of 1 to {largest}, or an interval (`every`) for longer ones"
            raise self.refusal(part, "steps further than the field reaches", remedy)
        return step

    def _unreadable(self, part: str) -> InvalidCron:
        kind = self.kind
        if "?" in part:
            remedy = "`?` stands only in day of month or day of week of the Quartz spelling; write *"
        else:
            names = f" (or {kind.names[0]} to {kind.names[-1]})" if kind.names else ""
            low, high = kind.low, kind.high
            remedy = f"write {low} to {high}{names}, a range like {low}-{high}, a list, *, a step like */2"
            remedy += kind.special_forms
        return self.refusal(part, "cannot be read", remedy)
