"""Forms: what submissions that differ in their arguments only have in common is found out once, and remembered."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.core.model import NewRun, Run
from mainspring.core.states import PENDING
from mainspring.operations.views import View, iso, run_view
from mainspring.sdk.task import Recipe

MOST_FORMS = 1_024
_SIMPLE = frozenset({"task", "args", "priority", "queue", "timeout", "retry", "region"})
"""Fields that mean the same to a caller at any time: when it asks does not matter to what they come to."""

_OWN = ("run_id", "due_at", "created_at", "updated_at", "namespace", "args")
"""What each answer has of its own."""

Key = tuple[str | tuple[str, Any], ...]


class Form:
    """What one submission came to, for the next of its kind: how to make its run, and how to answer."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._parts, self._order = _split(run_view(accepted(recipe.run("", "{}", "", 0))))

    def answer(self, run: NewRun, warnings: Sequence[str] = ()) -> bytes:
        """The run just after it was accepted, as it is shown: the same as `run_view` gives, in less time."""
        at = f'"{iso(run.due_at)}"'.encode()
        values = {
            "run_id": f'"{run.id}"'.encode(),
            "due_at": at,
            "created_at": at,
            "updated_at": at,
            "namespace": msgspec.json.encode(run.namespace),
            "args": run.args.encode(),
        }
        pieces = [self._parts[0]]
        for name, part in zip(self._order, self._parts[1:], strict=True):
            pieces += (values[name], part)
        if warnings:
            pieces[-1] = pieces[-1].removesuffix(b"}") + b',"warnings":' + msgspec.json.encode(warnings) + b"}"
        return b"".join(pieces)


def _split(view: View) -> tuple[list[bytes], list[str]]:
    """What is between the values that differ, and the order of those."""
    marks = {name: secrets.token_hex(16) for name in _OWN}
    text = msgspec.json.encode(view | marks)
    order = sorted(marks, key=lambda name: text.index(marks[name].encode()))
    parts = []
    for name in order:
        part, _, text = text.partition(f'"{marks[name]}"'.encode())
        parts.append(part)
    return [*parts, text], order


class Forms:
    """Bounded, and forgotten all at once."""

    def __init__(self) -> None:
        self._known: dict[Key, Form] = {}

    @staticmethod
    def key(subject: str, given: Mapping[str, Any]) -> Key | None:
        """What a body is alike with others of the same caller by; None if it is not simple enough."""
        if not _SIMPLE.issuperset(given):
            return None
        return (subject, *[pair for pair in given.items() if pair[0] != "args"])

    def find(self, key: Key) -> Form | None:
        """The form of a body seen before."""
        try:
            return self._known.get(key)
        except TypeError:
            return None  # A retry policy in many words.

    def keep(self, key: Key, form: Form) -> None:
        """Remember."""
        if len(self._known) >= MOST_FORMS:
            self._known.clear()
        try:
            self._known[key] = form
        except TypeError:
            return


def accepted(run: NewRun) -> Run:
    """A run that waits for nothing, as it is just after it was accepted."""
    return Run(
        id=run.id,
        namespace=run.namespace,
        queue=run.queue,
        region=run.region,
        task=run.task,
        args=run.args,
        state=PENDING,
        reason="",
        priority=run.priority,
        due_at=run.due_at,
        created_at=run.created_at,
        options=run.options,
        expires_at=run.expires_at,
        key=run.key,
        retry_of=run.retry_of,
    )
