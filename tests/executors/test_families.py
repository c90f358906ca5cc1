"""A program ends with all that it started, whatever that does to get away, and whichever dies first."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from scene import LEVELS, Attempt, Scene, is_alive, pids_in, scene_of, until

from mainspring.executors.launching.family import descendants, parents
from mainspring.executors.launching.order import LENGTH
from mainspring.executors.programs.host import look_around

DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    time.sleep(float(sys.argv[2]))
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in range(3, 100):
    try:
        os.close(number)
    except OSError:
        pass
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""
"""Leaves a daemon with a session of its own, without a parent, deaf to requests; and stays for a while itself."""

ZOMBIES = """
import os
for _ in range(20):
    pid = os.fork()
    if not pid:
        os._exit(0)
    print(pid)
"""


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of() as scene:
        yield scene


def words_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def daemon(file: Path, stay_s: float) -> Attempt:
    return Attempt("command", {"argv": [sys.executable, "-S", "-c", DAEMON, str(file), str(stay_s)]})


async def stopped(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def elders(pid: int) -> tuple[int, int]:
    """The shim and the fork_server of a program."""
    family = parents()
    return family[pid], family[family[pid]]


class TestRemains:
    async def test_a_daemon_dies_when_its_command_ends(self, scene: Scene, tmp_path: Path) -> None:
        attempt = daemon(tmp_path / "pid", 0.3)
        assert (await scene.execute(attempt)).kind == "succeeded"
        (pid,) = pids_in(tmp_path / "pid")
        assert not is_alive(pid)

    async def test_a_daemon_dies_when_its_command_is_stopped(self, scene: Scene, tmp_path: Path) -> None:
        attempt = daemon(tmp_path / "pid", 60)
        attempt.grace_s = 0.1
        task = scene.begin(attempt)
        await until(lambda: pids_in(tmp_path / "pid"))
        await stopped(task)
        assert not is_alive(pids_in(tmp_path / "pid")[0])

    async def test_orphaned_children_do_not_remain(self, scene: Scene) -> None:
        outcome, attempt = await scene.command([sys.executable, "-S", "-c", ZOMBIES])
        children = {int(line) for line in attempt.said()}
        assert (outcome.kind, len(children)) == ("succeeded", 20)
        await until(lambda: not children & parents().keys())


class TestStopping:
    @pytest.mark.parametrize("level", LEVELS)
    async def test_it_is_asked_first(self, scene: Scene, level: str) -> None:
        script = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        attempt = Attempt("command", {"argv": ["sh", "-c", script]}, isolation=level)
        task = scene.begin(attempt)
        await until(lambda: attempt.said() == ["ready"])
        await stopped(task)
        assert attempt.said() == ["ready", "cleaned"]

    @pytest.mark.parametrize("level", LEVELS)
    async def test_one_that_does_not_listen_is_killed_after_the_grace(self, scene: Scene, level: str) -> None:
        script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
        attempt = Attempt("command", {"argv": ["sh", "-c", script]}, isolation=level)
        attempt.grace_s = 0.2
        task = scene.begin(attempt)
        await until(lambda: attempt.said() == ["ready"])
        async with asyncio.timeout(30):
            await stopped(task)

    async def test_without_grace_it_is_killed_at_once(self, scene: Scene, tmp_path: Path) -> None:
        script = f"trap 'echo heard >{tmp_path / 'heard'}' TERM; echo $$ >{tmp_path / 'pid'}; while :; do :; done"
        attempt = Attempt("command", {"argv": ["sh", "-c", script]})
        attempt.grace_s = 0.0
        task = scene.begin(attempt)
        await until(lambda: pids_in(tmp_path / "pid"))
        await stopped(task)
        assert not is_alive(pids_in(tmp_path / "pid")[0])
        assert not (tmp_path / "heard").exists()

    @pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.003, 0.01, 0.03])
    async def test_at_whatever_moment_nothing_is_left(self, scene: Scene, tmp_path: Path, pause_s: float) -> None:
        """While it starts, runs or finishes."""
        script = f"echo $$ >>{tmp_path / 'pids'}; sleep 0.01"
        for _ in range(5):
            task = scene.begin(Attempt("command", {"argv": ["sh", "-c", script]}))
            await asyncio.sleep(pause_s)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await until(lambda: not [pid for pid in pids_in(tmp_path / "pids", 0) if is_alive(pid)])
        assert (await scene.command(["true"]))[0].kind == "succeeded"

    async def test_one_that_is_stopped_again_while_it_ends_is_gone_all_the_same(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        script = f"trap '' TERM; echo $$ >{tmp_path / 'pid'}; while :; do sleep 0.05; done"
        attempt = Attempt("command", {"argv": ["sh", "-c", script]})
        attempt.grace_s = 30.0
        task = scene.begin(attempt)
        await until(lambda: pids_in(tmp_path / "pid"))
        task.cancel()
        await asyncio.sleep(0.05)
        await stopped(task)
        await until(lambda: not is_alive(pids_in(tmp_path / "pid")[0]))


def folders_of(shim: int) -> list[Path]:
    """The folders that a shim has made for its program."""
    return list(Path(tempfile.gettempdir()).glob(f"mainspring-{shim}-*"))


class TestDeaths:
    async def test_a_worker_that_goes_without_reading_all_is_gone_and_no_fault(self) -> None:
        """What it had not read makes its end a reset of the line."""
        ours, theirs = socket.socketpair()
        code = "import socket, sys; from mainspring.executors.launching.shim import Shim; "
        code += "Shim(None, print).keep(socket.socket(fileno=int(sys.argv[1])), [])"
        argv = [sys.executable, "-c", code, str(theirs.fileno())]
        with ours, theirs:
            shim = await asyncio.create_subprocess_exec(
                *argv, pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            theirs.close()
            order = json.dumps({"argv": ["sleep", "60"], "env": dict(os.environ), "cwd": None}).encode()
            ours.sendall(LENGTH.pack(len(order)) + order)
            answer = await asyncio.to_thread(ours.recv, 4096, socket.MSG_PEEK)
            ours.close()
        async with asyncio.timeout(30):
            _, complaints = await shim.communicate()
        assert (shim.returncode, complaints) == (0, b"")
        assert not is_alive(json.loads(answer)["pid"])

    async def test_if_the_shim_is_killed_so_is_its_family(self, scene: Scene, tmp_path: Path) -> None:
        task = scene.begin(daemon(tmp_path / "pid", 60))
        await until(lambda: pids_in(tmp_path / "pid"))
        (pid,) = pids_in(tmp_path / "pid")
        os.kill(parents()[pid], signal.SIGKILL)
        outcome = await task
        assert outcome.kind == "failed"
        await until(lambda: not is_alive(pid))
        assert (await scene.command(["true"]))[0].kind == "succeeded"

    @pytest.mark.parametrize("level", ["limits", "limits,processes=20"])
    async def test_if_the_shim_is_killed_what_it_made_is_removed(
        self, scene: Scene, tmp_path: Path, level: str
    ) -> None:
        note = tmp_path / "pid"
        script = "cat /proc/self/cgroup >groups; echo x >$TMPDIR/x; echo $$ >pid; sleep 60"
        words = {"argv": ["sh", "-c", script], "cwd": str(tmp_path)}
        task = scene.begin(Attempt("command", words, isolation=f"{level},user=root"))
        await until(lambda: pids_in(note))
        host = look_around("nobody", None)
        name = re.search(r"mainspring-[-0-9a-f]+", (tmp_path / "groups").read_text())
        groups = [Path(each) / name[0] for each in host.cgroups.values()] if name else []
        made = [group for group in groups if group.exists()]
        assert len(made) == ("processes" in level)
        shim = parents()[pids_in(note)[0]]
        left = [*made, *folders_of(shim)]
        assert len(left) == len(made) + (not host.private)
        os.kill(shim, signal.SIGKILL)
        assert (await task).kind == "failed"
        await until(lambda: not [path for path in left if path.exists()])

    async def test_shims_that_wait_can_be_killed_and_go_with_the_executors(self, tmp_path: Path) -> None:
        async with asyncio.timeout(30), scene_of() as scene:
            task = scene.begin(daemon(tmp_path / "pid", 60))
            await until(lambda: pids_in(tmp_path / "pid"))
            family = parents()
            fork_server = family[family[pids_in(tmp_path / "pid")[0]]]
            for _ in range(20):  # One that is just being killed may be the one that takes the next order.
                family = parents()
                waiting = [
                    pid for pid, parent in family.items() if parent == fork_server and pid not in family.values()
                ]
                for pid in waiting:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                outcomes = await asyncio.gather(*(scene.command(["echo", str(number)]) for number in range(2)))
                assert [attempt.said() for _, attempt in outcomes] == [["0"], ["1"]]
            assert is_alive(pids_in(tmp_path / "pid")[0]), "what ran was not their business"
            children = descendants(fork_server)
            await stopped(task)
        await until(lambda: not [pid for pid in (fork_server, *children) if is_alive(pid)])

    async def test_if_the_fork_server_is_killed_there_is_another(self, scene: Scene, tmp_path: Path) -> None:
        task = scene.begin(daemon(tmp_path / "pid", 0.5))
        await until(lambda: pids_in(tmp_path / "pid"))
        _, fork_server = elders(pids_in(tmp_path / "pid")[0])
        assert fork_server != os.getpid()
        os.kill(fork_server, signal.SIGKILL)
        assert (await scene.command(["echo", "again"]))[1].said() == ["again"]
        assert (await task).kind == "succeeded", "what ran was not its business"

    async def test_a_fork_server_whose_shims_cannot_get_ready_leaves_the_work_to_another(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        """It would fork one after the other, for ever."""
        task = scene.begin(daemon(tmp_path / "pid", 60))
        await until(lambda: pids_in(tmp_path / "pid"))
        _, fork_server = elders(pids_in(tmp_path / "pid")[0])
        resource.prlimit(fork_server, resource.RLIMIT_NOFILE, (10, 10))
        async with asyncio.timeout(30):
            for number in range(4):
                assert (await scene.command(["echo", str(number)]))[1].said() == [str(number)]
        await until(lambda: not is_alive(fork_server))
        assert is_alive(pids_in(tmp_path / "pid")[0]), "what ran was not its business"
        await stopped(task)

    async def test_a_shim_stays_in_no_folder_of_its_program(self, scene: Scene, tmp_path: Path) -> None:
        """No user could unmount it."""
        task = scene.begin(Attempt("command", {"argv": ["sh", "-c", "echo $$ >pid; sleep 60"], "cwd": str(tmp_path)}))
        await until(lambda: pids_in(tmp_path / "pid"))
        shim, _ = elders(pids_in(tmp_path / "pid")[0])
        assert os.readlink(f"/proc/{shim}/cwd") == "/"
        await stopped(task)

    async def test_killing_by_the_name_of_the_program_does_not_kill_the_processes_that_clean_up(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        task = scene.begin(daemon(tmp_path / "pid", 60))
        await until(lambda: pids_in(tmp_path / "pid"))
        for pid in elders(pids_in(tmp_path / "pid")[0]):
            assert not [word for word in words_of(pid)[1:] if b"mainspring" in word]
        await stopped(task)

    async def test_if_the_worker_is_killed_nothing_is_left(self, tmp_path: Path) -> None:
        """Not even where a process that it forked holds all its files open."""
        code = f"""
import asyncio, os, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from scene import LEVELS, Attempt, scene_of
from test_families import DAEMON, daemon
from pathlib import Path
async def main():
    async with scene_of() as scene:
        task = scene.begin(daemon(Path({str(tmp_path / "pid")!r}), 60))
        await asyncio.sleep(0.5)
        if not (twin := os.fork()):
            time.sleep(60)
            os._exit(0)
        Path({str(tmp_path / "twin")!r}).write_text(str(twin))
        await task
asyncio.run(main())
"""
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        await until(lambda: pids_in(tmp_path / "pid") and pids_in(tmp_path / "twin"))
        worker.kill()
        await worker.wait()
        try:
            await until(lambda: not is_alive(pids_in(tmp_path / "pid")[0]))
        finally:
            os.kill(pids_in(tmp_path / "twin")[0], signal.SIGKILL)
