"""The public records of what went wrong: problem documents, as the API sends them and the client reads them."""

from __future__ import annotations

import msgspec

from mainspring.core.model import FiringOutcome
from mainspring.operations.records import Moment


class Fault(msgspec.Struct, frozen=True):
    """One wrong field."""

    field: str
    fault: str
    remedy: str


class GoneFiring(msgspec.Struct, frozen=True):
    """The firing of a run that is no longer kept, as the ledger has it."""

    job: str
    fire_at: Moment
    outcome: FiringOutcome
    reason: str


class Problem(msgspec.Struct, frozen=True):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    remedy: str | msgspec.UnsetType = msgspec.UNSET
    errors: list[Fault] | msgspec.UnsetType = msgspec.UNSET
    firing: GoneFiring | msgspec.UnsetType = msgspec.UNSET
    """What the ledger knows of a run that is no longer kept."""
