"""Starts a program with its limits, identity, files and folder in place before its first instruction."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from mainspring.executors.launching.groups import Group
from mainspring.executors.launching.kernel import die_with_parent, gain_no_privileges
from mainspring.executors.launching.order import Identity, Launch

_STREAMS = 3
"""Standard input, output and error."""
_SAFE = 100
"""Above the descriptors that programs get."""
_ALTERED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that Python or the fork server ignores, which a program would inherit."""


class StartFailed(OSError):
    """The program could not be started; `filename` says what was missing or refused."""


def begin(order: Launch, files: Sequence[int], group: Group | None) -> int:
    """Start the program; returns its pid. Raises StartFailed if that fails."""
    if group is None and _is_simple(order, files):
        return _spawn(order, files)
    errors_from, errors_to = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(order, files, group, shim, errors_to)
    os.close(errors_to)
    with os.fdopen(errors_from, "rb") as pipe:
        words = pipe.read()
    if words:
        os.waitpid(pid, 0)
        number, what = json.loads(words)
        raise StartFailed(number, os.strerror(number), what)
    return pid


def _is_simple(order: Launch, files: Sequence[int]) -> bool:
    """Whether `posix_spawn` can do all that is needed between fork and exec: Python code there takes longer. If the
    shim of such a program is killed, a sandbox ends by itself, and the fork server ends other programs."""
    if order.get("identity") is not None and not hasattr(os, "setresuid"):
        return False
    return len(files) == _STREAMS and set(order.get("rlimits", ())) <= {"RLIMIT_CORE"}


def _spawn(order: Launch, files: Sequence[int]) -> int:
    for name, value in order.get("rlimits", {}).items():
        _limit(getattr(resource, name), value)  # For this shim, too, which dumps no core either.
    if order.get("locked"):
        gain_no_privileges()  # Nor does this shim, which starts nothing else.
    what = order["argv"][0]
    try:
        with _as_if(order.get("identity")):
            if (cwd := order.get("cwd")) is not None:
                what = cwd
                os.chdir(cwd)
            what = order["argv"][0]
            return _spawn_first(_places(what, order["env"]), order["argv"], order["env"], files)
    except OSError as error:
        raise StartFailed(error.errno, error.strerror, what) from None
    except ValueError as error:
        raise StartFailed(errno.EINVAL, str(error), what) from None
    finally:
        os.chdir("/")  # Otherwise the shim would keep the folder from being unmounted.


def _places(name: str, env: Mapping[str, str]) -> Sequence[str]:
    """The folders in which to look for a program: the search path, unless its name is a path."""
    if "/" in name:
        return [name]
    paths = [os.path.join(folder, name) for folder in env.get("PATH", os.defpath).split(os.pathsep)]
    return [path for path in paths if os.path.exists(path)]


def _spawn_first(places: Sequence[str], argv: list[str], env: Mapping[str, str], files: Sequence[int]) -> int:
    """Start the first place that works; returns the pid."""
    given = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files)]
    trouble: OSError | None = None
    for place in places:
        try:
            return os.posix_spawn(place, argv, env, file_actions=given, setsid=True, setsigdef=_ALTERED)
        except OSError as error:
            trouble = trouble or error
    raise trouble or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def rehearse() -> None:
    """Start a program that does not exist, so that a real start is not the first one in this process."""
    with suppress(OSError):
        _spawn_first(["/dev/null/none"], ["none"], {}, [])


@contextmanager
def _as_if(identity: Identity | None) -> Iterator[None]:
    """Take on another identity while a program is started. A fork that changes its identity takes a millisecond longer.
    The saved user id leads back; exec removes it from the program, together with all capabilities."""
    if identity is None:
        yield
        return
    user, group, groups = os.getresuid(), os.getresgid(), os.getgroups()
    os.setgroups(identity["groups"])
    os.setresgid(identity["gid"], identity["gid"], group[2])
    os.setresuid(identity["uid"], identity["uid"], user[2])
    try:
        yield
    finally:
        os.setresuid(*user)
        os.setresgid(*group)
        os.setgroups(groups)


def _become(order: Launch, files: Sequence[int], group: Group | None, shim: int, errors_to: int) -> NoReturn:
    what = order["argv"][0]
    try:
        os.setsid()
        if group is not None:
            group.enter(os.getpid())
        signal.set_wakeup_fd(-1)
        for number in _ALTERED:
            signal.signal(number, signal.SIG_DFL)
        errors_to = fcntl.fcntl(errors_to, fcntl.F_DUPFD_CLOEXEC, _SAFE)
        _place(files)
        what = "limits"
        for name, value in order.get("rlimits", {}).items():
            _limit(getattr(resource, name), value)
        what = "user"
        _take_identity(order)
        die_with_parent(shim)
        if (cwd := order.get("cwd")) is not None:
            what = cwd
            os.chdir(cwd)
        what = order["argv"][0]
        os.execvpe(what, order["argv"], order["env"])
    except OSError as error:
        # Name what was asked for, not where the search path led.
        _send_error(errors_to, error.errno or errno.EINVAL, what)
    except BaseException as error:
        _send_error(errors_to, errno.EINVAL, f"{what}: {error}")
    finally:
        os._exit(127)


def _send_error(errors_to: int, number: int, what: str) -> None:
    os.write(errors_to, json.dumps([number, what]).encode())


def _place(files: Sequence[int]) -> None:
    """Give the files the descriptors 0, 1, 2 and so on. All others close on exec."""
    safe = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _SAFE) for file in files]
    for number, file in enumerate(safe):
        os.dup2(file, number)


def _limit(kind: int, value: int) -> None:
    """Set a limit, never above the existing one. CPU time has a soft limit a second before the hard one."""
    _, most = resource.getrlimit(kind)
    hard = value + 1 if kind == resource.RLIMIT_CPU else value
    if most != resource.RLIM_INFINITY:
        hard, value = min(hard, most), min(value, most)
    resource.setrlimit(kind, (value, hard))


def _take_identity(order: Launch) -> None:
    identity = order.get("identity")
    if identity is not None:
        os.setgroups(identity["groups"])
        os.setgid(identity["gid"])
        os.setuid(identity["uid"])
    if order.get("locked"):
        gain_no_privileges()
