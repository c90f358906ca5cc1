"""A PostgreSQL server for drills and tests: made, killed, started again, copied to a stand-by and promoted.

It syncs what it commits, as in production: what is killed here must not lose what it has answered.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mainspring.errors import MainspringError
from mainspring.testing.servers.process import free_port

USER: Final = "mainspring"
DATABASE: Final = "chaos"
START_S: Final = 30.0
STOP_S: Final = 20.0
_ROOM: Final = 2**30
_OWNER: Final = "postgres"
"""The user that runs it where we are root: the server refuses to run as root."""
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    "max_wal_senders": "5",
}


def find_programs() -> Path | None:
    """The folder of the server's programs, newest version first; None where PostgreSQL is not installed."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name.split(".")[0]))
    found = shutil.which("postgres")
    places = [*reversed(folders), *([Path(found).parent] if found else [])]
    return next((place for place in places if (place / "initdb").exists()), None)


class Postgres:
    """One server, with its data in its own folder, on a port that stays the same. Everything here blocks."""

    def __init__(self, folder: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        programs = find_programs()
        if programs is None:
            raise MainspringError("PostgreSQL is not installed here: name a running server with --store instead")
        self._programs = programs
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="mainspring-postgres-", dir=_memory()))
        self.data = self.folder / "data"
        self.port = free_port()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_OWNER)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)

    @property
    def url(self) -> str:
        """The URL of the database that is created with the server."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int:
        """The id of the postmaster; 0 while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def create(self, database: str, options: str = "") -> str:
        """One more database; its URL."""
        self.ask(f"CREATE DATABASE {database} {options}", "postgres")
        return self.url.removesuffix(DATABASE) + database

    def make(self) -> None:
        """A new server, running, with an empty database."""
        self._call("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        self._configure()
        self.start()
        self.ask(f"CREATE DATABASE {DATABASE}", "postgres")

    def _configure(self) -> None:
        lines = [f"{name} = '{value}'\n" for name, value in {**self._settings, "port": str(self.port)}.items()]
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def start(self) -> None:
        """Start it, and wait until it answers, through recovery if it was killed."""
        deadline = time.monotonic() + START_S
        while True:
            if not self.pid:  # A predecessor's last children keep a new one from starting for a moment.
                self._launch()
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise MainspringError(f"PostgreSQL did not answer within {START_S:g} s: see {self.folder}/log")
            time.sleep(0.05)

    def _launch(self) -> None:
        command = [*_as_owner(), str(self._programs / "postgres"), "-D", str(self.data)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")

    def _answers(self) -> bool:
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "2"]
        return bool(self.pid) and subprocess.run(command, check=False).returncode == 0

    def kill(self) -> None:
        """With -9, the postmaster and every backend, as when the machine loses its power but keeps its disk."""
        if self._process is None:
            return
        children = _children(self._process.pid)
        self._process.kill()
        self._process.wait()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + STOP_S
        while any(_runs(pid) for pid in children) and time.monotonic() < deadline:
            time.sleep(0.01)

    def kill_backend(self) -> None:
        """With -9, one backend that serves us: the server ends all others, recovers and goes on."""
        found = self.ask(
            f"SELECT pid FROM pg_stat_activity WHERE datname = '{DATABASE}' AND pid <> pg_backend_pid() "
            "ORDER BY query_start DESC LIMIT 1",
            "postgres",
        )
        if found:
            os.kill(int(found), signal.SIGKILL)

    def stop(self) -> None:
        """Properly, ending sessions: as for a restart."""
        if self._process is not None and self.pid:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_S)

    def ask(self, statement: str, database: str = DATABASE) -> str:
        """Execute a statement; what psql says, bare."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database]
        return self._call("psql", "-qAtX", "-v", "ON_ERROR_STOP=1", *place, "-c", statement)

    def set(self, name: str, value: str) -> None:
        """Change a setting while it runs."""
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'", "postgres")
        self.ask("SELECT pg_reload_conf()", "postgres")

    def make_standby(self, folder: Path | None = None) -> Postgres:
        """Another server that follows this one, and without which this one acknowledges no commit."""
        standby = Postgres(folder, self._settings)
        standby.follow(self)
        return standby

    def follow(self, primary: Postgres) -> None:
        """Become the stand-by of another server, with its data in place of one's own. It acknowledges no commit without
        this one from now on."""
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        place = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", USER]
        self._call("pg_basebackup", "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", *place)
        self._configure()
        self.start()
        primary.set("synchronous_standby_names", "*")
        deadline = time.monotonic() + START_S
        while primary.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "postgres") != "1":
            if time.monotonic() > deadline:
                raise MainspringError("the stand-by does not follow")
            time.sleep(0.05)

    def promote(self) -> None:
        """The stand-by becomes the server to write to, and waits for no other."""
        self._call("pg_ctl", "promote", "-w", "-D", str(self.data))
        self.set("synchronous_standby_names", "")

    def close(self) -> None:
        """End it, and remove what it left."""
        self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *args: str) -> str:
        command = [*_as_owner(), str(self._programs / program), *args]
        result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60, check=False)
        if result.returncode:
            raise MainspringError(f"{program}: {(result.stderr or result.stdout).strip()}")
        return result.stdout.strip()


def _memory() -> str | None:
    """A folder in memory, if there is room: what was written there outlives a killed process as on a disk, and is
    recovered in no time."""
    place = Path("/dev/shm")
    if not place.is_dir() or shutil.disk_usage(place).free < _ROOM:
        return None
    return str(place)


def _as_owner() -> Sequence[str]:
    if os.geteuid() != 0:
        return ()
    return ("setpriv", "--reuid", _OWNER, "--regid", _OWNER, "--init-groups")


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has ended meanwhile.
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(path.parent.name))
    return found


def _runs(pid: int) -> bool:
    """A process that is not reaped yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
