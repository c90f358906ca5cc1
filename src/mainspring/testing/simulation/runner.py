"""Runs seeds: one to its verdict, many on all cores, and a failing one again and again until little of it is left."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import msgspec

from mainspring.testing.checking import Verdict, check
from mainspring.testing.history import History, Record
from mainspring.testing.simulation.faults import CALLS, EVENTS, HABITS
from mainspring.testing.simulation.planted import planted
from mainspring.testing.simulation.sometimes import SometimesHandler, watch_end
from mainspring.testing.simulation.world import Scenario, World


class Result(msgspec.Struct, frozen=True):
    """What came of one scenario."""

    scenario: Scenario
    verdict: Verdict
    history: list[Record]
    sometimes: Counter[str]
    """How often each fault and each rare path happened."""
    virtual_seconds: float
