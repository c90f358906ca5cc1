"""The servers that a client knows: asked in turns, and passed over for a while after they failed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from mainspring.client.errors import check_url
from mainspring.errors import InvalidInput

FIRST_REST_S, LONGEST_REST_S = 1.0, 30.0
"""How long a server that failed is passed over: twice as long after each failure in a row."""


class Server:
    """One address, and how it did lately."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.failures = 0
        self.rests_until = 0.0


class Servers:
    """A breaker for each server. One that rests is asked again once its rest is over, or if all rest."""

    def __init__(self, urls: str, monotonic: Callable[[], float]) -> None:
        """`urls`: one, or several separated by commas."""
        written = [each.strip() for each in urls.split(",")] if isinstance(urls, str) else [urls]
        self.all = [Server(url) for url in dict.fromkeys(check_url(each) for each in written if each)]
        if not self.all:
            raise InvalidInput("server", urls, "names no server", "write it like http://127.0.0.1:8321")
        self._monotonic = monotonic
        self._turn = 0

    def choose(self, tried: Collection[Server] = ()) -> Server:
        """The next in turn that does not rest and was not tried yet; else the one whose rest is over first."""
        now = self._monotonic()
        order = [self.all[(self._turn + offset) % len(self.all)] for offset in range(len(self.all))]
        fresh = [each for each in order if each not in tried] or order
        chosen = next((each for each in fresh if each.rests_until <= now), None)
        chosen = chosen or min(fresh, key=lambda each: each.rests_until)
        self._turn = (self.all.index(chosen) + 1) % len(self.all)
        return chosen

    def has_other(self, tried: Collection[Server]) -> bool:
        """Whether there is a server to turn to at once: one that was not tried, and does not rest."""
        now = self._monotonic()
        return any(each not in tried and each.rests_until <= now for each in self.all)

    def note(self, server: Server, *, well: bool) -> None:
        """How a request went, as far as that is the server's doing."""
        if well:
            server.failures, server.rests_until = 0, 0.0
            return
        server.failures += 1
        rest_s = min(FIRST_REST_S * 2.0 ** min(server.failures - 1, 10), LONGEST_REST_S)
        server.rests_until = self._monotonic() + rest_s
