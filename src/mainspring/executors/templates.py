"""`${name}` in texts and in JSON, replaced by values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill(text: str, values: Mapping[str, Any], write: Callable[[str], str] = str) -> str:
    """The text with every place filled, each value passed through `write`. ValueError names one that has none."""

    def value(match: re.Match[str]) -> str:
        found = _find(match[1], values)
        return write(found if isinstance(found, str) else msgspec.json.encode(found).decode())

    return _PLACE.sub(value, text)


def fill_json(value: Any, values: Mapping[str, Any]) -> Any:
    """JSON with the places in its texts filled; a text that is nothing but a place becomes the value itself."""
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        return _find(whole[1], values) if whole else fill(value, values)
    if isinstance(value, dict):
        return {name: fill_json(each, values) for name, each in value.items()}
    return [fill_json(each, values) for each in value] if isinstance(value, list) else value


def _find(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise ValueError(f"${{{name}}} stands for nothing: data has no {name}")
    return values[name]
