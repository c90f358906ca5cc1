"""The orders of the driver to the processes of a run: their names, by one variable of their environment; and
how far the run has come, by marks in its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from mainspring.errors import MainspringError

VARIABLE: Final = "CHAOS_ORDERS"
Stage = Literal["calm", "done"]
"""`calm`: nothing goes wrong on purpose any more. `done`: clients have nothing more to ask for."""


def reach(folder: Path, stage: Stage) -> None:
    """Notify all processes."""
    (folder / stage).touch()


class Orders(msgspec.Struct, frozen=True):
    """The name of a process, and where it writes its history."""

    folder: str
    actor: str
    seed: int
    version: int = 1
    """The version of the program: each version declares a job differently."""
    bug: str | None = None
    """One of `testing.simulation.bugs.planted` or of `testing.chaos.inside.planted`, to see whether it is found."""
    gentle: bool = False
    """Whether no work ends its own process: then a process that ends was struck."""
    epoch: int | None = None
    """See `timing.StoreTime`; None where the store's clock is the host's."""

    @classmethod
    def received(cls) -> Self:
        """The orders that this process was started with."""
        text = os.environ.get(VARIABLE)
        if text is None:
            raise MainspringError(f"{VARIABLE} is not set: this is started by `python -m mainspring.testing.chaos`")
        return msgspec.json.decode(text, type=cls)

    def environment(self) -> dict[str, str]:
        """How they are handed over."""
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @property
    def place(self) -> Path:
        """The folder of the histories."""
        return Path(self.folder)

    def reached(self, stage: Stage) -> bool:
        """Whether the run has come so far."""
        return (self.place / stage).exists()
