"""Keeps the processors awake while latency is measured. One that sleeps must be woken for every step of a run's way; on
a virtual machine the host does that when it has time, and then the figure is the host's.

A virtual processor polls for a while before it goes to sleep, if it has the `haltpoll` governor; others are asked to by
`/dev/cpu_dma_latency`. Both need root, and are as before at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.harness.running import Failed

POLLING = Path("/sys/module/haltpoll/parameters")
NS = "20000000"
AWAKE = {"guest_halt_poll_ns": NS, "guest_halt_poll_grow_start": NS, "guest_halt_poll_allow_shrink": "N"}
"""Longer than the pause between two runs at a hundred a second."""
DEMAND = Path("/dev/cpu_dma_latency")
NO_LATENCY = bytes(4)


@contextmanager
def awake() -> Iterator[None]:
    """Until this is left, processors that have nothing to do wait for it without sleeping."""
    with ExitStack() as stack:
        try:
            if POLLING.exists():
                stack.callback(_set, {name: (POLLING / name).read_text() for name in AWAKE})
                _set(AWAKE)
            else:  # It holds for as long as this is open.
                stack.enter_context(DEMAND.open("wb", buffering=0)).write(NO_LATENCY)
        except OSError as error:
            raise Failed(f"--awake: the processors cannot be kept from sleeping: {error}") from error
        yield


def _set(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        (POLLING / name).write_text(value)


def is_awake() -> bool:
    """Whether they are, by whatever means."""
    try:
        if POLLING.exists():
            return int((POLLING / "guest_halt_poll_ns").read_text()) > 0
        with DEMAND.open("rb") as demand:
            return demand.read(4) == NO_LATENCY
    except OSError:
        return False
