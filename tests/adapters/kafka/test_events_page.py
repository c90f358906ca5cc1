"""docs/events.md holds the schema of events as the code has it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from mainspring.sinks.kafka import EventRecord

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def test_the_page_of_events_has_the_schema_of_the_code() -> None:
    schema = json.dumps(msgspec.json.schema(EventRecord), indent=2)
    assert f"```json\n{schema}\n```" in PAGE.read_text(), "write this schema to docs/events.md:\n" + schema
