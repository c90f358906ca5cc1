"""What runs, with which settings, and who asks. Secrets stay hidden."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mainspring.operations.context import InContext
from mainspring.operations.records import Moment
from mainspring.operations.values.from_rows import moment
from mainspring.operations.views.explain import look_around
from mainspring.process.secrets import MASK, masker, secrets_of
from mainspring.process.urls import show_url
from mainspring.settings import Settings, describe_settings
from mainspring.version import VERSION

_HIDDEN: Final = ("secret", "token")


class Me(msgspec.Struct, frozen=True):
    """The caller of a request."""

    subject: str
    open: bool
    """Whether the server needs no token on this machine."""
    home: str
    """The namespace of requests that name none."""
    namespaces: list[str]
    """The namespaces that the token names. With `*` among the permissions, every other one is allowed, too."""
    permissions: dict[str, list[str]]
    expires_at: Moment | None
    version: str


class ProcessVersion(msgspec.Struct, frozen=True):
    """A process, and the version of Mainspring that it runs."""

    process: str
    kind: Literal["server", "worker"]
    version: str
    """Empty where it is not known: a worker over HTTP, or one of an older version."""
    started_at: Moment | None


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions run."""

    version: str
    """The version of the server that answers."""
    schema: int
    """The version of the database's schema."""
    newest_schema: int
    """The newest that the server knows. If it is larger, `mainspring db migrate` is due."""
    processes: list[ProcessVersion]
    """The server that answers, and the live workers of the namespace."""


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the server; secrets are masked."""

    name: str
    value: str
    default: str
    """What it would be if it were not set."""
    is_default: bool
    variable: str
    """The environment variable that sets it."""
    meaning: str


class ShownSettings(msgspec.Struct, frozen=True):
    """The settings of the server that answers, as they are in effect."""

    items: list[ShownSetting]


class Installation(InContext):
    """What `/v1/versions` and `/v1/settings` show."""

    async def versions(self) -> Versions:
        """Which version each process runs, and that of the database's schema."""
        store = await self._context.open()
        schema, newest = await store.schema()
        living = (await look_around(self._context, self._context.namespace)).living()
        workers = [ProcessVersion(each.id, "worker", each.version, moment(each.started_at)) for each in living]
        here = ProcessVersion(self._context.host.name, "server", VERSION, None)
        return Versions(version=VERSION, schema=schema, newest_schema=newest, processes=[here, *workers])

    def settings(self) -> ShownSettings:
        """The settings in effect. Passwords in URLs, keys and tokens are replaced by `***`."""
        return show_settings(self._context.settings)


def show_settings(settings: Settings) -> ShownSettings:
    """Settings with their secrets masked."""
    mask = masker(secrets_of(settings))
    items = []
    for row, usual in zip(describe_settings(settings), describe_settings(), strict=True):
        value = " ".join(map(show_url, row.default.split(" ")))
        shown = ShownSetting(
            name=row.name,
            value=MASK if row.name in _HIDDEN and value else mask(value),
            default=usual.default,
            is_default=row.default == usual.default,
            variable=row.variable,
            meaning=row.meaning,
        )
        items.append(shown)
    return ShownSettings(items)
