"""What a hostile program can do to its host: nothing. Bombs are small, and always within limits."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deeds
import pytest
from scene import Attempt, Scene, is_alive, scene_of, until

from mainspring.core.tasks.isolation import Isolation
from mainspring.errors import InvalidInput
from mainspring.executors.launching.family import descendants
from mainspring.executors.launching.order import Launch
from mainspring.executors.programs.host import Host, HostProbe, identify, look_around
from mainspring.executors.programs.program import Launcher

HOST: Host = look_around("nobody", None)
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
PYTHONS_OWNER = "root" if sys.base_prefix.startswith("/root/") else None
"""A user that can start the Python of these tests, where not every user can."""
BOTH = pytest.mark.parametrize("level", ["limits", "sandbox"])

FORK_BOMB = """
import os, time
for _ in range(200):
    try:
        if not os.fork():
            time.sleep(60)
    except OSError:
        print("refused", flush=True)
        os._exit(9)
"""
MEMORY_BOMB = "data = []\nwhile True: data.append(bytearray(4_000_000))"
SPIN = "while True: pass"
FILLER = """
import errno, os, sys
try:
    with open(os.path.join(os.environ["TMPDIR"], "filler"), "wb") as file:
        for _ in range(64):
            file.write(bytes(1_000_000))
except OSError as error:
    sys.exit(errno.errorcode[error.errno])
"""


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of(deeds.app.tasks) as scene:
        yield scene


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can see: Pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def script(scene: Scene, level: Any, code: str, **limits: Any) -> Any:
    return await scene.command([PYTHON, "-S", "-c", code], {"isolation": Isolation(level, **limits)})


async def shell(scene: Scene, level: Any, text: str, **limits: Any) -> Any:
    return await scene.command(["sh", "-c", text], {"isolation": Isolation(level, **limits)})


def exists(path: str) -> bool:
    return os.path.exists(path)


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def groups() -> list[Path]:
    """Those that no other process keeps: other tests may have theirs at the same time."""
    ours = set(descendants(os.getpid()))
    found = [each for folder in HOST.cgroups.values() for each in Path(folder).glob("mainspring-[0-9]*-*")]
    shims = {each: int(each.name.split("-")[1]) for each in found}
    return [each for each, shim in shims.items() if shim in ours or not is_alive(shim)]


@BOTH
class TestBombs:
    async def test_a_fork_bomb_meets_its_limit_and_is_gone(self, scene: Scene, level: str) -> None:
        outcome, attempt = await script(scene, level, FORK_BOMB, processes=20)
        assert attempt.said() == ["refused"]
        assert outcome.failure.message == "the command exited with code 9: it met its limit of 20 processes"
        await until(lambda: not groups())
        assert (await shell(scene, level, "true"))[0].kind == "succeeded"

    async def test_a_memory_bomb_is_killed_and_others_are_not(self, scene: Scene, level: str) -> None:
        other = asyncio.create_task(shell(scene, level, "sleep 0.3; echo unharmed"))
        outcome, _ = await script(scene, level, MEMORY_BOMB, memory="48MB")
        expected = "the command was killed by SIGKILL: it used more memory than its limit of 48 MB"
        assert outcome.failure.message == expected
        assert (await other)[1].said() == ["unharmed"]

    async def test_a_spinning_one_runs_out_of_cpu_time(self, scene: Scene, level: str) -> None:
        limit = "300ms" if HOST.cpu else "1s"
        outcome, _ = await script(scene, level, SPIN, cpu=limit)
        expected = f"the command was killed by SIGXCPU: it used more CPU time than its limit of {limit}"
        assert outcome.failure.message == expected

    async def test_a_file_cannot_grow_beyond_its_limit(self, scene: Scene, level: str) -> None:
        outcome, attempt = await script(scene, level, FILLER, file_size="5MB")
        assert outcome.kind == "failed"
        assert attempt.said("stderr") == ["EFBIG"]

    async def test_it_cannot_have_more_files_open_than_its_limit(self, scene: Scene, level: str) -> None:
        code = "import os\nfor _ in range(50): os.dup(1)"
        outcome, attempt = await script(scene, level, code, files=20)
        assert outcome.kind == "failed"
        assert "Too many open files" in attempt.said("stderr")[-1]


async def test_the_disk_of_a_sandbox_is_bounded(scene: Scene) -> None:
    outcome, attempt = await script(scene, "sandbox", FILLER, disk="8MB")
    assert outcome.kind == "failed"
    assert attempt.said("stderr") == ["ENOSPC"]


@pytest.mark.parametrize("place", ["/", "/dev", "/usr", "/etc", "/run"])
async def test_elsewhere_a_sandbox_cannot_write(scene: Scene, place: str) -> None:
    outcome, _ = await shell(scene, "sandbox", f"echo x >{place}/x")
    assert outcome.kind == "failed"
    assert not exists(f"{place}/x")


class TestCuriosity:
    @BOTH
    async def test_it_cannot_read_what_is_not_its_own(self, scene: Scene, level: str) -> None:
        outcome, attempt = await shell(scene, level, "cat /etc/shadow")
        assert outcome.kind == "failed"
        assert attempt.said() == []

    @BOTH
    async def test_it_is_not_root_and_cannot_become_it(self, scene: Scene, level: str) -> None:
        wanted = "^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs):"
        _, attempt = await shell(scene, level, f"grep -E '{wanted}' /proc/self/status")
        kept = [line.split() for line in attempt.said()]
        user = kept[0][1]
        assert user != "0"
        assert kept == [
            ["Uid:", *[user] * 4],
            ["Gid:", *[user] * 4],
            ["Groups:"],
            ["CapPrm:", "0" * 16],
            ["CapEff:", "0" * 16],
            ["NoNewPrivs:", "1"],
        ]

    async def test_not_even_bubblewrap_itself_could_become_root_again(self) -> None:
        launcher = Launcher()
        argv = ["sh", "-c", "echo begun; exec sleep 60"]
        order: Launch = {"argv": argv, "env": {"PATH": os.environ["PATH"]}, "sandboxed": True}
        order["identity"] = identify("nobody")
        heard, said = os.pipe()
        program = await launcher.start(order, [0, said, 2])
        os.close(said)
        # Its pid is known a moment before the kernel has taken its privileges away; not one instruction is.
        assert await asyncio.wait_for(asyncio.to_thread(os.read, heard, 16), 20) == b"begun\n"
        os.close(heard)
        kept = status_of(program.pid)
        program.kill()
        await program.wait()
        program.close()
        launcher.close()
        assert (kept["Uid"], kept["Gid"], kept["Groups"]) == (["65534"] * 4, ["65534"] * 4, ["65534"])
        assert [kept[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [["0" * 16]] * 4

    @BOTH
    async def test_it_cannot_see_the_workers_environment(
        self, scene: Scene, level: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAINSPRING_STORE", "postgresql://user:password@host/db")
        _, attempt = await shell(scene, level, f"env; tr '\\0' '\\n' </proc/{os.getpid()}/environ; cat /proc/1/environ")
        assert not [line for line in attempt.said() if "password" in line]
        assert "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" in attempt.said()

    async def test_in_a_sandbox_it_sees_no_other_processes(self, scene: Scene) -> None:
        _, attempt = await shell(scene, "sandbox", "ls -d /proc/[0-9]*")
        assert len(attempt.said()) <= 4

    async def test_in_a_sandbox_there_is_no_network_unless_asked_for(self, scene: Scene) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('reached')"
        outcome, attempt = await script(scene, "sandbox", code)
        assert (outcome.kind, attempt.said()) == ("failed", [])
        _, attempt = await script(scene, "sandbox", code, network=True)
        assert attempt.said() == ["reached"]
        server.close()
        await server.wait_closed()

    async def test_in_a_sandbox_it_sees_only_the_folders_that_are_named(self, scene: Scene, open_folder: Path) -> None:
        for name in ("read", "write", "other"):
            (open_folder / name).mkdir()
            (open_folder / name / "file").write_text(name)
            (open_folder / name).chmod(0o777)
        text = f"cd {open_folder}; ls; cat read/file; echo x >write/new; echo x >read/new"
        words = {"read": [str(open_folder / "read")], "write": [str(open_folder / "write")]}
        outcome, attempt = await shell(scene, "sandbox", text, **words)
        assert outcome.kind == "failed"
        assert attempt.said() == ["read", "write", "read"]
        assert (open_folder / "write" / "new").read_text() == "x\n"
        assert not (open_folder / "read" / "new").exists()

    async def test_a_function_in_a_sandbox_sees_as_little(
        self, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAINSPRING_STORE", "postgresql://user:password@host/db")
        secret = tmp_path / "password"
        secret.write_text("password")
        attempt = Attempt("look_around", {"secret": str(secret)}, isolation=Isolation("sandbox", user=PYTHONS_OWNER))
        outcome = await scene.execute(attempt)
        assert outcome.kind == "succeeded", (outcome, attempt.lines)
        found = json.loads(outcome.result or "")
        assert found[str(secret)] == "FileNotFoundError"
        assert found["/etc/shadow"] == "FileNotFoundError"
        assert "MAINSPRING_STORE" not in found["environment"]
        assert found["network"] in ("ConnectionRefusedError", "OSError")
        assert len(found["processes"]) <= 3


@BOTH
async def test_its_temporary_folder_is_private_and_goes_with_it(scene: Scene, level: str) -> None:
    _, attempt = await shell(scene, level, 'echo x >"$TMPDIR/x"; stat -c %a "$TMPDIR"; echo "$TMPDIR"; ls "$TMPDIR/x"')
    mode, folder, name = attempt.said()
    assert (mode, name) == ("700", f"{folder}/x")
    assert not exists(f"{folder}/x")


async def test_commands_find_the_python_of_a_project_in_a_temporary_folder(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as project:
        os.chmod(project, 0o755)
        (Path(project) / "python").touch()
        command = f"test -e {project}/python && echo found || echo missing"
        _, without = await shell(scene, "limits", command)
        monkeypatch.setattr(sys, "prefix", project)
        _, attempt = await shell(scene, "limits", command)
    assert (without.said(), attempt.said()) == (["missing"], ["found"])


class TestRefusals:
    async def test_a_sandbox_that_the_host_cannot_make_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        async with scene_of() as scene:
            outcome, _ = await shell(scene, "sandbox", "true")
        assert outcome.failure.type == "IsolationUnavailable"
        assert outcome.failure.message == "this worker cannot offer a sandbox: bubblewrap is not installed"

    async def test_a_limit_of_processes_without_control_groups_needs_another_user(self, tmp_path: Path) -> None:
        async with scene_of(cgroup=str(tmp_path)) as scene:
            outcome, _ = await shell(scene, "limits", "true", processes=5, user="root")
            assert outcome.failure.type == "IsolationUnavailable"
            outcome, attempt = await script(scene, "limits", FORK_BOMB, processes=20, user="games")
            assert attempt.said() == ["refused"]

    async def test_a_user_that_does_not_exist_is_refused(self, scene: Scene) -> None:
        outcome, _ = await shell(scene, "limits", "true", user="no-such-user")
        assert "there is no such user" in outcome.failure.message

    async def test_without_control_groups_memory_is_limited_for_each_process(self, tmp_path: Path) -> None:
        async with scene_of(cgroup=str(tmp_path)) as scene:
            outcome, attempt = await script(scene, "limits", MEMORY_BOMB, memory="100MB")
        assert outcome.kind == "failed"
        assert attempt.said("stderr")[-1] == "MemoryError"

    async def test_concurrent_probes_of_the_host_see_the_same(self) -> None:
        """What one of them tries must not look to another like something that the host cannot do."""
        with ThreadPoolExecutor(8) as pool:
            hosts = list(pool.map(lambda _: look_around("nobody", None), range(24)))
        assert all(host == HOST for host in hosts)
        probe = HostProbe("nobody", None)
        first, second = [asyncio.create_task(probe.host()) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        assert await second == await probe.host() == HOST

    def test_what_the_host_cannot_do_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        words = "\n".join(look_around("nobody", str(tmp_path)).describe())
        assert "no sandbox: bubblewrap is not installed" in words
        assert "no limit of processes" in words

    @pytest.mark.parametrize(
        ("level", "limits", "problem"),
        [
            ("jail", {}, "is not known"),
            ("process", {"memory": "1GB"}, "holds only from level limits on"),
            ("limits", {"network": True}, "holds only in a sandbox"),
            ("limits", {"memory": "much"}, "is not a size"),
            ("limits", {"processes": 0}, "is not a count"),
            ("sandbox", {"read": ["relative"]}, "is not an absolute path"),
            ("sandbox", {"read": ["/a/../b"]}, "is not an absolute path"),
        ],
    )
    def test_a_wrong_word_is_refused_where_it_is_written(self, level: Any, limits: Any, problem: str) -> None:
        with pytest.raises(InvalidInput, match=problem):
            Isolation(level, **limits)


async def test_commands_are_isolated_as_the_settings_say_or_more_but_not_less() -> None:
    async with scene_of(isolation="limits") as scene:
        _, attempt = await scene.command(["hostname"])
        assert attempt.said() != ["sandbox"]
        _, attempt = await scene.command(["hostname"], {"isolation": "sandbox"})
        assert attempt.said() == ["sandbox"]
        outcome, _ = await scene.command(["hostname"], {"isolation": "none"})
        assert outcome.failure.message == (
            "this worker cannot offer commands the isolation none: they have limits at least, by its setting isolation"
        )
