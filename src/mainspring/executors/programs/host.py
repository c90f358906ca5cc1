"""Finds out by trial what this host can do to confine a program."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mainspring.executors.launching.groups import CPU, GROUP_PREFIX, UNIFIED
from mainspring.executors.launching.order import Identity
from mainspring.executors.programs.program import ROOT

_WANTED = ("memory", "pids", CPU)
_PROBE_S = 10.0
_OLD_S = 3600.0
_WITHDRAW = """
import sys
sys.path.append({root!r})
from mainspring.executors.launching.seclusion import withdraw
try:
    withdraw(65536, [], None)
except OSError as error:
    print("the kernel does not permit private mounts:", error.strerror)
"""


class Host(msgspec.Struct, frozen=True):
    """What the host can do. `troubles` says why it cannot do the rest."""

    identity: Identity | None
    """The user of confined programs; None for one of the `users`, or the user of the worker."""
    users: tuple[int, int] | None
    """The first and the last of the user ids of which each confined run gets its own."""
    private: bool
    """Whether a confined run can have private temporary folders without bubblewrap."""
    cgroups: dict[str, str]
    """The folders in which groups can be created: by controller of version 1, or the one of version 2."""
    memory: bool
    processes: bool
    cpu: bool
    """Whether groups can limit these."""
    bubblewrap: str | None
    troubles: dict[str, str]

    def describe(self) -> list[str]:
        """Lines for people, printed at the start of a worker."""
        if self.users is not None:
            user = f"users {self.users[0]} to {self.users[1]}, each as one of its own"
        else:
            user = pwd.getpwuid(self.identity["uid"]).pw_name if self.identity else "this user"
        lines = [f"confined runs are executed as {user}"]
        return lines + [f"no {what}: {trouble}" for what, trouble in self.troubles.items()]


def look_around(user: str | None, cgroup: str | None, users: tuple[int, int] = (0, 0)) -> Host:
    """Find out what this host can do: as `user`, or as one of `users` if this process may change its user, and with
    control groups below `cgroup`, or below its own."""
    troubles = {}
    is_root = os.geteuid() == 0
    identity = identify(user) if is_root and user is not None else None
    own = users if is_root and user is None else None
    groups = {UNIFIED: cgroup} if cgroup is not None else _own_groups()
    if cgroup is not None:
        _enable_controllers(cgroup)
    _clear_away(groups.values())
    memory, processes = _limits(groups, "memory"), _limits(groups, "pids")
    cpu = CPU in groups or _counts_cpu(groups.get(UNIFIED, ""))
    if not memory:
        troubles["memory limit for a whole run"] = "no control group can be created here; it applies to each process"
    if not processes:
        troubles["limit of processes"] = "no control group can be created here"
    if not cpu:
        troubles["CPU limit for a whole run"] = "no control group can be created here; it applies to each process"
    bubblewrap = shutil.which("bwrap")
    sandbox_user: Identity | None = {"uid": own[0], "gid": own[0], "groups": []} if own is not None else identity
    trouble = "bubblewrap is not installed" if bubblewrap is None else _try_sandbox(bubblewrap, sandbox_user)
    if trouble:
        bubblewrap, troubles["sandbox"] = None, trouble
    private = is_root and not (trouble := _try_withdrawal())
    if not private and (is_root or bubblewrap is None):
        # For other users than root, bubblewrap can do the same.
        troubles["private /tmp for runs with limits"] = trouble or troubles["sandbox"]
    return Host(identity, own, private, groups, memory, processes, cpu, bubblewrap, troubles)


def identify(user: str) -> Identity:
    """The identity of a user. Raises KeyError if there is none."""
    entry = pwd.getpwnam(user)
    return {"uid": entry.pw_uid, "gid": entry.pw_gid, "groups": os.getgrouplist(user, entry.pw_gid)}


def _own_groups() -> dict[str, str]:
    """The folders of this process's own control groups in which it can create others."""
    found = {}
    mounts = _mounts()
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            for name in names.split(",") if names else (UNIFIED,):
                folder = f"{mounts.get(name, '')}{path}".rstrip("/")
                if name in (*_WANTED, UNIFIED) and name in mounts and _can_make_groups(folder):
                    found[name] = folder
    versions_1 = {name: folder for name, folder in found.items() if name != UNIFIED}
    if versions_1 or not _controllers(found.get(UNIFIED, "")):
        return versions_1
    return found


def _mounts() -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, options, *_ = line.split()
            if kind == "cgroup2":
                found[UNIFIED] = point
            elif kind == "cgroup":
                found.update(dict.fromkeys(options.split(","), point))
    return found


def _can_make_groups(folder: str) -> bool:
    try:
        os.rmdir(tempfile.mkdtemp(prefix=f"{GROUP_PREFIX}probe-", dir=folder))
    except OSError:
        return False
    return True


def _limits(groups: dict[str, str], controller: str) -> bool:
    return controller in groups or controller in _controllers(groups.get(UNIFIED, ""))


def _enable_controllers(folder: str) -> None:
    """Enable limits for groups below a folder of version 2. The kernel refuses if the folder itself has processes, or
    if its parent has not enabled them: then the folder stays as it is."""
    for name in ("memory", "pids"):
        with suppress(OSError), open(os.path.join(folder, "cgroup.subtree_control"), "r+") as file:
            if name not in file.read().split():
                file.write(f"+{name}")


def _clear_away(folders: Iterable[str]) -> None:
    """Remove old empty groups, left by shims that were killed together with their fork server. The kernel refuses to
    remove a group with members."""
    for folder in folders:
        with suppress(OSError):
            for entry in list(os.scandir(folder)):
                if entry.name.startswith(GROUP_PREFIX) and time.time() - entry.stat().st_mtime > _OLD_S:
                    with suppress(OSError):
                        os.rmdir(entry.path)


def _counts_cpu(folder: str) -> bool:
    return bool(folder) and (Path(folder) / "cpu.stat").exists()


def _controllers(folder: str) -> list[str]:
    """The controllers that are enabled for groups of version 2 below a folder."""
    with suppress(OSError):
        return (Path(folder) / "cgroup.subtree_control").read_text().split() if folder else []
    return []


def _try_withdrawal() -> str:
    """Why a run cannot have private temporary folders here; empty if it can. Tried in another process, because it
    cannot be undone."""
    argv = [sys.executable, "-I", "-S", "-c", _WITHDRAW.format(root=ROOT)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PROBE_S, cwd="/", env={}, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the attempt failed: {error}"
    return done.stdout.decode("utf-8", "replace").strip()


def _try_sandbox(bubblewrap: str, identity: Identity | None) -> str:
    """Why bubblewrap cannot work here; empty if it can."""
    argv = [bubblewrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc"]
    become: dict[str, Any] = {}
    if identity is not None:
        become = {"user": identity["uid"], "group": identity["gid"], "extra_groups": []}
    try:
        done = subprocess.run(
            [*argv, "/bin/true"], capture_output=True, timeout=_PROBE_S, cwd="/", check=False, **become
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work: {error}"
    words = done.stderr.decode("utf-8", "replace").strip() or f"it exited with code {done.returncode}"
    return "" if done.returncode == 0 else f"bubblewrap does not work: {words}"


class HostProbe:
    """Probes the host once, at the first question, without blocking the loop."""

    def __init__(self, user: str | None, cgroup: str | None, users: tuple[int, int] = (0, 0)) -> None:
        self._user = user
        self._cgroup = cgroup
        self._users = users
        self._looking: asyncio.Task[Host] | None = None

    async def host(self) -> Host:
        """What this host can do. Concurrent callers wait for the same answer; one that is cancelled does not stop
        it."""
        if self._looking is None:
            looking = asyncio.to_thread(look_around, self._user, self._cgroup, self._users)
            self._looking = asyncio.get_running_loop().create_task(looking)
        return await asyncio.shield(self._looking)
