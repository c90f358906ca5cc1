"""A plugin of pytest: fixtures that run an app in virtual time. pytest finds it where Mainspring is installed.

# pyproject.toml
[tool.pytest.ini_options]
mainspring_app = "shop.work:app"

def test_the_report_is_sent_at_nine(mainspring_scheduler):
    mainspring_scheduler.advance("1d")
    assert [run.state for run in mainspring_scheduler.runs(job="report")] == ["succeeded"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring
    from mainspring.testing.clock import ManualClock
    from mainspring.testing.scheduler import BlockingScheduler, ManualScheduler


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting that names the app."""
    parser.addini("mainspring_app", "The Mainspring app that fixtures use, as module:app or file.py.")
    parser.addini("mainspring_start", "The time at which mainspring_scheduler begins, with its offset.")


@pytest.fixture
def mainspring_app(request: pytest.FixtureRequest) -> Mainspring:
    """The app under test: what the setting `mainspring_app` names. Override it to make one in the test."""
    from mainspring.sdk.loading import load_app  # sessions that do not use it pay nothing

    name = request.config.getini("mainspring_app")
    if not name:
        pytest.fail('mainspring_app is not set: name the app in the settings of pytest, e.g. "shop.work:app"')
    return load_app(name)


@pytest.fixture
def mainspring_manual(mainspring_app: Mainspring, request: pytest.FixtureRequest) -> ManualScheduler:
    """A scheduler that the test enters itself: `async with mainspring_manual as scheduler:`."""
    from mainspring.testing.clock import START
    from mainspring.testing.scheduler import ManualScheduler

    return ManualScheduler(mainspring_app, start=request.config.getini("mainspring_start") or START)


@pytest.fixture
def mainspring_scheduler(mainspring_manual: ManualScheduler) -> Iterator[BlockingScheduler]:
    """The app on a database in memory, in virtual time: `advance`, `set_time`, `tick`, `runs`, `firings`, `job`."""
    with mainspring_manual as scheduler:
        yield scheduler


@pytest.fixture
def mainspring_clock(mainspring_manual: ManualScheduler) -> ManualClock:
    """The clock of the scheduler, for code that takes one."""
    return mainspring_manual.clock
