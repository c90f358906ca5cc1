"""What a run writes can be read elsewhere while it runs, with the commands of the program."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from test_worker_deaths import PATIENCE_S, app, has_ended, until, up

from mainspring import Mainspring, Retry
from sdk_work import stored_run

__all__ = ["app"]


@asynccontextmanager
async def following(folder: Path, run_id: str) -> AsyncIterator[asyncio.StreamReader]:
    """What `mainspring run logs -f` prints."""
    env = {**os.environ, "MAINSPRING_STORE": f"sqlite:///{folder / 'test.db'}"}
    argv = [sys.executable, "-m", "mainspring", "run", "logs", run_id, "-f"]
    process = await asyncio.create_subprocess_exec(*argv, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_lines_arrive_while_it_runs_and_following_ends_with_it(app: Mainspring, tmp_path: Path) -> None:
    """Of a command, and of a function."""
    gates = [tmp_path / "gate-0", tmp_path / "gate-1"]
    script = f"echo first; while ! test -e {gates[0]}; do sleep 0.02; done; echo second >&2"
    runs = [
        await app.submit("command", {"argv": ["sh", "-c", script]}),
        await app.submit("talk", {"gate": str(gates[1])}, timeout="10m"),
    ]
    async with up(tmp_path), asyncio.timeout(PATIENCE_S):
        for run, gate in zip(runs, gates, strict=True):
            async with following(tmp_path, run.id) as lines:
                assert (await lines.readline()).split()[1:] == [b"first"]
                assert not await has_ended(app, run.id)
                gate.touch()
                assert (await lines.readline()).split()[1:] == [b"second"]
                assert await lines.readline() == b""
            assert (await stored_run(app, run.id)).state == "succeeded"


async def test_an_end_is_recorded_with_its_reason_its_result_and_what_was_written(
    app: Mainspring, tmp_path: Path
) -> None:
    """By exit code, by the last line and by a file: through the whole program."""
    last = await app.submit("command", {"argv": ["sh", "-c", """echo '{"rows": 3}'"""], "result": "line"})
    file = await app.submit("command", {"argv": ["sh", "-c", "echo 7 >$MAINSPRING_RESULT"], "result": "file"})
    final = await app.submit("command", {"argv": ["sh", "-c", "exit 2"], "final": [2]})
    again = await app.submit("command", {"argv": ["sh", "-c", "exit 3"]}, retry=Retry(1, delay="10ms"))
    async with up(tmp_path):
        for run in (last, file, final, again):
            await until(partial(has_ended, app, run.id))
    ends = [await stored_run(app, run.id) for run in (last, file, final, again)]
    assert [end.result for end in ends[:2]] == ['{"rows":3}', "7"]
    assert [(end.state, end.attempt) for end in ends[2:]] == [("failed", 1), ("failed", 2)]
    assert ends[2].reason.startswith("CommandFailed: the command exited with code 2; not retried")
    assert ends[3].reason.startswith("CommandFailed: the command exited with code 3")
