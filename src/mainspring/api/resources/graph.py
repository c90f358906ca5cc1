"""Graphs over HTTP: a batch in which runs wait for other runs of the batch, named by their places (`#0`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from mainspring.api.problems import Wrong
from mainspring.api.schemas.bodies import RunBody
from mainspring.sdk.graph import GROUP

MARK = "#"
"""The name of a run of the same batch begins so; its place follows, counted from 0."""
_FIELDS = ("after", "dependencies")


def connect_graph(bodies: Sequence[Any], ids: Sequence[str], wrong: Wrong) -> str | None:
    """Put ids in the place of names like `#0`. The tag that all runs of the graph now have; None if the batch is no
    graph: no run of it waits for another one."""
    named = [(index, body) for index, body in enumerate(bodies) if any(_names(body, field) for field in _FIELDS)]
    if not named:
        return None
    for index, body in named:
        for field in _FIELDS:
            if _names(body, field):
                place = f"runs[{index}].{field}"
                setattr(body, field, [_id_of(each, ids[:index], place, wrong) for each in getattr(body, field)])
    tag = GROUP + ids[0]
    for index, body in enumerate(bodies):
        if body.unique not in (UNSET, None):
            wrong.add(f"runs[{index}].unique", "is that of one run, and this one is part of a graph", "leave it out")
        body.tags = [*(body.tags or ()), tag]
    return tag


def _names(body: RunBody, field: str) -> bool:
    """Whether a run waits for one of the same batch."""
    return any(each.startswith(MARK) for each in getattr(body, field) or ())


def _id_of(name: str, earlier: Sequence[str], field: str, wrong: Wrong) -> str:
    """The id of a run that comes earlier in the batch; a name without the mark is an id already."""
    if not name.startswith(MARK):
        return name
    place = name.removeprefix(MARK)
    if place.isascii() and place.isdecimal() and len(place) < 6 and int(place) < len(earlier):
        return earlier[int(place)]
    wrong.add(field, f"names {name}, which is no earlier run of the batch", "name runs from #0 up to the one before")
    return name
