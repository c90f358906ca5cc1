"""A site on this machine: two PostgreSQL servers, one of which follows the other, each with a server and a worker
beside it; and a broker. It is built for one drill, and removed after it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from mainspring.ops.drill.site import join_hosts, wait_until
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.servers.process import free_port
from mainspring.testing.servers.redis import RedisServer

LONG_S = 20.0
READY_S = 120.0
_APP = """
import asyncio

from mainspring import Abort, Mainspring, every

app = Mainspring(name="drilled")


@app.task
async def probe(seconds: float = 0.0, fails: bool = False) -> None:
    if fails:
        raise Abort("on purpose")
    await asyncio.sleep(seconds)


@app.job(every("1s"))
async def tick() -> None: ...
"""


class LocalSite:
    """Two PostgreSQL servers with streaming replication, two servers, two workers, and Redis as broker and status
    cache."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-drill-")))
        self._databases: tuple[Postgres, Postgres]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {"a": free_port(), "b": free_port()}
        self.primary = self.standby = self.broker = ""
        self.servers: tuple[str, ...] = (f"http://127.0.0.1:{self._ports['b']}",)
        self.task = "probe"
        self.args: Mapping[str, Any] = {}
        self.long_args: Mapping[str, Any] = {"seconds": LONG_S}
        self.failing_args: Mapping[str, Any] = {"fails": True}

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        redis = RedisServer(self.folder).start()
        self._stack.callback(redis.kill)
        first = Postgres()
        self._stack.callback(first.close)
        first.make()
        second = first.make_standby()
        self._stack.callback(second.close)
        self._databases = (first, second)
        self.primary, self.standby, self.broker = first.url, second.url, redis.url
        (self.folder / "drilled.py").write_text(_APP)
        self._stack.callback(self._kill, "server-a", "worker-a", "server-b", "worker-b")
        self._start("a")
        self._until_ready("a")  # It makes the schema; two that do at once would only wait for each other.
        self._start("b")
        self._until_ready("b")

    def _start(self, side: str) -> None:
        """A server and a worker, on one of the two sides."""
        self._launch(f"server-{side}", "server", "drilled.py", "--port", str(self._ports[side]))
        self._launch(f"worker-{side}", "worker", "drilled.py")

    def _launch(self, name: str, *words: str) -> None:
        own = {
            "MAINSPRING_STORE": join_hosts(self.primary, self.standby),
            "MAINSPRING_BROKER": self.broker,
            "MAINSPRING_CACHE": self.broker,
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MAINSPRING_")}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "mainspring", *words], cwd=self.folder, env=kept | own, stdout=log, stderr=log
            )

    def _until_ready(self, side: str) -> None:
        import httpx

        def ready() -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{self._ports[side]}/health/ready", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(ready, f"server {side} is ready", READY_S)

    def _kill(self, *names: str) -> None:
        for name in names:
            process = self._processes.pop(name, None)
            if process is not None:
                process.kill()
                process.wait()

    def rehearse(self) -> str:
        """Everything is of this machine."""
        return "no command is needed"

    def fail(self) -> None:
        """Kill the primary with -9, and the server and the worker beside it."""
        self._kill("server-a", "worker-a")
        self._databases[0].kill()

    def promote(self) -> None:
        """Promote the standby as an operator does."""
        self._databases[1].promote()

    def redirect(self) -> str:
        """Nothing is to be done."""
        return "clients try every host of their URL"

    def restore(self) -> None:
        """Rebuild the first primary from the new one, and start what ran beside it."""
        first, second = self._databases
        first.follow(second)
        self._start("a")
        self._until_ready("a")

    def fail_back(self) -> None:
        """Stop the new primary in order, so that the first one has every commit, and promote that."""
        first, second = self._databases
        second.stop()
        first.promote()
        second.follow(first)
