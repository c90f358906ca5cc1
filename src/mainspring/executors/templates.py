"""Replaces `${name}` in texts and in JSON by values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill(text: str, values: Mapping[str, Any], write: Callable[[str], str] = str) -> str:
    """The text with every `${name}` replaced by its value, passed through `write`. Raises ValueError for an unknown
    name."""

    def value(match: re.Match[str]) -> str:
        found = _find(match[1], values)
        return write(found if isinstance(found, str) else msgspec.json.encode(found).decode())

    return _PLACE.sub(value, text)


def fill_json(value: Any, values: Mapping[str, Any]) -> Any:
    """JSON with its texts filled. A text that is only `${name}` becomes the value itself."""
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        return _find(whole[1], values) if whole else fill(value, values)
    if isinstance(value, dict):
        return {name: fill_json(each, values) for name, each in value.items()}
    return [fill_json(each, values) for each in value] if isinstance(value, list) else value


def _find(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise ValueError(f"${{{name}}} has no value: add {name} to data")
    return values[name]
