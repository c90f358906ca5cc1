"""A failed assertion of a conformance suite shows its values, as one of ours does."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("mainspring.conformance")
