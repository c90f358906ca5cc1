"""Turns an isolation into a launch for this host, or refuses it if the host cannot."""

from __future__ import annotations

import os
import pwd
import signal
import sys
from collections.abc import Mapping, Sequence

from mainspring.core.instants import SECOND, format_duration
from mainspring.core.tasks.isolation import Isolation, format_size
from mainspring.executors.launching.groups import CPU, UNIFIED
from mainspring.executors.launching.order import Caps, Identity, Launch
from mainspring.executors.launching.seclusion import TEMPORARY
from mainspring.executors.launching.shim import FOLDER
from mainspring.executors.programs.host import Host, identify
from mainspring.executors.programs.program import Ending, describe_end

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
"""The variables of the worker's environment that an unconfined program gets; others may hold secrets."""
_NEUTRAL = ("LANG", "LC_ALL", "TZ")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FACTS = ("alternatives", "ld.so.cache", "localtime", "passwd", "group")
"""The files of /etc that a sandbox shows: nothing secret, and only what programs need, because each costs a mount."""
_NETWORK_FACTS = (
    *("resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "ssl", "ca-certificates", "pki", "services", "protocols"),
)
"""Without nsswitch.conf, users and groups are looked up in files only: other sources need a network."""
_DISK = 256 * 2**20
"""The default size of each private temporary folder, which is in memory."""


_CONTROLLERS = {"memory": "memory", "processes": "pids", "cpu": CPU}


class IsolationRefused(Exception):
    """The host cannot provide the isolation that a run asks for."""


def confine(isolation: Isolation | None, host: Host | None, order: Launch) -> Launch:
    """The launch under this isolation. `host` may be None where nothing is confined."""
    if isolation is None or not isolation.confined:
        return order
    assert host is not None, "a confined launch needs a host"
    user = _identity(isolation, host)
    confined: Launch = {**order, "identity": user, "locked": True, "tmp": True, "rlimits": _rlimits(isolation, host)}
    own = isolation.user is None and host.users is not None
    if own and host.users is not None:
        confined["users"] = list(host.users)
    caps: Caps = {}
    if isolation.memory is not None and host.memory:
        caps["memory"] = isolation.memory
    if isolation.cpu is not None and host.cpu:
        caps["cpu"] = isolation.cpu
    if isolation.processes is not None:
        if host.processes:
            caps["processes"] = isolation.processes
        elif not own and (user is None or user["uid"] == os.geteuid()):
            raise IsolationRefused(f"a limit of processes: {host.troubles['limit of processes']}")
        else:
            confined["rlimits"]["RLIMIT_NPROC"] = isolation.processes
    if caps:
        confined |= {"caps": caps, "cgroups": _groups(host, caps)}
    return _sandboxed(isolation, host, confined) if isolation.level == "sandbox" else _apart(isolation, host, confined)


def _apart(isolation: Isolation, host: Host, confined: Launch) -> Launch:
    """The launch with private temporary folders, as far as the host can."""
    if host.private:
        return {**confined, "tmp": False, "private": isolation.disk or _DISK, "shown": _needed(confined)}
    if os.geteuid() != 0 and host.bubblewrap is not None:
        return _withdrawn(isolation, host.bubblewrap, confined)
    if isolation.disk is not None:
        raise IsolationRefused(f"a limit of disk: {host.troubles['private /tmp for runs with limits']}")
    return confined


def _needed(order: Launch) -> list[str]:
    """Folders that a program has to see even if they are within temporary folders: its own, and the environment of
    this Python, which commands of the same project use."""
    cwd = order.get("cwd")
    environment = [sys.prefix] if sys.prefix.startswith(tuple(f"{place}/" for place in TEMPORARY)) else []
    return [*order.get("shown", ()), *environment, *([cwd] if cwd is not None else ())]


def _withdrawn(isolation: Isolation, bubblewrap: str, order: Launch) -> Launch:
    """The launch with private temporary folders and no other visible processes, for a worker that is not root:
    otherwise runs and the worker could read each other's memory. The rest of the host stays visible."""
    size = str(isolation.disk or _DISK)
    argv = [bubblewrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session"]
    argv += ["--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    for place in TEMPORARY:
        if os.path.isdir(place) and not os.path.islink(place):
            argv += ["--size", size, "--perms", "0700", "--tmpfs", place]
    for path in _needed(order):
        if os.path.isdir(path):
            argv += ["--bind", path, path]
    return _wrapped(order, argv)


def _groups(host: Host, caps: Caps) -> dict[str, str]:
    """The folders of the control groups that limit something."""
    wanted = {_CONTROLLERS[cap] for cap in caps} | {UNIFIED}
    return {controller: folder for controller, folder in host.cgroups.items() if controller in wanted}


def _identity(isolation: Isolation, host: Host) -> Identity | None:
    if isolation.user is None:
        return host.identity
    try:
        wanted = identify(isolation.user)
    except KeyError:
        raise IsolationRefused(f"user {isolation.user}: there is no such user") from None
    if os.geteuid() not in (0, wanted["uid"]):
        raise IsolationRefused(f"user {isolation.user}: only a worker that is root can become another user")
    return wanted if os.geteuid() == 0 else None


def _rlimits(isolation: Isolation, host: Host) -> dict[str, int]:
    limits = {"RLIMIT_CORE": 0}
    if isolation.cpu is not None:
        # Where the time of the whole run is counted, this is only for a shim that is too slow to notice.
        limits["RLIMIT_CPU"] = -(-isolation.cpu // SECOND) + host.cpu
    if isolation.files is not None:
        limits["RLIMIT_NOFILE"] = isolation.files
    if isolation.file_size is not None:
        limits["RLIMIT_FSIZE"] = isolation.file_size
    if isolation.memory is not None and not host.memory:
        limits["RLIMIT_AS"] = isolation.memory
    return limits


def _sandboxed(isolation: Isolation, host: Host, order: Launch) -> Launch:
    if host.bubblewrap is None:
        raise IsolationRefused(f"a sandbox: {host.troubles['sandbox']}")
    for path in (*isolation.read, *isolation.write):
        if not os.path.exists(path):
            raise IsolationRefused(f"the path {path}: it does not exist")
    size = str(isolation.disk or _DISK)
    argv = [host.bubblewrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += [
        "--hostname",
        "sandbox",
        *(["--share-net"] if isolation.network else []),
        *_system(network=isolation.network),
    ]
    argv += ["--proc", "/proc", "--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    argv += ["--size", size, "--perms", "0700", "--tmpfs", "/tmp"]
    for path in isolation.read:
        argv += ["--ro-bind", path, path]
    for path in isolation.write:
        argv += ["--bind", path, path]
    return _wrapped(order, argv, "--remount-ro", "/")


def _wrapped(order: Launch, argv: list[str], *last: str) -> Launch:
    """The launch of bubblewrap, which runs the program; `last` are its options after everything else is in place."""
    if order.get("result_limit"):
        argv += ["--bind", FOLDER, FOLDER]
    argv += [*last, "--chdir", order.get("cwd") or "/tmp", "--", *order["argv"]]
    env = {**order["env"], "TMPDIR": "/tmp", "HOME": "/tmp"}
    return {**order, "argv": argv, "env": env, "cwd": "/", "tmp": False, "sandboxed": True, "locked": False}


def _system(*, network: bool) -> Sequence[str]:
    facts = (*_FACTS, *_NETWORK_FACTS) if network else _FACTS
    return [word for path in (*_SYSTEM, *(f"/etc/{name}" for name in facts)) for word in _shown(path)]


def _shown(path: str) -> Sequence[str]:
    try:
        target = os.readlink(path)
    except FileNotFoundError:
        return ()
    except OSError:  # Not a link.
        target = ""
    if target and (path in _SYSTEM or target.startswith("/usr/")):
        return ("--symlink", target, path)  # Its target is visible; a link costs no mount.
    return ("--ro-bind-try", path, path)


def environment(isolation: Isolation | None, host: Host | None, named: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: only what it needs to start, and what the run names."""
    worker = os.environ
    if isolation is None or not isolation.confined:
        return {name: worker[name] for name in INHERITED if name in worker} | dict(named)
    neutral = {name: worker[name] for name in _NEUTRAL if name in worker}
    user = isolation.user or (pwd.getpwuid(host.identity["uid"]).pw_name if host and host.identity else None)
    if user is None and host is not None and host.users is not None:
        user = "mainspring-run"  # Its user id has no name, and programs ask for one.
    known = {"USER": user, "LOGNAME": user} if user else {}
    return {"PATH": _PATH, **neutral, **known, **named}


def describe_ending(ending: Ending, isolation: Isolation | None, within: str = "") -> str:
    """How a program ended, for people, followed by `within`; names the limit that it met."""
    code = ending.code
    if ending.wrapped and 128 < code <= 128 + max(signal.Signals):
        code = 128 - code  # Bubblewrap's code for a signal.
    limit = "" if isolation is None else _limit_met(code, ending, isolation)
    return f"{describe_end(code)}{within}{limit and f': {limit}'}"


def describe_oom(isolation: Isolation) -> str:
    """Why a run whose group ran out of memory has failed although it ended well."""
    limit = format_size(isolation.memory or 0)
    return f"one of its processes was killed, because together they used more memory than the limit of {limit}"


def _limit_met(code: int, ending: Ending, isolation: Isolation) -> str:
    if ending.out_of_memory and isolation.memory is not None:
        return f"it used more memory than its limit of {format_size(isolation.memory)}"
    if (ending.out_of_cpu or code == -signal.SIGXCPU) and isolation.cpu is not None:
        return f"it used more CPU time than its limit of {format_duration(isolation.cpu)}"
    if code == -signal.SIGXFSZ and isolation.file_size is not None:
        return f"it wrote a file larger than its limit of {format_size(isolation.file_size)}"
    if ending.out_of_processes and code != 0 and isolation.processes is not None:
        return f"it met its limit of {isolation.processes} processes"
    return ""
