"""Confined runs on one host cannot harm each other, leave nothing behind, and cannot hide that memory ran out."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import deeds
import msgspec
import pytest
from scene import Attempt, Scene, scene_of, until

from mainspring.core.tasks.isolation import Isolation, format_isolation, parse_isolation
from mainspring.executors.launching import seclusion
from mainspring.executors.programs.host import Host, HostProbe, look_around

USERS = (60_706, 61_183)
HOST: Host = look_around(None, None, USERS)
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
# What a host permits can be looked up and not installed: tests of that are skipped where it permits less than root has.
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

VICTIM = """
import os, subprocess, sys, time
from pathlib import Path
(Path(os.environ["TMPDIR"]) / "private").write_text("my own")
child = subprocess.Popen(["sleep", "60"])
print(os.getpid(), child.pid, os.getuid(), os.environ["TMPDIR"], flush=True)
while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.01)
print("harmed" if child.poll() is not None else "unharmed", flush=True)
"""
THIEF = """
import os, signal, sys
pid, child, user, folder = sys.argv[1:]
print("user", "same" if str(os.getuid()) == user else "other")
for path in (f"/proc/{pid}/environ", f"/proc/{pid}/mem", f"{folder}/private", f"/proc/{pid}/root/{folder}/private"):
    try:
        print("read", path, open(path, "rb").read(100))
    except OSError:
        pass
for victim in (pid, child):
    try:
        os.kill(int(victim), signal.SIGKILL)
        print("killed", victim)
    except OSError:
        pass
"""


@pytest.fixture(params=["mounts", "no mounts"])
async def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Executors on a host that can give runs mounts of their own, and on one that cannot, as most containers."""
    if request.param == "no mounts":
        trouble = {**HOST.troubles, "private /tmp for runs with limits": "not permitted"}
        host = msgspec.structs.replace(HOST, private=False, troubles=trouble)

        async def poor(_: HostProbe) -> Host:
            return host

        monkeypatch.setattr(HostProbe, "host", poor)
    elif not HOST.private:
        pytest.skip("this host permits no mounts")
    async with scene_of(deeds.app.tasks) as scene:
        yield scene


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file in a folder that every user sees, and that is no temporary one."""
    folder = Path(tempfile.mkdtemp(dir="/run"))
    folder.chmod(0o755)
    yield folder / "gate"
    shutil.rmtree(folder)


def open_gate(gate: Path) -> None:
    gate.touch()


def exists(path: str) -> bool:
    return os.path.exists(path)


async def test_a_run_can_neither_read_nor_harm_another(scene: Scene, gate: Path) -> None:
    env = {"SECRET": "the other's", "GATE": str(gate)}
    victim = Attempt("command", {"argv": [PYTHON, "-S", "-c", VICTIM], "env": env}, isolation="limits")
    working = scene.begin(victim)
    await until(victim.said)
    facts = victim.said()[0].split()
    _, thief = await scene.command([PYTHON, "-S", "-c", THIEF, *facts], {"isolation": "limits"})
    open_gate(gate)
    assert (await working).kind == "succeeded", victim.lines
    assert thief.said() == ["user other"], thief.lines
    assert victim.said()[1:] == ["unharmed"]


async def test_each_run_has_a_user_of_its_own_also_in_a_sandbox(scene: Scene) -> None:
    both = [
        Attempt("command", {"argv": ["sh", "-c", "id -u; sleep 0.3"]}, isolation=each) for each in ("limits", "sandbox")
    ]
    await asyncio.gather(*(scene.execute(each) for each in (*both, *both)))
    users = [int(user) for each in both for user in each.said()]
    assert len(set(users)) == 4
    assert all(USERS[0] <= user <= USERS[1] for user in users)


async def test_what_it_leaves_in_temporary_folders_goes_with_it(scene: Scene) -> None:
    name = f"left-{uuid.uuid4().hex}"
    places = [place for place in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock") if os.access(place, os.W_OK)]
    script = f"for place in {' '.join(places)}; do mkdir -p $place/{name}/deep && echo x >$place/{name}/deep/file; done"
    script += "; echo $?"
    outcome, attempt = await scene.command(["sh", "-c", script], {"isolation": "limits"})
    assert (outcome.kind, attempt.said()) == ("succeeded", ["0"])
    assert not [place for place in places if exists(f"{place}/{name}")]


async def test_users_that_are_all_taken_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene_of(run_users=(USERS[1], USERS[1])) as scene:
        first = Attempt("command", {"argv": ["sh", "-c", "echo begun; sleep 60"]}, isolation="limits")
        working = scene.begin(first)
        await until(first.said)
        outcome, _ = await scene.command(["true"], {"isolation": "limits"})
        assert f"all user ids from {USERS[1]} to {USERS[1]} are taken" in outcome.failure.message
        working.cancel()
        await asyncio.wait({working})
        assert (await scene.command(["true"], {"isolation": "limits"}))[0].kind == "succeeded"


@pytest.mark.skipif(not HOST.private, reason="this host permits no mounts")
class TestPrivateFolders:
    @pytest.mark.parametrize("place", seclusion.TEMPORARY)
    async def test_they_have_a_size(self, place: str) -> None:
        async with scene_of() as scene:
            script = f"head -c 20M /dev/zero >{place}/filler"
            isolation = Isolation("limits", disk="4MB")
            outcome, attempt = await scene.command(["sh", "-c", script], {"isolation": isolation})
        assert outcome.kind == "failed"
        assert "No space left on device" in attempt.said("stderr")[-1]

    async def test_what_others_have_there_is_not_seen(self, tmp_path: Path) -> None:
        async with scene_of() as scene:
            _, attempt = await scene.command(["ls", "-A", "/tmp", "/dev/shm"], {"isolation": "limits"})
        python = Path(sys.prefix).parts[2] if sys.prefix.startswith("/tmp/") else ""  # Commands may use it.
        assert [line for line in attempt.said() if line not in ("", python)] == ["/dev/shm:", "/tmp:"]

    async def test_the_folder_that_a_command_names_is_seen_wherever_it_is(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            (Path(folder) / "here").touch()
            async with scene_of() as scene:
                _, attempt = await scene.command(["ls"], {"isolation": "limits"}, cwd=folder)
        assert attempt.said() == ["here"]

    async def test_a_result_can_be_written(self) -> None:
        async with scene_of() as scene:
            script = ["sh", "-c", 'echo "[1, 2]" >"$MAINSPRING_RESULT"']
            outcome, _ = await scene.command(script, {"isolation": "limits"}, result="file")
        assert outcome.result == "[1,2]"

    async def test_command_lines_of_other_users_are_not_seen(self) -> None:
        async with scene_of() as scene:
            _, attempt = await scene.command(["sh", "-c", "cat /proc/[0-9]*/comm"], {"isolation": "limits"})
        assert set(attempt.said()) <= {"sh", "cat"}


EATER = "data = []\nwhile True: data.append(bytearray(4_000_000))"


@pytest.mark.skipif(not HOST.memory, reason="no control group of this host limits memory")
class TestMemory:
    @pytest.mark.parametrize("level", ["limits", "sandbox"])
    async def test_a_run_whose_child_was_killed_for_memory_fails_and_says_so(self, level: Any) -> None:
        script = ["sh", "-c", f"{PYTHON} -S -c '{EATER}'; echo went on; exit 0"]
        async with scene_of() as scene:
            isolation = Isolation(level, memory="48MB")
            outcome, attempt = await scene.command(script, {"isolation": isolation})
            assert attempt.said() == ["went on"]
            assert outcome.failure.message == (
                "the command exited with code 0, but one of its processes was killed, because together they used "
                "more memory than the limit of 48 MB"
            )
            told_otherwise = Isolation(level, memory="48MB", ignore_oom=True)
            outcome, _ = await scene.command(script, {"isolation": told_otherwise})
            assert outcome.kind == "succeeded"

    async def test_so_does_a_function(self) -> None:
        async with scene_of(deeds.app.tasks) as scene:
            isolation = Isolation("limits", memory="128MB", user=_who_can_start_python())
            outcome = await scene.execute(Attempt("start_eater", {"python": PYTHON}, isolation=isolation))
        assert outcome.failure is not None
        assert re.match("the function returned, but one of its processes was killed", outcome.failure.message)

    def test_it_can_be_written_as_a_text(self) -> None:
        isolation = Isolation("limits", memory="64MB", ignore_oom=True)
        assert parse_isolation(format_isolation(isolation)) == isolation


def _who_can_start_python() -> str | None:
    return "root" if sys.base_prefix.startswith("/root/") else None
