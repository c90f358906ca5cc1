"""The side-effect ledger: when work really began and really ended, written by the work itself.

It goes to a file that is opened to append, one `write` for each line. No process keeps it, so none has to be spared for
it: what was written before a kill is in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainspring.clock import SystemClock
from mainspring.executor import RunContext, current_run
from mainspring.testing.chaos.inside.recording import Recorder


class Ledger:
    """The ledger of one process, on the clock of its recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._clock = SystemClock()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """The run that is executed here begins; and ends, however it does."""
        run, state = current_run(), "failed"
        self._note("start", run, None)
        try:
            yield
            state = "succeeded"
        finally:
            self._note("end", run, state)

    def _note(self, what: str, run: RunContext, state: str | None) -> None:
        self._recorder.write(
            what, self._recorder.actor, self._clock, run=run.id, token=run.token, attempt=run.attempt,
            worker=self._recorder.actor, state=state,
        )  # fmt: skip
