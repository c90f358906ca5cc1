"""Redis for tests."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.testing.servers.redis import RedisServer

Start = Callable[..., RedisServer]
"""Starts a server with these options, which ends with the test."""
