"""Run a `mainspring` command whose app records its history, so that the history checker can judge it.

`python -m examples.recorded worker examples/stripe/app.py …` behaves like `mainspring worker …`, and
`python -m examples.recorded --module examples.netflix.upload …` like `python -m examples.netflix.upload …`. The apps of
the examples contain no test code: this module gives them a recording `Mainspring` class before they are loaded.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mainspring
from mainspring import RunContext
from mainspring.cli.main import main
from mainspring.testing.chaos.inside.ledger import Ledger
from mainspring.testing.chaos.inside.recording import RecordedApp

FOLDER = "EXAMPLE_HISTORY"
ACTOR = "EXAMPLE_ACTOR"
MODULE = "--module"


class Recorded(RecordedApp):
    """An app that records its calls to the store, and the start and end of each attempt."""

    def __init__(self, store: str | None = None, **settings: Any) -> None:
        actor = f"{os.environ[ACTOR]}.{os.getpid()}"
        super().__init__(Path(os.environ[FOLDER]), actor, store=store, **settings)
        ledger = Ledger(self.recorder)

        def note(run: RunContext) -> Iterator[None]:
            with ledger.noted():
                yield

        self.around(note)


if __name__ == "__main__":
    mainspring.Mainspring = Recorded  # type: ignore[misc]  # The class that the app imports.
    if sys.argv[1] == MODULE:
        sys.argv[:2] = []
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        main()
