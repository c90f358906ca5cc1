"""The router: the endpoint that serves a method and a path, and the parameters that the path names.

It is the only way to an endpoint. Slashes that are repeated or trailing do not matter; every other spelling of a path
is another path, and nothing is served there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mainspring.api.endpoint import Endpoint

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
"""The methods that an endpoint may have. HEAD is served wherever GET is."""

_SLASHES = re.compile("/{2,}")


class Match(NamedTuple):
    """An endpoint and the parameters of the path that led to it."""

    endpoint: Endpoint
    parameters: Mapping[str, str]


class _Pattern(NamedTuple):
    """A path with parameters: the positions of its fixed segments and of its parameters."""

    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    endpoint: Endpoint

    def match(self, segments: Sequence[str]) -> Match | None:
        """The parameters, if the fixed segments are equal and no parameter is empty."""
        if any(segments[position] != segment for position, segment in self.fixed):
            return None
        parameters = {name: segments[position] for position, name in self.named}
        return Match(self.endpoint, parameters) if all(parameters.values()) else None


class _Prefix(NamedTuple):
    """A path whose last parameter, written `{name*}`, is all the rest, with its slashes."""

    segments: tuple[str, ...]
    name: str
    endpoint: Endpoint

    def match(self, segments: Sequence[str]) -> Match | None:
        """The parameters, if there is a rest, and no parameter is empty."""
        length = len(self.segments)
        if len(segments) <= length:
            return None
        parameters = {self.name: "/".join(segments[length:])}
        for expected, segment in zip(self.segments, segments, strict=False):
            if expected.startswith("{"):
                parameters[expected[1:-1]] = segment
            elif expected != segment:
                return None
        return Match(self.endpoint, parameters) if all(parameters.values()) else None


class Router:
    """Finds the endpoint of a request: exact paths by one look-up, paths with parameters by their segments."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._exact: dict[tuple[str, str], Match] = {}
        self._patterns: dict[tuple[str, int], list[_Pattern]] = defaultdict(list)
        self._prefixes: dict[str, list[_Prefix]] = defaultdict(list)
        """The longest first, so that the most specific one is found."""
        for endpoint in endpoints:
            self._add(endpoint.method, endpoint)
            if endpoint.method == "GET":
                self._add("HEAD", endpoint)

    def _add(self, method: str, endpoint: Endpoint) -> None:
        if endpoint.path.endswith("*}"):
            prefix, _, name = endpoint.path.removesuffix("*}").rpartition("/{")
            self._prefixes[method].append(_Prefix(tuple(prefix.split("/")), name, endpoint))
            self._prefixes[method].sort(key=lambda each: -len(each.segments))
            return
        if "{" not in endpoint.path:
            self._exact[method, endpoint.path] = Match(endpoint, {})
            return
        segments = list(enumerate(endpoint.path.split("/")))
        fixed = tuple((position, segment) for position, segment in segments if not segment.startswith("{"))
        named = tuple((position, segment[1:-1]) for position, segment in segments if segment.startswith("{"))
        self._patterns[method, len(segments)].append(_Pattern(fixed, named, endpoint))

    def find(self, method: str, path: str) -> Match | None:
        """The endpoint for a method and a path; None if there is none."""
        match = self._find(method, path)
        if match is None and (plain := _SLASHES.sub("/", path).rstrip("/") or "/") != path:
            return self._find(method, plain)
        return match

    def _find(self, method: str, path: str) -> Match | None:
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact
        segments = path.split("/")
        patterns = self._patterns.get((method, len(segments)), ())
        candidates = (*patterns, *self._prefixes.get(method, ()))
        return next((match for each in candidates if (match := each.match(segments)) is not None), None)

    def allowed_methods(self, path: str) -> list[str]:
        """The methods that are served at a path, in alphabetical order; none if the path is not served."""
        return [method for method in METHODS if self.find(method, path) is not None]
