"""How much of a long piece of work one transaction does."""

from __future__ import annotations

from typing import Final

AIM_S: Final = 0.010
"""How long one portion may hold the write lock, without its commit: firings and claims wait for it."""
LEAST: Final = 50
"""The fewest rows of a portion, however slow the last one was: each transaction has a fixed cost."""


class Portion:
    """Rows that one transaction may take on, by how long the last ones took."""

    __slots__ = ("most", "rows")

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = min(most, 4 * LEAST)

    def measure(self, rows: int, took_s: float) -> None:
        """Note how long a number of rows took. At most twice as many are taken on next, since the first of a kind may
        be cheap; a portion that was slow is cut at once to what would have been in time."""
        if took_s > AIM_S:
            self.rows = max(int(min(rows, self.rows) * AIM_S / took_s), min(LEAST, self.most))
        elif rows >= self.rows:
            fitting = self.rows * 2 if took_s <= AIM_S / 2 else int(self.rows * AIM_S / took_s)
            self.rows = min(fitting, self.most)
