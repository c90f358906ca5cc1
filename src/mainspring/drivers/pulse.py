"""Whether a server still answers, asked at intervals beside the calls: for adapters whose receive never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

EVERY_S: Final = 0.3
"""Two answers missed open the breaker, so workers turn to the store within a second."""


class Pulse:
    """The result of the last question. `trouble` is empty while the server answers."""

    def __init__(
        self, ask: Callable[[], Awaitable[object]], timeout_s: float, give_up_s: float, every_s: float = EVERY_S
    ) -> None:
        self._ask = ask
        self._timeout_s = timeout_s
        self._give_up_s = give_up_s
        self._every_s = every_s
        self.trouble = ""

    async def run(self) -> None:
        """Ask until cancelled, or until there was no answer for `give_up_s`: then TimeoutError says why. A late answer
        is still awaited, since many clients close a channel whose call is cancelled."""
        loop = asyncio.get_running_loop()
        answered_at = loop.time()
        while True:
            asked = asyncio.ensure_future(self._ask())
            try:
                await asyncio.wait({asked}, timeout=self._timeout_s)
                if not asked.done():
                    self.trouble = f"no answer within {self._timeout_s:g} s"
                    await asyncio.wait({asked}, timeout=max(0.0, answered_at + self._give_up_s - loop.time()))
                error = asked.exception() if asked.done() and not asked.cancelled() else None
                if not asked.done() or asked.cancelled() or error is not None:
                    self.trouble = str(error or self.trouble).strip() or type(error).__name__
                else:
                    self.trouble, answered_at = "", loop.time()
            finally:
                asked.cancel()
            if loop.time() - answered_at >= self._give_up_s:
                raise TimeoutError(self.trouble)
            await asyncio.sleep(self._every_s)
