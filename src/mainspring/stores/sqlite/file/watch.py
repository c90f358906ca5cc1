"""Whether another process has written to the file: SQLite does not notify, so this looks."""

from __future__ import annotations

import sqlite3
import time

WATCH_S = 0.02
"""How often an idle process looks while there is another that writes."""
LONE_WATCH_S = 0.05
"""How often it looks while there seems to be none: each look costs some 0.1 ms, waking up for it included."""
BUSY_WATCH_S = 0.1
"""How often a busy one looks."""
COMPANY_S = 60.0
"""How long after another process has written it counts as present."""


class Watch:
    """Looks through the connection of the writer, whose own commits it does not see. Lives on one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = self._read()
        self._looked_at = time.monotonic()
        self._seen_at = self._looked_at - COMPANY_S

    @property
    def pause_s(self) -> float:
        """How long an idle process should wait before it looks."""
        return WATCH_S if self._looked_at - self._seen_at < COMPANY_S else LONE_WATCH_S

    def is_due(self, *, busy: bool) -> bool:
        """Whether to look for changes of other processes now."""
        return time.monotonic() - self._looked_at >= (BUSY_WATCH_S if busy else self.pause_s)

    def look(self) -> bool:
        """Whether another connection than the writer's has committed since the last look."""
        self._looked_at = time.monotonic()
        seen, self._version = self._version, self._read()
        if seen == self._version:
            return False
        self._seen_at = self._looked_at
        return True

    def _read(self) -> int:
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return -1
