"""The board on Redis: an older word never takes the place of a newer, and what may be incomplete does not count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import permutations
from pathlib import Path

import pytest
from redis import Redis

from mainspring.cache import Mark
from mainspring.caches.redis import MARK, RedisBoard
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.runs.status import Posting, RunStatus, WorkerStatus
from mainspring.errors import BrokerUnavailable
from mainspring.testing.chaos.redis import RedisServer

SUBJECT = "job_status:r1"
HERE = Mark("epoch-1", 10)


@pytest.fixture
def client(server: RedisServer) -> Iterator[Redis]:
    with Redis(port=server.port, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
async def board(server: RedisServer, client: Redis) -> AsyncIterator[RedisBoard]:
    board = RedisBoard(f"{server.url}?timeout=20s")
    yield board
    await board.close()


def said(word: str, position: int, kept: int = HOUR) -> Posting:
    status = RunStatus("r1", "default", "running", word, 0, "w", None, "encode", position) if word else None
    return Posting(SUBJECT, position, kept, status)


async def told(board: RedisBoard) -> str | None:
    _, status = await board.look(SUBJECT)
    return status.reason if isinstance(status, RunStatus) else None


async def test_what_was_posted_is_found_as_it_was(board: RedisBoard) -> None:
    await board.advance(None, HERE)
    worker = WorkerStatus("box:1", "tenant", "draining", 7)
    await board.post(HERE.epoch, [said("Ü 'quoted' 🎬\n", 3), Posting("worker_status:box:1", 4, MINUTE, worker)])
    assert await told(board) == "Ü 'quoted' 🎬\n"
    assert await board.look("worker_status:box:1") == (HERE, worker)
    assert await board.look("job_status:nobody") == (HERE, None)


async def test_each_is_kept_for_its_time(board: RedisBoard, client: Redis) -> None:
    await board.post("e", [said("a", 1), Posting("worker_status:w", 1, 5 * MINUTE, None)])
    assert 3_500 < client.ttl(SUBJECT) <= 3_600
    assert 250 < client.ttl("worker_status:w") <= 300


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
async def test_in_whatever_order_words_come_the_newest_stays(board: RedisBoard, order: tuple[int, ...]) -> None:
    await board.advance(None, HERE)
    for position in order:
        await board.post(HERE.epoch, [said(f"word {position}", position)])
    assert await told(board) == "word 3"


async def test_of_many_who_post_at_once_the_newest_stays(board: RedisBoard) -> None:
    await board.advance(None, HERE)
    await asyncio.gather(*(board.post(HERE.epoch, [said(f"{n}", n)]) for n in [*range(50, 0, -1), *range(50, 100)]))
    assert await told(board) == "99"


async def test_a_change_that_is_not_told_completely_hides_what_was_known_before_and_is_filled_in(
    board: RedisBoard,
) -> None:
    await board.advance(None, HERE)
    await board.post(HERE.epoch, [said("old", 4)])
    await board.post(HERE.epoch, [said("", 6)])
    assert await told(board) is None
    await board.post(HERE.epoch, [said("asked before it", 5)])
    assert await told(board) is None
    await board.post(HERE.epoch, [said("asked after it", 6)])
    assert await told(board) == "asked after it"
    await board.post(HERE.epoch, [said("", 6)])
    assert await told(board) == "asked after it", "the same event again is no news"


async def test_what_belongs_to_another_epoch_does_not_count(board: RedisBoard) -> None:
    await board.advance(None, HERE)
    await board.post("epoch-0", [said("stale", 99)])
    assert await told(board) is None
    await board.post(HERE.epoch, [said("good", 1)])
    assert await told(board) == "good"


async def test_only_who_knows_where_the_mark_is_moves_it(board: RedisBoard) -> None:
    assert await board.advance(None, HERE) == HERE
    assert await board.advance(None, Mark("other", 3)) == HERE
    assert await board.advance(HERE, Mark("epoch-1", 12, late=True)) == Mark("epoch-1", 12, late=True)
    assert await board.advance(HERE, Mark("epoch-1", 11)) == Mark("epoch-1", 12, late=True)
    assert (await board.look(SUBJECT))[0] == Mark("epoch-1", 12, late=True)


async def test_a_mark_that_nobody_moves_goes_away_and_all_with_it(board: RedisBoard, client: Redis) -> None:
    await board.advance(None, HERE)
    await board.post(HERE.epoch, [said("good", 1)])
    assert 0 < client.pttl(MARK) <= 3_000
    client.pexpire(MARK, 1)
    await asyncio.sleep(0.01)
    assert await board.look(SUBJECT) == (None, None)
    assert await board.advance(HERE, Mark("epoch-1", 12)) is None


async def test_a_board_that_was_emptied_knows_nothing(board: RedisBoard, client: Redis) -> None:
    await board.advance(None, HERE)
    await board.post(HERE.epoch, [said("good", 1)])
    client.flushall()
    assert await board.look(SUBJECT) == (None, None)
    assert await board.advance(HERE, HERE) is None


async def test_more_than_fit_into_one_script_are_all_posted(board: RedisBoard, client: Redis) -> None:
    await board.post("e", [Posting(f"job_status:{n}", n, HOUR, None) for n in range(1_001)])
    assert client.dbsize() == 1_001


async def test_a_redis_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    server = RedisServer(tmp_path).start()
    server.kill()
    board = RedisBoard(server.url)
    with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{server.port}"):
        await board.look(SUBJECT)
    await board.close()
