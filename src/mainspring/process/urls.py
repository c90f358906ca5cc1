"""URLs, for people."""

from __future__ import annotations

import re
from typing import Final

REDIS_SCHEMES: Final = tuple(f"redis{tls}{kind}" for kind in ("", "+sentinel", "+cluster") for tls in ("", "s"))
"""redis, rediss, redis+sentinel …"""


def show_url(url: str) -> str:
    """A URL without its password."""
    scheme, separator, rest = re.sub(r"([?&](?:\w+_)?password=)[^&]*", r"\1***", url).partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{separator}{name}:***{at}{host}{slash}{path}" if colon else f"{scheme}{separator}{rest}"
