"""What holds for all tests. Zones come from where the program takes them: the `tzdata` package, not the system."""

import logging
import os
import sys
import zoneinfo
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

zoneinfo.reset_tzpath(())
# No test asserts how long it takes: a loaded machine is no failure.
hypothesis.settings.register_profile("mainspring", deadline=None)
hypothesis.settings.load_profile("mainspring")
# Tests are often root. Commands in them run as that, unless the test is about what a worker does then by itself.
os.environ.setdefault("MAINSPRING_ISOLATION", "none")
# Without bytecode, each of the thousand processes that tests start would compile the program anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


CLUSTERS = {"elector": "electors", "broker": "brokers", "redis": "brokers"}
"""Groups of the tests that start a whole cluster each, by the first word of their file; all others are one group."""
BROWSERS = {
    **dict.fromkeys(("failover", "live", "scale", "sign_in"), "browser with servers of its own"),
    **dict.fromkeys(("shell", "pictures"), "browser and its shell"),
}
"""Groups of the tests in a browser, by their file; all others are one group. Each has a browser and a server."""


def group_of(nodeid: str) -> str:
    """Which tests follow each other, where several processes share them: those of a file; those that share a browser
    and its server, in three groups of about equal length; and those that start whole clusters, in three as well. More
    clusters at once would measure the machine."""
    path = nodeid.partition("::")[0]
    if path.startswith("tests/browser/"):
        return BROWSERS.get(path.removeprefix("tests/browser/test_").removesuffix(".py"), "browser")
    if not path.startswith("tests/acceptance/"):
        return path
    return CLUSTERS.get(path.removeprefix("tests/acceptance/test_").partition("_")[0], "clusters")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports go to another process, as UTF-8: half a character that a test makes something log cannot."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def same_surroundings() -> Generator[None, None, None]:
    """What a test adds to the process, other tests do not meet: places to import from, handlers of the root logger."""
    root = logging.getLogger()
    path, handlers, level = sys.path[:], root.handlers[:], root.level
    yield
    sys.path[:] = path
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)
