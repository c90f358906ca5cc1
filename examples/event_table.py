"""A consumer of events that keeps a table of its own: `python examples/event_table.py 127.0.0.1:9092 runs.db [TOPIC]`.

The table and the position in Kafka are written in one transaction, so the table is right whenever this is killed.
An event that comes again changes nothing: its id is not greater than the one that the row has.
"""

import asyncio
import json
import sqlite3
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, job TEXT, state TEXT, at TEXT, event_id INTEGER);
CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER);
"""
SAVE = """
INSERT INTO runs VALUES (:run_id, :job, :state, :at, :id)
ON CONFLICT (run_id) DO UPDATE SET state = :state, at = :at, event_id = :id WHERE event_id < :id
"""


def save(database: sqlite3.Connection, partition: int, records: list[Any]) -> None:
    """Write the events of some records, and how far they reach."""
    with database:
        for record in records:
            event = json.loads(record.value)
            kind, _, state = event["kind"].partition(".")
            if kind == "run":
                row = {"job": None, **event, "state": state}
                database.execute(SAVE, {name: row[name] for name in ("run_id", "job", "state", "at", "id")})
        database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (partition, records[-1].offset + 1))


async def follow(servers: str, path: str, topic: str = "job-events") -> None:
    """Read from the positions in the table, for ever."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")  # All partitions.
    await consumer.start()
    try:
        if not consumer.assignment():
            raise SystemExit(f"there is no topic {topic}: start a server with --sink kafka://{servers} first")
        for number, position in database.execute("SELECT partition, position FROM positions"):
            consumer.seek(TopicPartition(topic, number), position)
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                save(database, partition.partition, records)
    finally:
        await consumer.stop()
        database.close()


if __name__ == "__main__":
    asyncio.run(follow(*sys.argv[1:]))
