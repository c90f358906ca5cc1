"""Where keepers come from: a process so small that forking it costs little, and without threads, so that it is safe."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import traceback
from contextlib import suppress

from mainspring.executors.launching import family
from mainspring.executors.launching.keeper import Keeper
from mainspring.executors.launching.kernel import adopt_orphans, watch_process

_MOST_FILES = 16


def main(line: int, worker: int) -> None:
    """Fork a keeper for each message on the line, with the files that come with it, until the worker is gone."""
    parent = socket.socket(fileno=line)
    watched = watch_process(worker)
    if os.getppid() != worker:
        return
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # A terminal sends them to all; the worker decides.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    poll = select.poll()
    for file in (line, woken, watched):
        if file is not None:
            poll.register(file, select.POLLIN)
    keepers: set[int] = set()
    while True:
        ready = [file for file, _ in poll.poll()]
        with suppress(BlockingIOError):
            os.read(woken, 4096)
        _look_after(keepers)
        if watched in ready:
            return
        if line in ready and not _serve(parent, watched, keepers):
            return


def _serve(parent: socket.socket, watched: int | None, keepers: set[int]) -> bool:
    message, files, _, _ = socket.recv_fds(parent, 1, _MOST_FILES)
    if not message:
        return False
    for file in files:
        os.set_inheritable(file, False)
    pid = os.fork()
    if pid == 0:
        _keep(parent, files, watched)
    keepers.add(pid)
    for file in files:
        os.close(file)
    return True


def _keep(parent: socket.socket, files: list[int], watched: int | None) -> None:
    code = 1
    try:
        os.setsid()
        parent.close()
        control, *rest = files
        Keeper(socket.socket(fileno=control), rest, watched).keep()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _look_after(keepers: set[int]) -> None:
    """A keeper that was killed leaves its program to this process, which ends it."""
    deserted = False

    def note(pid: int, status: int) -> None:
        nonlocal deserted
        keepers.discard(pid)
        deserted = deserted or status != 0

    family.reap(note)
    if deserted:
        family.kill_all(note, lambda: _with_families(keepers))


def _with_families(keepers: set[int]) -> set[int]:
    return keepers.union(*(family.descendants(pid) for pid in keepers)) if keepers else set()
