"""The database is promoted elsewhere, its disk is full, it ends transactions, answers get lost: a running `up` keeps
trying and resumes by itself, and what a client was promised holds."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import asyncpg
import pytest
from judging import judge
from server import make_server

from mainspring import Mainspring
from mainspring.errors import StoreFull, StoreReadOnly, StoreUnavailable
from mainspring.store import Strain
from mainspring.testing.chaos.inside.recording import RecordedApp
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.servers.proxy import Cut, Proxy

APP = Path(__file__).with_name("crash_app.py")
FAST = {"MAINSPRING_CLAIM_TTL": "2s", "MAINSPRING_CLAIM_RENEW": "500ms", "MAINSPRING_WORKER_DEAD_AFTER": "3s"}
PATIENCE_S = 60.0
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
    "AND query LIKE '%mainspring.jobs%'"
)
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'conflicts'"
TROUBLE = (StoreUnavailable, StoreFull, StoreReadOnly)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    server = make_server({"deadlock_timeout": "300ms"})
    yield server
    server.close()


class Scene:
    """One `mainspring up` and a client that submits all along, each run under a key of its own, until the answer says
    that it was accepted."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.app = RecordedApp(folder, "client", store=url, name="client")
        self.app.task(name="submitted")(_submitted)
        self.accepted: list[str] = []
        self.refusals: list[Exception] = []
        self.padding = ""
        self._done = asyncio.Event()
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "up.log").open("ab") as log:
            self._up = subprocess.Popen(
                [sys.executable, "-m", "mainspring", "up", str(APP), "--store", self.url, "--no-api"],
                env=os.environ | FAST | {"CRASH_FOLDER": str(self.folder)},
                stdout=log,
                stderr=log,
            )

    async def submit_all_along(self) -> None:
        number = 0
        while not self._done.is_set():
            number += 1
            self.accepted.append(await self._insist(number))
            await asyncio.sleep(0.02)

    async def _insist(self, number: int) -> str:
        while True:
            try:
                run = await self.app.submit(
                    "submitted", {"number": number, "padding": self.padding}, idempotency_key=f"key-{number}"
                )
            except TROUBLE as error:
                self.refusals.append(error)
                await asyncio.sleep(0.05)
            else:
                return run.id

    async def more_is_accepted_and_done(self, count: int = 10) -> None:
        """Work goes on: this many more are accepted, and the last of them ends."""
        enough = len(self.accepted) + count
        await until(lambda: len(self.accepted) >= enough, f"{count} more submissions")
        async with asyncio.timeout(PATIENCE_S):
            await self.app.waiting.until_ended(self.accepted[enough - 1])

    async def finish(self) -> None:
        self._done.set()
        async with asyncio.timeout(PATIENCE_S):
            for run_id in self.accepted:
                await self.app.waiting.until_ended(run_id)
        assert self._up is not None
        assert self._up.poll() is None, "up ended by itself"
        self._up.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self._up.wait, PATIENCE_S) == 0

    async def end(self) -> None:
        await self.app.close()
        if self._up is not None and self._up.poll() is None:
            self._up.kill()
            self._up.wait()


def _submitted(number: int, padding: str = "") -> int:
    return number


async def until(done: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if done():
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_S:g} s: {what}")


@asynccontextmanager
async def at_work(folder: Path, url: str) -> AsyncIterator[Scene]:
    """Work goes on before the trouble, and is brought to its end after it."""
    scene = Scene(folder, url)
    scene.start()
    submitting = asyncio.create_task(scene.submit_all_along())
    try:
        await scene.more_is_accepted_and_done()
        yield scene
        await scene.more_is_accepted_and_done()
        await scene.finish()
        await submitting
    finally:
        submitting.cancel()
        with suppress(asyncio.CancelledError):
            await submitting
        await scene.end()


def assert_promises_kept(scene: Scene, url: str) -> None:
    verdict = judge(scene.folder, url)
    assert verdict.ok, str(verdict)
    assert {1, 3, 4, 5, 6, 7, 8, 9, 17} <= set(verdict.judged)


async def strain_of(url: str) -> Strain:
    """What a process that has read the backlog knows of its store."""
    async with Mainspring(url) as app:
        store = await app.open()
        await store.backlog(10)
        return store.strain()


def test_after_a_failover_all_goes_on_at_the_promoted_replica(tmp_path: Path) -> None:
    primary = make_server()
    standby = primary.make_standby()
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://mainspring@{hosts}/chaos?target_session_attrs=primary"

    async def play() -> Scene:
        async with at_work(tmp_path, url) as scene:
            assert (await strain_of(url)).standbys == 1
            await asyncio.to_thread(primary.kill)
            await until(lambda: bool(scene.refusals), "a call that fails")
            await asyncio.to_thread(standby.promote)
            assert (await strain_of(url)).standbys == 0
        return scene

    try:
        scene = asyncio.run(play())
        assert_promises_kept(scene, standby.url)
    finally:
        standby.close()
        primary.close()


@pytest.fixture
def small_disk(server: Postgres) -> Iterator[Path]:
    """A disk of the server's with little room, on which is nothing but tables."""
    if os.geteuid():
        pytest.fail("only root can make a small disk")
    folder = Path(tempfile.mkdtemp(prefix="mainspring-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=0777", "mainspring", folder], check=True)
    (folder / "tables").mkdir()
    (folder / "tables").chmod(0o777)
    subprocess.run(["chown", "--reference", server.data, folder / "tables"], check=True)
    yield folder
    server.ask("DROP DATABASE IF EXISTS small WITH (FORCE)", "postgres")
    server.ask("DROP TABLESPACE IF EXISTS small", "postgres")
    subprocess.run(["umount", folder], check=True)
    folder.rmdir()


def test_on_a_full_disk_nothing_is_accepted_and_all_goes_on_once_there_is_room(
    server: Postgres, small_disk: Path, tmp_path: Path
) -> None:
    server.ask(f"CREATE TABLESPACE small LOCATION '{small_disk / 'tables'}'", "postgres")
    url = server.create("small", "TABLESPACE small")
    ballast = small_disk / "ballast"

    async def play() -> Scene:
        async with at_work(tmp_path, url) as scene:
            _fill(ballast)
            scene.padding = Random(0).randbytes(100_000).hex()
            await until(lambda: any(isinstance(error, StoreFull) for error in scene.refusals), "a full disk")
            ballast.unlink()
            scene.padding = ""
        return scene

    scene = asyncio.run(play())
    assert_promises_kept(scene, url)


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"\0" * 4096)


def test_transactions_that_the_server_ends_for_their_conflicts_are_tried_again(
    server: Postgres, tmp_path: Path
) -> None:
    url = server.create("conflicts")

    async def conflict() -> None:
        """Lock what a firing locks, in the other order: the firing waits first, so it is the one that is ended."""
        ours, watching = await asyncpg.connect(url), await asyncpg.connect(url)
        try:
            async with asyncio.timeout(PATIENCE_S), ours.transaction():
                await ours.execute("SET LOCAL deadlock_timeout = '60s'; SELECT FROM mainspring.jobs FOR UPDATE")
                while not await watching.fetchval(WAITING):
                    await asyncio.sleep(0.01)
                await ours.execute("SELECT FROM mainspring.terms FOR UPDATE")
        finally:
            await ours.close()
            await watching.close()

    async def play() -> Scene:
        async with at_work(tmp_path, url) as scene:
            async with asyncio.timeout(PATIENCE_S):
                while await asyncio.to_thread(server.ask, DEADLOCKS) == "0":
                    await conflict()
        return scene

    scene = asyncio.run(play())
    assert_promises_kept(scene, url)


class TestWhatGetsLostOnTheWay:
    """A commit is cut; what was asked for is asked for again."""

    @pytest.fixture
    async def wire(self, server: Postgres) -> AsyncIterator[tuple[Mainspring, Proxy]]:
        proxy = Proxy(server.port, Random(1))
        proxy.start()
        name = f"wire_{proxy.port}"
        server.create(name)
        app = Mainspring(f"postgresql://mainspring@127.0.0.1:{proxy.port}/{name}", schedule_retries=[])
        await app.submit("work", idempotency_key="before")  # Connected, and all statements known to the server.
        yield app, proxy
        await app.close()
        proxy.close()

    @pytest.mark.parametrize("cut", ["answer", "half"])
    async def test_is_asked_for_again_by_itself_within_the_time_of_a_submission(
        self, wire: tuple[Mainspring, Proxy], cut: Cut
    ) -> None:
        app, proxy = wire
        async with Mainspring(app.settings.store, schedule_retries="50ms,100ms") as other:
            await other.submit("work", idempotency_key="before")
            proxy.marked = (b"again", cut)
            await other.submit("work", idempotency_key="again")
            assert await (await other.open()).count_runs("default") == {"pending": 2}

    @pytest.mark.parametrize(("cut", "written"), [("answer", 2), ("half", 1)])
    async def test_is_not_taken_for_an_acceptance_and_a_repeated_submission_is_one(
        self, wire: tuple[Mainspring, Proxy], cut: Cut, written: int
    ) -> None:
        app, proxy = wire
        proxy.marked = (b"lost", cut)
        with pytest.raises(StoreUnavailable):
            await app.submit("work", idempotency_key="lost")
        store = await app.open()
        assert await store.count_runs("default") == {"pending": written}
        ids = {(await app.submit("work", idempotency_key="lost")).id for _ in range(2)}
        assert len(ids) == 1
        assert await store.count_runs("default") == {"pending": 2}
