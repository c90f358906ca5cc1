"""What brokers with named queues or topics share: which name a notice goes to, and what a message says.

A name is made of a template, such as `{prefix}jobs.{namespace}.{queue}.{region}`. Priorities can be split into bands,
each with a queue or topic of its own: `bands=high:1-3,low:4-10`. A message is a JSON array: run id, token, priority.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha1
from itertools import product
from typing import Final, NamedTuple

import msgspec

from mainspring.broker import Notice, Place
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.drivers.server_url import ServerUrl

LAYOUT_OPTIONS: Final = ("prefix", "names", "bands")
COMMITS: Final = ("after_claim", "after_work")
"""When a message is acknowledged, by the option `commit`."""
_BAND = re.compile(r"(?:(?P<name>[\w-]+):)?(?P<first>\d+)(?:-(?P<last>\d+))?")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, int, int]).decode


class Band(NamedTuple):
    """Priorities that share a queue."""

    name: str
    first: int
    last: int

    def holds(self, priorities: Sequence[int]) -> bool:
        """Whether any of these priorities is in the band."""
        return any(self.first <= priority <= self.last for priority in priorities)


class Destination(NamedTuple):
    """A queue or topic."""

    name: str
    place: Place
    band: Band


class Naming(NamedTuple):
    """What names a kind of server allows."""

    template: str
    """The template of names, unless the URL has its own."""
    separator: str
    """Between the template and the name of a band."""
    longest: int
    mark: str
    """Before the bytes, in hexadecimal, of characters that a name may not contain."""
    allowed: str
    """The characters of names, as a regular expression writes them between brackets."""

    def escape(self, part: str) -> str:
        """A namespace, queue or region in allowed characters, so that two never make the same name."""
        reserved = f"[^{self.allowed}]|[{re.escape(self.mark + self.separator)}]"
        return re.sub(reserved, lambda found: "".join(f"{self.mark}{byte:02x}" for byte in found[0].encode()), part)


class Layout:
    """Which destination belongs to which place and priority. It remembers every destination that it named."""

    def __init__(self, url: ServerUrl, naming: Naming, bands: str = "1-10") -> None:
        self._naming = naming
        self._prefix = url.options.get("prefix", "")
        self.bands = _read_bands(url, url.options.get("bands", bands))
        template = url.options.get("names", naming.template)
        if len(self.bands) > 1 and "{band}" not in template:
            template += naming.separator + "{band}"
        self._template = "{prefix}" + template.replace("{prefix}", "")
        self.known: dict[tuple[Place, int], Destination] = {}
        """The destinations that were computed so far, by place and priority."""
        try:
            sample = self._name(Place("a", "b", "c"), self.bands[0])
        except (KeyError, ValueError, IndexError) as error:
            remedy = "write names with {namespace}, {queue}, {region} and {band} only"
            raise url.refuse(f"has names={template!r}", remedy) from error
        if not re.fullmatch(f"[{naming.allowed}]+", sample):
            raise url.refuse(f"makes names such as {sample!r}", f"names may contain {naming.allowed} only")

    def destination(self, notice: Notice) -> Destination:
        """The destination of a notice."""
        found = self.known.get((notice.place, notice.priority))
        return found if found is not None else self._learn(notice.place, notice.priority)

    def of_worker(self, worker: Worker) -> list[Destination]:
        """The destinations that a worker consumes, the best band first."""
        places = [Place(worker.namespace, *each) for each in product(worker.queues, worker.regions)]
        return list(dict.fromkeys(self._learn(place, band.first) for band in self.bands for place in places))

    def names(self) -> dict[str, Destination]:
        """All destinations that were named so far, by name."""
        return {each.name: each for each in list(self.known.values())}

    def _learn(self, place: Place, priority: int) -> Destination:
        band = next(band for band in self.bands if band.first <= priority <= band.last)
        made = self.known[place, priority] = Destination(self._name(place, band), place, band)
        return made

    def _name(self, place: Place, band: Band) -> str:
        parts = {field: self._naming.escape(value) for field, value in place._asdict().items()}
        name = self._template.format(prefix=self._prefix, band=band.name, **parts)
        if len(name.encode()) <= self._naming.longest:
            return name
        digest = sha1(name.encode(), usedforsecurity=False).hexdigest()
        return name.encode()[: self._naming.longest - 41].decode(errors="ignore") + "-" + digest


def _read_bands(url: ServerUrl, written: str) -> tuple[Band, ...]:
    """`each`, or bands such as `1-3,4-10` and `high:1-3,low:4-10`, which hold every priority once, the best first."""
    if written == "each":
        return tuple(Band(str(priority), priority, priority) for priority in PRIORITIES)
    bands = []
    for each in written.split(","):
        match = _BAND.fullmatch(each.strip())
        if match is None:
            raise url.refuse(f"has a band {each!r}", "write bands=high:1-3,low:4-10, or bands=each")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        bands.append(Band(match["name"] or each.strip(), first, last))
    if [priority for band in bands for priority in range(band.first, band.last + 1)] != list(PRIORITIES):
        raise url.refuse(f"has bands={written!r}", "write bands that hold each priority from 1 to 10 once, in order")
    return tuple(bands)


def encode(notice: Notice) -> bytes:
    """A notice as a message."""
    return _encode((notice.run_id, notice.token, notice.priority))


def decode(body: bytes | str) -> tuple[str, int, int]:
    """The run id, token and priority of a message. ValueError if Mainspring did not write it."""
    return _decode(body)
