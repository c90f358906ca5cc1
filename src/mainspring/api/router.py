"""The short way to an endpoint, past the framework: for exact paths whose answers are not streams.

What it finds is served by the same desk as all else; what it does not find (another spelling of a path, another method)
goes the long way, and is answered there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mainspring.api.decoding import Receive
from mainspring.api.endpoint import Endpoint
from mainspring.api.problems import Problem


class Asked(NamedTuple):
    """A request as it came: its ASGI scope, where its body comes from, its headers, and the parts of its path."""

    scope: Any
    receive: Receive
    headers: Mapping[str, str]
    path_params: Mapping[str, str]


ONCE = frozenset({"authorization", "content-encoding", "content-type", "host", "idempotency-key", "if-match",
                  "last-event-id", "mainspring-namespace", "origin", "sec-fetch-site"})  # fmt: skip
"""Headers by which something is decided: sent twice, another program on the way may have gone by the other one."""


def headers_of(scope: Any) -> dict[str, str]:
    """By name; of one that was sent twice, the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def check_once(request: Asked) -> None:
    """Problem if a header by which something is decided was sent twice."""
    if len(request.headers) == len(request.scope["headers"]):
        return
    sent = Counter(name.decode("latin-1") for name, _ in request.scope["headers"])
    if twice := sorted(name for name in ONCE if sent[name] > 1):
        raise Problem("bad-request", f"sent more than once: {', '.join(twice)}", remedy="send it once")


class _Shape(NamedTuple):
    """A path with parameters: the places of its fixed words, and of its parameters."""

    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    endpoint: Endpoint


class Lane:
    """Which endpoint a method and a path are for."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._plain: dict[tuple[str, str], Endpoint] = {}
        self._shapes: dict[tuple[str, int], list[_Shape]] = defaultdict(list)
        for endpoint in endpoints:
            if endpoint.method == "GET":
                self._add("HEAD", endpoint)
            if not (endpoint.patient and endpoint.method == "GET"):  # That may answer with a stream.
                self._add(endpoint.method, endpoint)

    def _add(self, method: str, endpoint: Endpoint) -> None:
        if "{" not in endpoint.path:
            self._plain[method, endpoint.path] = endpoint
            return
        words = list(enumerate(endpoint.path.split("/")))
        fixed = tuple((place, word) for place, word in words if not word.startswith("{"))
        named = tuple((place, word[1:-1]) for place, word in words if word.startswith("{"))
        self._shapes[method, len(words)].append(_Shape(fixed, named, endpoint))

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]] | None:
        """The endpoint, and what its path names."""
        endpoint = self._plain.get((method, path))
        if endpoint is not None:
            return endpoint, {}
        words = path.split("/")
        for shape in self._shapes.get((method, len(words)), ()):
            if all(words[place] == word for place, word in shape.fixed):
                named = {name: words[place] for place, name in shape.named}
                return (shape.endpoint, named) if all(named.values()) else None
        return None
