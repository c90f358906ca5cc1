"""Price files: TOML with one table per component and per saving. Without a file, the prices are those of the worked
example (`reference`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from mainspring.errors import InvalidInput
from mainspring.ops.cost.bill import UNITS, Price, Saving
from mainspring.ops.cost.reference import PRICES, SAVINGS


class PriceList(NamedTuple):
    """What things cost, and how to spend less."""

    prices: Sequence[Price]
    savings: Sequence[Saving]


DEFAULT_PRICES = PriceList(PRICES, SAVINGS)


def read_prices(text: str, name: str) -> PriceList:
    """The prices in a file; InvalidInput names what is wrong in it."""
    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(
            "prices", name, f"is not TOML: {error}", "`mainspring cost --help` shows the format"
        ) from None
    components = _tables(tables, "components", name)
    if not components:
        raise InvalidInput("prices", name, "names no component", "add a table [components.workers]")
    prices = [_price(component, words, name) for component, words in components.items()]
    savings = [_saving(each, words, {price.component for price in prices}, name)
               for each, words in _tables(tables, "savings", name).items()]  # fmt: skip
    return PriceList(prices, savings)


def _tables(tables: Mapping[str, object], key: str, name: str) -> dict[str, Mapping[str, object]]:
    found = tables.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise InvalidInput("prices", name, f"has no tables under {key}", f"write [{key}.NAME]")
    return found


def _price(component: str, words: Mapping[str, object], name: str) -> Price:
    for unit in UNITS:
        if words.get("unit") == unit:
            return Price(component, unit, _number(words, "price", component, name))
    wrong = words.get("unit")
    raise InvalidInput("prices", name, f"prices {component} by {wrong!r}", f"choose one of {', '.join(UNITS)}")


def _saving(saving: str, words: Mapping[str, object], components: set[str], name: str) -> Saving:
    component, share = words.get("component"), _number(words, "share", saving, name)
    if component not in components:
        known = ", ".join(sorted(components))
        raise InvalidInput(
            "prices", name, f"saves by {saving} on {component!r}, which has no price", f"name one: {known}"
        )
    if share > 1:
        raise InvalidInput("prices", name, f"saves a share of {share} by {saving}", "write a number from 0 to 1")
    return Saving(saving, str(component), share, str(words.get("trade_off", "")))


def _number(words: Mapping[str, object], key: str, of: str, name: str) -> Decimal:
    value = words.get(key)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = Decimal(value)
        if number.is_finite() and number >= 0:
            return number
    raise InvalidInput("prices", name, f"has the {key} {value!r} for {of}", "write a number that is not negative")
