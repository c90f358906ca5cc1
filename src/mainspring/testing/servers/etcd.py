"""etcd servers of our own: one, or a cluster of three. Everything here blocks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from mainspring.errors import MainspringError
from mainspring.testing.servers.process import ServerProcess, free_port

PROGRAM: Final = "etcd"


class EtcdServer(ServerProcess):
    """One member. Its election timeout is half of the default, so that it grants leases of one second."""

    name = "etcd"

    def __init__(self, folder: Path, *options: str) -> None:
        if shutil.which(PROGRAM) is None:
            raise MainspringError("etcd is not installed here: install etcd-server, as `make services` does")
        super().__init__(folder)
        self.peer = free_port()
        self.members: Sequence[EtcdServer] = [self]
        self.options = options

    @property
    def url(self) -> str:
        """All members, as a lease's URL."""
        return "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def words(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer}"
        members = ",".join(f"m{each.port}=http://127.0.0.1:{each.peer}" for each in self.members)
        flags = {
            "name": f"m{self.port}",
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": members,
            "heartbeat-interval": "50",
            "election-timeout": "500",
            "logger": "zap",
            "log-level": "warn",
        }
        given = {option.partition("=")[0].lstrip("-") for option in self.options}
        kept = [f"--{flag}={value}" for flag, value in flags.items() if flag not in given]
        return [PROGRAM, *kept, "--unsafe-no-fsync", *self.options]

    def answers(self) -> bool:
        try:
            health: dict[str, str] = httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=1).json()
            return health.get("health") == "true"
        except (httpx.HTTPError, ValueError):
            return False

    def leads(self) -> bool:
        """Whether it is the leader of the cluster."""
        try:
            status: dict[str, Any] = httpx.post(
                f"http://127.0.0.1:{self.port}/v3/maintenance/status", json={}, timeout=1
            ).json()
        except (httpx.HTTPError, ValueError):
            return False
        return bool(status.get("leader")) and status["leader"] == status["header"]["member_id"]


def make_cluster(folder: Path, size: int = 3) -> list[EtcdServer]:
    """Members of one cluster, which do not run yet."""
    members = [EtcdServer(folder) for _ in range(size)]
    for member in members:
        member.members = members
    return members


def start_cluster(folder: Path, size: int = 3) -> list[EtcdServer]:
    """Members of one cluster, once all of them answer."""
    members = [member.begin() for member in make_cluster(folder, size)]
    return [member.wait() for member in members]
