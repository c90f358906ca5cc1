"""Models and dataclasses as arguments and results; annotations that no run could satisfy are refused at declaration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from mainspring import Mainspring
from mainspring.errors import InvalidInput, NotSerialisable
from mainspring.sdk.loading import load_app
from mainspring.testing import ManualScheduler


class Track(BaseModel):
    title: str
    seconds: float = 0.0


class Album(BaseModel):
    model_config = ConfigDict(strict=True)

    released: datetime
    tracks: list[Track] = []


@dataclass
class Shelf:
    number: int
    albums: list[Album]


class Socket:
    """Nothing that JSON could carry."""


ALBUM = Album(released=datetime(2026, 5, 1, tzinfo=UTC), tracks=[Track(title="One", seconds=61.5)])


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Mainspring]:
    async with Mainspring(f"sqlite:///{tmp_path}/store.db", durable=False) as app:
        yield app


async def test_a_model_goes_in_and_comes_out_as_itself(app: Mainspring) -> None:
    seen: list[Any] = []

    @app.task
    async def release(album: Album, bonus: Track | None = None) -> Album:
        seen.extend([album, bonus])
        return Album(released=album.released, tracks=[*album.tracks, *([bonus] if bonus else [])])

    async with ManualScheduler(app) as scheduler:
        handle = await release.submit(ALBUM, bonus=Track(title="Two"))
        await scheduler.tick()
        result = await handle.result(timeout=0)
    assert seen == [ALBUM, Track(title="Two")]
    assert type(result) is Album
    assert [track.title for track in result.tracks] == ["One", "Two"]


async def test_a_model_inside_a_dataclass_and_lists_of_either(app: Mainspring) -> None:
    @app.task
    def count(shelves: list[Shelf]) -> dict[str, Shelf]:
        return {str(shelf.number): shelf for shelf in shelves}

    async with ManualScheduler(app) as scheduler:
        handle = await count.submit([Shelf(4, [ALBUM])])
        await scheduler.tick()
        assert await handle.result(timeout=0) == {"4": Shelf(4, [ALBUM])}


async def test_what_a_model_refuses_is_refused_at_submission(app: Mainspring) -> None:
    @app.task
    def play(track: Track) -> None: ...

    with pytest.raises(InvalidInput, match="track") as refused:
        await app.submit("play", {"track": {"title": "One", "seconds": "long"}})
    assert "seconds" in str(refused.value)
    await app.submit("play", {"track": {"title": "One", "seconds": 4}})
    with pytest.raises(NotSerialisable, match="nan"):
        await play.submit(Track(title="One", seconds=float("nan")))


def test_what_cannot_work_is_refused_at_declaration(app: Mainspring) -> None:
    def listen(socket: Socket) -> None: ...
    def open_one() -> Socket:
        return Socket()

    def several(sockets: dict[str, list[Socket]]) -> None: ...
    def either(value: Track | Album) -> None: ...
    def generate() -> Iterable[Socket]:
        return [Socket()]

    def optional(number: int, socket: Socket | None = None) -> None: ...
    def later(number: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - A name that does not exist is the case.
    def anything(value: object, values: Iterable[int]) -> Any: ...

    for function, name in ((listen, "socket"), (open_one, "its result"), (several, "sockets"), (either, "value")):
        with pytest.raises(InvalidInput, match=f"'{name}'"):
            app.task(function)
        assert function.__name__ not in app.tasks
    for usable in (generate, optional, later, anything):
        app.task(usable)


def test_pydantic_is_not_imported() -> None:
    code = (
        "import sys\nfrom mainspring import Mainspring\napp = Mainspring()\n"
        "@app.task\ndef t(n: int) -> int: return n\nt.encode_args({'n': 1})\nprint('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


LATER = """
from dataclasses import dataclass
from typing import TYPE_CHECKING
from mainspring import Mainspring
if TYPE_CHECKING:
    from decimal import Decimal
app = Mainspring("sqlite:///:memory:")

@app.task
def pack(order: Order, weight: Decimal | None = None) -> list[Order]:
    return [order]

@dataclass
class Order:
    number: int
"""


async def test_annotations_may_name_what_comes_later_or_what_only_a_type_checker_sees(tmp_path: Path) -> None:
    # From Python 3.14 on, every module postpones its annotations; before, those that ask for it.
    postponed = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    file = tmp_path / "packing.py"
    file.write_text(postponed + LATER)
    task = load_app(str(file)).tasks["pack"]
    order = sys.modules["packing"].Order
    text = task.encode_args({"order": order(number=7), "weight": 2})
    assert task.signature.decode(text) == {"order": order(number=7), "weight": 2}
    with pytest.raises(InvalidInput, match=r"pack\(order: Order, weight: Decimal \| None = None\) -> list\[Order\]"):
        task.signature.decode('{"order":{"number":"seven"}}')
