"""The text of strangers, made unable to steer a terminal: what a run wrote, an error, a name."""

from __future__ import annotations

import re

_CONTROLS = (*range(32), *range(127, 160))
"""C0 and C1: a terminal takes them for commands (`ESC`, and `CSI` and `OSC` in one character)."""
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Embeddings, overrides and isolates: they show text in another order than it has."""
_BREAKS = (0x2028, 0x2029)

_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in (*_DIRECTIONS, *_BREAKS)
}
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_DIRECTIONS, *_BREAKS)}
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")


def harmless(text: str) -> str:
    """The text with its control characters in a visible form, as in `\\x1b]0;`; lines and tabs stay."""
    return text.translate(_VISIBLE)


def harmless_line(text: str) -> str:
    """A line of output. Colours, which many programs write unasked, are left out: they would hide the words."""
    return harmless(_COLOR.sub("", text))


def harmless_json(text: str) -> str:
    """JSON that means the same, in which no character can steer a terminal. (JSON itself escapes those below 32.)"""
    return text.translate(_ESCAPED)
