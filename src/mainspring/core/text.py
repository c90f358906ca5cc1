"""Text of users, made storable: what a task prints or raises must not spoil the transaction that records it."""

from __future__ import annotations

from typing import overload


@overload
def clean(text: str) -> str: ...
@overload
def clean(text: None) -> None: ...
def clean(text: str | None) -> str | None:
    """Lone surrogates and NUL become a replacement character; everything else stays."""
    if not text or (text.isascii() and "\0" not in text):
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
