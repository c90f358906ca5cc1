"""Resolves references to secrets, only here, and keeps their values out of everything that is stored."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Failure
from mainspring.core.tasks.specs import is_secret, secret_name
from mainspring.errors import InvalidInput, MainspringError
from mainspring.executor import AttemptContext, Executor, Outcome
from mainspring.process.secrets import RUN_SECRETS, Mask, environment, masker

_MARK = '"$secret"'
_LARGEST = 1_000_000


class SecretMissing(MainspringError):
    """A run refers to a secret that this worker does not have."""


class SecretReader:
    """Reads secrets by name, from files in a folder and from environment variables with the prefix
    `MAINSPRING_SECRET_`. Other variables belong to the worker."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def find(self, name: str) -> str:
        """The secret, without the line break at the end of a file. Raises SecretMissing if there is none."""
        if self._folder is not None:
            with suppress(FileNotFoundError), (Path(self._folder) / name).open(encoding="utf-8") as file:
                return file.read(_LARGEST).rstrip("\r\n")
        value = environment().get(RUN_SECRETS + name)
        if value is None:
            where = f"a file in {self._folder}, or the variable " if self._folder else "the variable "
            raise SecretMissing(f"this worker has no secret {name}: provide {where}{RUN_SECRETS}{name}")
        return value

    def reveal(self, args: str) -> tuple[str, Mask]:
        """The arguments with every reference replaced, and a mask that removes the values from texts."""
        values: list[str] = []

        def replace(value: Any) -> Any:
            if is_secret(value):
                values.append(self.find(secret_name(value)))
                return values[-1]
            if isinstance(value, dict):
                return {name: replace(each) for name, each in value.items()}
            return [replace(each) for each in value] if isinstance(value, list) else value

        revealed = msgspec.json.encode(replace(msgspec.json.decode(args))).decode()
        return revealed, masker(values)


class WithSecrets:
    """An executor whose runs may refer to secrets. Other runs cost only a search in their arguments."""

    def __init__(self, inner: Executor, secrets: SecretReader) -> None:
        self._run = inner.run
        self._secrets = secrets

    def run(self, attempt: AttemptContext) -> Coroutine[Any, Any, Outcome]:
        """Execute an attempt, with its secrets resolved."""
        return self._run_masked(attempt) if _MARK in attempt.claim.args else self._run(attempt)

    async def _run_masked(self, attempt: AttemptContext) -> Outcome:
        try:
            args, mask = self._secrets.reveal(attempt.claim.args)
        except (SecretMissing, InvalidInput, OSError, ValueError) as error:
            failure = Failure("SecretMissing", str(error))
            return Outcome("failed", failure=failure, error_types=("mainspring.SecretMissing",))
        attempt.claim = msgspec.structs.replace(attempt.claim, args=args)
        write = attempt.write

        def write_masked(stream: str, text: str, at: Instant | None = None, /) -> None:
            write(stream, mask(text), at)

        attempt.write = write_masked
        if attempt.context is not None:
            attempt.context.filter(mask)
        return masked(await self._run(attempt), mask)


def masked(outcome: Outcome, mask: Mask) -> Outcome:
    """The outcome without secrets."""
    failure = outcome.failure
    if failure is not None:
        failure = Failure(failure.type, mask(failure.message), mask(failure.traceback))
    result = outcome.result if outcome.result is None else mask(outcome.result)
    return msgspec.structs.replace(outcome, failure=failure, result=result)
