"""The store as requests use it: behind the guard's breaker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from mainspring.api.load.guard import Guard
from mainspring.core.model import NewRun
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.services.store_layers import StoreLayer
from mainspring.store import Audit, Store

P = ParamSpec("P")
T = TypeVar("T")


class GuardedStore(StoreLayer):
    """While too many calls fail because the store cannot be reached, all calls fail at once."""

    def __init__(self, store: Store, guard: Guard) -> None:
        self._guard = guard
        super().__init__(store)
        self._submit_guarded = self.submit
        self.submit = self._submit

    def _pass(self, call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        guard = self._guard

        async def guarded(*args: P.args, **words: P.kwargs) -> T:
            guard.admit()
            try:
                answer = await call(*args, **words)
            except StoreUnavailable:
                guard.note(well=False)
                raise
            except MainspringError:
                guard.note(well=True)
                raise
            guard.note(well=True)
            return answer

        return guarded

    async def _submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        """Runs that wait for others are behind a breaker of their own, since checking what they wait for takes locks on
        those."""
        if not any(run.after for run in runs):
            return await self._submit_guarded(runs, audit=audit)
        self._guard.admit()
        return await self._guard.submit_waiting(self._store, runs, audit)
