"""The examples of docs/client.md, each against a real server whose runs are executed."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from door import Door, open_door

from mainspring import Client
from mainspring.api.application import ENDPOINTS
from mainspring.conformance.store.samples import a_worker, success
from mainspring.core.instants import MINUTE
from mainspring.store import Store

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "client.md"
PARTS = [
    "jobs", "runs", "workers", "cluster", "queues", "actions", "insight", "calendars", "events", "audit", "tokens",
]  # fmt: skip
NOT_OF_CLIENTS = {"session", "heartbeat", "assign", "complete", "fail", "progress", "docs"}
"""What browsers, workers over HTTP and people ask for."""


def examples() -> dict[str, Any]:
    """What the page defines."""
    names: dict[str, Any] = {"__name__": "docs_client"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server, and a worker that executes all that is submitted to it."""
    done = threading.Event()
    with open_door(tmp_path_factory.mktemp("docs")) as door:

        async def work() -> None:
            store: Store = await door.app.open()
            while not done.is_set():
                claims = await store.claim(a_worker("w1", tasks=("encode",)), 100, MINUTE, "strict")
                await store.report([success(claim, '"done"') for claim in claims])
                await store.number_events(1000)
                await asyncio.sleep(0.01)

        worker = threading.Thread(target=lambda: asyncio.run(work()))
        worker.start()
        yield door
        done.set()
        worker.join()


@pytest.mark.parametrize("name", ["encode", "look", "watch"])
async def test_an_example_does_what_it_shows(door: Door, name: str) -> None:
    async with Client(door.url, door.token("admin")) as client:
        await asyncio.wait_for(examples()[name](client), 60)


def test_the_example_for_scripts_does_too(door: Door) -> None:
    run = Client(door.url, door.token("admin"))
    examples()["from_a_script"](run)


def test_the_page_lists_every_method() -> None:
    page = PAGE.read_text()
    client = Client("http://127.0.0.1:1")
    for part in PARTS:
        for method in (each for each in vars(type(getattr(client, part))) if not each.startswith("_")):
            assert re.search(rf"\b{method}\b", page), f"client.{part}.{method}"


def test_the_client_can_ask_for_everything_that_the_server_answers() -> None:
    sources = "".join(file.read_text() for file in (ROOT / "src" / "mainspring" / "client").glob("*.py"))
    words = set(re.findall(r'"([\w:-]+)"', sources))
    paths = [each.path.removeprefix("/v1/") for each in ENDPOINTS if each.path.startswith("/v1/")]
    parts = {part for path in paths for part in path.split("/") if not part.startswith("{")}
    assert parts - words == NOT_OF_CLIENTS & parts
