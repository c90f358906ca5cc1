"""`--reload`: runs the command in a child process and restarts it when code changes. For development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from mainspring.cli.output.errors import USAGE
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session

LOOK_S = 0.3
"""How often to look for changes: a person hardly notices the wait, and a thousand files cost little."""
DRAIN_S = 3.0
"""How long running work may go on after a change. Then it is handed back, and the new code does it."""
_FLAG = "--reload"
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})

Stamps = dict[str, int]


def reload(session: Session) -> int:
    """Run this command line without `--reload`, repeatedly, until it is stopped; returns its last exit code."""
    return _Reloading(session, [each for each in session.args if each != _FLAG]).run()


class _Reloading:
    """Runs one child process after the other."""

    def __init__(self, session: Session, args: Sequence[str]) -> None:
        self._screen = Screen(session)
        self._command = [sys.executable, "-m", "mainspring", *args]
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while True:
                stamps = stamps_of(Path.cwd())
                child = self._start()
                changed = self._watch(stamps)
                if self._stopping or not changed:
                    return child.wait()
                self._screen.hint(f"reload {changed} has changed")
                self._end()
                if self._stopping:
                    return child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self) -> subprocess.Popen[bytes]:
        self._child = None
        self._child = child = subprocess.Popen(self._command, start_new_session=True)
        if self._stopping:  # A signal came before there was a process to pass it on to.
            child.terminate()
        return child

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Pass each signal on: the first drains, the second stops at once."""
        self._stopping = True
        if self._child is not None and self._child.poll() is None:
            os.kill(self._child.pid, number)

    def _watch(self, stamps: Stamps) -> str:
        """Wait for a change; returns the file, or an empty string if the process has ended well or must end. A process
        that failed is restarted once its code changes."""
        assert self._child is not None
        warned = False
        while not self._stopping:
            time.sleep(LOOK_S)
            if changed := first_change(stamps, stamps_of(Path.cwd())):
                return changed
            code = self._child.poll()
            if code in (0, USAGE):
                return ""
            if code is not None and not warned:
                self._screen.warn(f"the process ended with code {code}; it restarts when code changes")
                warned = True
        return ""

    def _end(self) -> None:
        assert self._child is not None
        for patience_s in (DRAIN_S, None):
            if self._child.poll() is not None:
                return
            self._child.terminate()
            try:
                self._child.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue


def stamps_of(folder: Path) -> Stamps:
    """The modification time of each file of code or settings below a folder."""
    stamps: Stamps = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _SKIPPED]
        for name in files:
            if name.endswith(".py") or name == "mainspring.toml":
                path = os.path.join(place, name)
                try:
                    stamps[path] = os.stat(path).st_mtime_ns
                except OSError:
                    continue  # It was just removed.
    return stamps


def first_change(before: Stamps, after: Stamps) -> str:
    """The first file that is new, removed or changed; an empty string if there is none."""
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    return os.path.relpath(changed[0]) if changed else ""
