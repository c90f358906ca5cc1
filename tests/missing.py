"""What a test needs and the machine has not."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def miss(what: str, *, asked: bool = False) -> NoReturn:
    """The one place where tests are skipped: on a laptop, for want of a server or a right that `make services` or root
    would bring. Where CI is set, or the thing was asked for, its want is a failure."""
    if asked or "CI" in os.environ:
        pytest.fail(what)
    pytest.skip(what)
