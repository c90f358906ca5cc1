"""Access: permissions, the roles that bundle them, and callers that hold them by namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from mainspring.errors import InvalidInput

Permission = Literal[
    "jobs:read",
    "jobs:create",
    "jobs:write",
    "jobs:operate",
    "runs:read",
    "runs:submit",
    "runs:control",
    "run:command",
    "workers:read",
    "workers:control",
    "work",
    "calendars:read",
    "calendars:write",
    "events:read",
    "metrics:read",
    "audit:read",
    "settings:read",
    "tokens:write",
]
Role = Literal["viewer", "submitter", "operator", "admin", "worker"]

PERMISSIONS: Final[frozenset[Permission]] = frozenset(get_args(Permission))
_VIEWER: Final[frozenset[Permission]] = frozenset(
    {"jobs:read", "runs:read", "workers:read", "calendars:read", "events:read", "metrics:read"}
)
_SUBMITTER: Final[frozenset[Permission]] = _VIEWER | {"jobs:create", "runs:submit"}
_OPERATOR: Final[frozenset[Permission]] = _SUBMITTER | {
    "jobs:write",
    "jobs:operate",
    "runs:control",
    "workers:control",
    "calendars:write",
}
ROLES: Final[dict[Role, frozenset[Permission]]] = {
    "viewer": _VIEWER,
    "submitter": _SUBMITTER,
    "operator": _OPERATOR,
    "admin": PERMISSIONS - {"work"},
    "worker": frozenset({"work"}),
}
EVERYWHERE: Final = "*"
"""The name that stands for every namespace in a token."""


class Caller(msgspec.Struct, frozen=True):
    """A caller with a valid token, or one that needs none."""

    subject: str
    grants: Mapping[str, frozenset[Permission]]
    """The permissions of the caller by namespace."""
    roles: Mapping[str, frozenset[str]] = {}
    """The roles of the caller by namespace, as the token names them."""
    token_id: str = ""
    issued_at: int = 0
    expires_at: int | None = None

    def may(self, permission: Permission, namespace: str) -> bool:
        """Whether the caller has a permission in a namespace."""
        return permission in self.grants.get(namespace, ()) or permission in self.grants.get(EVERYWHERE, ())

    def rate(self, namespace: str, usual: int, by_role: Mapping[str, int]) -> int:
        """How much the caller may submit: the highest rate of its roles, or the default rate."""
        if not by_role:
            return usual
        named = self.roles.get(namespace, frozenset()) | self.roles.get(EVERYWHERE, frozenset())
        return max((by_role[role] for role in named if role in by_role), default=usual)

    def home(self, default: str) -> str:
        """The namespace that is meant if the request names none: the only one, or the server's own."""
        named = [namespace for namespace in self.grants if namespace != EVERYWHERE]
        return named[0] if len(named) == 1 and EVERYWHERE not in self.grants else default


def read_grants(written: Mapping[str, Iterable[str]]) -> dict[str, frozenset[Permission]]:
    """Permissions by namespace, from roles and single permissions; unknown ones are refused."""
    return {namespace: _expand(names) for namespace, names in written.items()}


def _expand(names: Iterable[str]) -> frozenset[Permission]:
    found: set[Permission] = set()
    for name in names:
        if name in ROLES:
            found |= ROLES[name]
        elif name in PERMISSIONS:
            found.add(name)
        else:
            raise InvalidInput("roles", name, "is neither a role nor a permission", f"roles are {', '.join(ROLES)}")
    return frozenset(found)


def check_rates(written: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How much may be submitted in a minute, by role; unknown roles are refused."""
    rates = dict(written)
    for role in rates:
        if role not in ROLES:
            raise InvalidInput("submit_rates", role, "is not a role", f"roles are {', '.join(ROLES)}")
    return rates
