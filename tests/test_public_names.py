"""What `mainspring` offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import mainspring

TRIGGERS = {"after", "at", "cron", "every", "manual"}
RECORDS = {"Attempt", "Event", "Firing", "Job", "Run", "Worker"}
REST = {
    "RunContext",
    "Submission",
    "Abort",
    "RetryIn",
    "Client",
    "Graph",
    "GroupHandle",
    "Isolation",
    "Mainspring",
    "MainspringError",
    "Retry",
    "RunHandle",
    "Task",
    "calendars",
    "current_run",
    "errors",
    "fire_times",
    "__version__",
}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_these_are_the_public_names() -> None:
    assert set(mainspring.__all__) == TRIGGERS | RECORDS | REST
    assert mainspring.__all__ == sorted(mainspring.__all__)
    assert dir(mainspring) == mainspring.__all__


@pytest.mark.parametrize("name", mainspring.__all__)
def test_each_of_them_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(mainspring, name)
    assert name == "__version__" or value.__doc__


def test_other_names_are_not_there() -> None:
    name = "Mainsprung"
    with pytest.raises(AttributeError, match="no attribute 'Mainsprung'"):
        getattr(mainspring, name)


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "{'asyncio', 'msgspec', 'sqlite3', 'inspect', 'mainspring.sdk.app', 'mainspring.core'}"
    assert run(f"import sys, mainspring; print({heavy} & set(sys.modules))") == "set()"


def test_declaring_an_app_loads_no_store() -> None:
    code = (
        "import sys\nfrom mainspring import *\nMainspring()\nprint({'sqlite3', 'mainspring.stores'} & set(sys.modules))"
    )
    assert run(code) == "set()"


def test_all_of_them_can_be_had_at_once() -> None:
    assert run(
        "from mainspring import *; print(Mainspring.__name__, cron('* * * * *').tz, errors.NotFound.__name__)"
    ) == ("Mainspring UTC NotFound")


def test_the_version_is_that_of_the_package() -> None:
    assert mainspring.__version__ == version("mainspring")


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(mainspring.__file__).parent / "py.typed").exists()
