"""Control groups: of version 1 as this host has them, of version 2 as far as it can be had, and as files otherwise."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scene import Scene, is_alive, pids_in, scene_of, until
from test_confinement import BOTH, HOST, PYTHON, groups, script

from mainspring.core.tasks.isolation import Isolation
from mainspring.executors.launching.groups import UNIFIED, Group
from mainspring.executors.programs.confinement import confine, describe_ending
from mainspring.executors.programs.host import look_around
from mainspring.executors.programs.program import Ending

SPIN_IN_TURN = """
import os, sys, time
for _ in range(100):
    if not os.fork():
        end = time.process_time() + 0.05
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""
"""Five seconds of processor time, none of its processes with more than a fraction of one."""


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of() as scene:
        yield scene


class TestTime:
    @BOTH
    async def test_the_limit_is_for_all_processes_together(self, scene: Scene, level: str) -> None:
        outcome, _ = await script(scene, level, SPIN_IN_TURN, cpu="300ms")
        assert outcome.kind == "failed"
        assert outcome.failure.message.endswith("it used more CPU time than its limit of 300ms")
        await until(lambda: not groups())

    async def test_one_that_does_not_heed_its_warning_is_killed(self, scene: Scene) -> None:
        code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
        outcome, _ = await script(scene, "limits", code, cpu="100ms")
        expected = "the command was killed by SIGKILL: it used more CPU time than its limit of 100ms"
        assert outcome.failure.message == expected

    async def test_time_that_is_waited_is_not_counted(self, scene: Scene) -> None:
        outcome, _ = await script(scene, "limits", "import time; time.sleep(0.4)", cpu="300ms")
        assert outcome.kind == "succeeded"


VERSION_2 = """
import asyncio, os, sys
sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[1])]
from scene import scene_of
from mainspring.core.tasks.isolation import Isolation
from test_confinement import PYTHON, script
from test_families import DAEMON
from test_groups import SPIN_IN_TURN
async def main():
    async with scene_of(cgroup=sys.argv[2]) as scene:
        outcome, _ = await script(scene, "limits", SPIN_IN_TURN, cpu="300ms", user="root")
        print(outcome.failure.message)
        argv = [PYTHON, "-S", "-c", DAEMON, sys.argv[3], "0.2"]
        outcome, _ = await scene.command(argv, {"isolation": Isolation("limits", cpu="60s", user="root")})
        print(outcome.kind)
asyncio.run(main())
"""


async def test_on_a_hierarchy_of_version_2_time_is_counted_and_all_members_end(tmp_path: Path) -> None:
    """Its own mount of it, where only this process and its children can see it."""
    with tempfile.TemporaryDirectory(dir="/run") as place:  # Temporary folders are not what they are for runs.
        await count_on_version_2(tmp_path, Path(place))


async def count_on_version_2(tmp_path: Path, place: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.fail("unshare is not installed")
    folder = place / "groups"
    folder.mkdir()
    (tmp_path / "code.py").write_text(VERSION_2)
    here = Path(__file__).parent
    own = folder / f"mainspring-test-{os.getpid()}"  # Another test may be at it: the hierarchy is the host's.
    inner = f"mount -t cgroup2 none {folder} || exit 77; mkdir {own} || exit 77; "
    inner += f"{sys.executable} {tmp_path / 'code.py'} {here} {own} {place / 'pids'}; "
    inner += f"find {own} -mindepth 1 -type d; rmdir {own}"
    process = await asyncio.create_subprocess_exec(
        "unshare", "-m", "sh", "-c", inner, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        output, trouble = await process.communicate()
    if process.returncode == 77:
        pytest.fail(f"no hierarchy of version 2 can be mounted here: {trouble.decode()}")
    lines = output.decode().splitlines()
    assert len(lines) == 2, (lines, trouble.decode())
    assert lines[0].endswith("it used more CPU time than its limit of 300ms")
    assert lines[1] == "succeeded"
    assert [is_alive(pid) for pid in pids_in(place / "pids")] == [False]


class Folder:
    """What the kernel would show of a group of version 2."""

    def __init__(self, path: Path, handed_down: str = "memory pids") -> None:
        self.path = path
        (path / "cgroup.subtree_control").write_text(handed_down)
        (path / "cpu.stat").write_text("usage_usec 0\n")

    def member(self, name: str) -> Path:
        (found,) = self.path.glob(name)
        return found

    def remove(self) -> None:
        for group in self.path.glob("*/"):
            shutil.rmtree(group)


class TestVersion2AsFiles:
    def test_what_is_handed_down_can_be_limited(self, tmp_path: Path) -> None:
        Folder(tmp_path)
        host = look_around("nobody", str(tmp_path))
        assert (host.memory, host.processes, host.cpu) == (True, True, True)
        order = confine(
            Isolation("limits", memory="64MB", processes=7, cpu="2s"), host, {"argv": ["true"], "env": {}, "cwd": None}
        )
        assert order["cgroups"] == {UNIFIED: str(tmp_path)}
        assert order["caps"] == {"memory": 64_000_000, "processes": 7, "cpu": 2_000_000}
        assert "RLIMIT_AS" not in order["rlimits"]

    def test_what_is_not_handed_down_is_said_and_held_otherwise(self, tmp_path: Path) -> None:
        Folder(tmp_path, "cpu io")
        host = look_around("nobody", str(tmp_path))
        assert (host.memory, host.processes, host.cpu) == (False, False, True)
        assert {"memory limit for a whole run", "limit of processes"} <= host.troubles.keys()
        order = confine(Isolation("limits", memory="64MB"), host, {"argv": ["true"], "env": {}, "cwd": None})
        assert order["rlimits"]["RLIMIT_AS"] == 64_000_000

    def test_what_a_named_folder_could_hand_down_it_is_asked_to(self, tmp_path: Path) -> None:
        Folder(tmp_path, "memory")
        look_around("nobody", str(tmp_path))
        assert (tmp_path / "cgroup.subtree_control").read_text() == "memory+pids"

    def test_groups_that_everybody_has_left_long_ago_are_cleared_away(self, tmp_path: Path) -> None:
        Folder(tmp_path)
        groups = [tmp_path / f"mainspring-{number}-abc" for number in range(3)]
        for group in groups:
            group.mkdir()
        (groups[0] / "member").touch()  # As it is with one that still has members, it cannot be removed.
        for group in groups[:2]:
            os.utime(group, (1, 1))
        look_around("nobody", str(tmp_path))
        assert [group.exists() for group in groups] == [True, False, True]

    def test_a_group_is_limited_entered_read_and_ended(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path)
        group = Group("run", {UNIFIED: str(tmp_path)}, {"memory": 1000, "processes": 7, "cpu": 2_000_000})
        made = folder.member("run")
        group.enter(os.getpid())
        group.kill()
        written = {path.name: path.read_text() for path in made.iterdir()}
        me = str(os.getpid())
        assert written == {"memory.max": "1000", "pids.max": "7", "cgroup.procs": me, "cgroup.kill": "1"}
        assert (group.members(), group.out_of_memory, group.out_of_processes) == ([os.getpid()], False, False)
        (made / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
        (made / "pids.events").write_text("max 3\n")
        (made / "cpu.stat").write_text("usage_usec 123456\nuser_usec 1\n")
        assert (group.out_of_memory, group.out_of_processes, group.cpu_used()) == (True, True, 123_456)
        folder.remove()

    def test_swap_is_no_more_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Folder(tmp_path)
        make = os.mkdir

        def as_the_kernel_does(path: str) -> None:
            make(path)
            Path(path, "memory.swap.max").write_text("max")

        monkeypatch.setattr(os, "mkdir", as_the_kernel_does)
        Group("run", {UNIFIED: str(tmp_path)}, {"memory": 1000})
        assert (tmp_path / "run" / "memory.swap.max").read_text() == "0"


def test_what_a_limit_did_is_said_in_words() -> None:
    isolation = Isolation("limits", memory="1MB", processes=3, cpu="2s")
    assert describe_ending(Ending(-9, out_of_memory=True), isolation).endswith("than its limit of 1 MB")
    assert describe_ending(Ending(1, out_of_processes=True), isolation).endswith("its limit of 3 processes")
    assert describe_ending(Ending(-9, out_of_cpu=True), isolation).endswith("than its limit of 2s")


async def test_only_groups_that_limit_something_are_made(scene: Scene) -> None:
    code = "print(sorted(line.split(':')[1] for line in open('/proc/self/cgroup') if 'mainspring-' in line))"
    _, attempt = await scene.command([PYTHON, "-S", "-c", code], {"isolation": Isolation("limits", processes=20)})
    assert attempt.said() == ([f"['{name}']" for name in HOST.cgroups if name == "pids"] or ["['']"])
