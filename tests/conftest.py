"""What holds for all tests. Zones come from where the program takes them: the `tzdata` package, not the system."""

import zoneinfo
from collections.abc import Generator
from pathlib import Path

import pytest

HERE = Path(__file__).parent

zoneinfo.reset_tzpath(())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests follow each other, where several processes share them: those of a file, and all that start a whole
    cluster, for two clusters at once would measure the machine."""
    for item in items:
        path = item.path.relative_to(HERE)
        item.add_marker(pytest.mark.xdist_group("acceptance" if "acceptance" in path.parts else str(path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports go to another process, as UTF-8: half a character that a test makes something log cannot."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
