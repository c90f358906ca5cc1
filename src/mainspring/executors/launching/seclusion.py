"""Separates confined programs from each other: each run has its own user id and private temporary folders."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from mainspring.executors.launching.kernel import leave_mounts, mount_again, mount_memory, mount_processes
from mainspring.executors.launching.order import Identity

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders in which every user may write. Runs get private ones instead."""
_OPEN = "/run/lock"
"""Another folder in which every user may write, on most hosts."""
_LOCKS = "mainspring-users"
_MOST_SWEPT = 100_000
"""The most entries of a temporary folder that a sweep looks at, so that it ends."""


class UserTaken:
    """A user id for one run. It is taken until it is given back, or until this process ends in any way."""

    def __init__(self, first: int, last: int) -> None:
        """Raises OSError if all user ids are taken."""
        folder = _lock_folder()
        for user in _from_anywhere(first, last):
            self._lock = os.open(os.path.join(folder, str(user)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
            else:
                self.identity: Identity = {"uid": user, "gid": user, "groups": []}
                return
        problem = f"all user ids from {first} to {last} are taken by other runs: extend the setting run_users"
        raise OSError(errno.EAGAIN, problem)

    def give_back(self) -> None:
        """The run has ended, and left nothing behind."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)


def _from_anywhere(first: int, last: int) -> Iterator[int]:
    """All user ids, from a random one on: an id that was just given back is seldom the next."""
    count = last - first + 1
    start = int.from_bytes(os.urandom(4)) % count
    return (first + (start + step) % count for step in range(count))


def _lock_folder() -> str:
    """A folder for locks in which no other user can write."""
    for place in ("/run", tempfile.gettempdir()):
        folder = os.path.join(place, _LOCKS)
        with suppress(OSError):
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            found = os.lstat(folder)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
                return folder
    raise OSError(errno.EACCES, "no folder can hold the locks of run_users: neither /run nor the temporary one")


def withdraw(size: int, shown: Sequence[str], identity: Identity | None) -> None:
    """Give this process and its descendants private temporary folders of at most `size` bytes each, and a view of /proc
    without the processes of other users. Raises OSError if the kernel does not permit it."""
    user, group = (os.geteuid(), os.getegid()) if identity is None else (identity["uid"], identity["gid"])
    places = [place for place in TEMPORARY if os.path.isdir(place) and not os.path.islink(place)]
    leave_mounts()
    # Opened after leave_mounts: the kernel binds only folders of its own mounts.
    kept = {path: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in _within(shown, places)}
    for place in places:
        mount_memory(place, size, user, group)
    for path, file in kept.items():
        _make_way(path, user, group)
        mount_again(file, path)
        os.close(file)
    with suppress(OSError):  # Some containers forbid it. Then only the command lines of others are visible.
        mount_processes("/proc")


def _make_way(path: str, user: int, group: int) -> None:
    """Create the folders that lead to a path, owned by the user that passes through them."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        _make_way(above, user, group)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chown(path, user, group)


def _within(paths: Iterable[str], places: Sequence[str]) -> list[str]:
    """The folders that are in one of the places, without those inside each other."""
    real = sorted({os.path.realpath(path) for path in paths if os.path.isdir(path)})
    inside = [path for path in real if any(path.startswith(f"{place}/") for place in places)]
    return [path for path in inside if not any(path.startswith(f"{other}/") for other in inside)]


def sweep(user: int, *, withdrawn: bool) -> None:
    """Remove what the user id of a run left where every user may write. With private folders (`withdrawn`) little
    can."""
    for place in (_OPEN,) if withdrawn else (*TEMPORARY, _OPEN):
        with suppress(OSError), os.scandir(place) as entries:
            for _, entry in zip(range(_MOST_SWEPT), entries, strict=False):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        _remove(entry)


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        os.unlink(entry.path)
