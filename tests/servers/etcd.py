"""etcd servers for tests: one, or a cluster of three. Everything here blocks."""

from __future__ import annotations

import shutil
import ssl
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

    def __init__(self, folder: Path, *options: str, tls: tuple[Path, Path] | None = None) -> None:
        if shutil.which(PROGRAM) is None:
            raise MainspringError("etcd is not installed here: install etcd-server, as `make services` does")
        super().__init__(folder)
        self.peer = free_port()
        self.members: Sequence[EtcdServer] = [self]
        self.options = options
        self.tls = tls
        """The certificate, which is its own authority, and the key that it serves clients with."""

    @property
    def url(self) -> str:
        """All members, as a lease's URL."""
        return "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def words(self) -> list[str]:
        client, peer = self._base, f"http://127.0.0.1:{self.peer}"
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
        if self.tls is not None:
            flags |= {"cert-file": str(self.tls[0]), "key-file": str(self.tls[1])}
        given = {option.partition("=")[0].lstrip("-") for option in self.options}
        kept = [f"--{flag}={value}" for flag, value in flags.items() if flag not in given]
        return [PROGRAM, *kept, "--unsafe-no-fsync", *self.options]

    @property
    def _base(self) -> str:
        return f"http{'' if self.tls is None else 's'}://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        """For requests of an administrator, by their paths."""
        verify = False if self.tls is None else ssl.create_default_context(cafile=str(self.tls[0]))
        return httpx.Client(base_url=self._base, verify=verify, timeout=5, trust_env=False)

    def answers(self) -> bool:
        return self._ask("GET", "/health").get("health") == "true"

    def leads(self) -> bool:
        """Whether this member leads the cluster."""
        status = self._ask("POST", "/v3/maintenance/status")
        return bool(status.get("leader")) and status["leader"] == status["header"]["member_id"]

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        """Empty if it does not answer."""
        try:
            with self.client() as client:
                answer: dict[str, Any] = client.request(method, path, json={} if method == "POST" else None).json()
        except (httpx.HTTPError, ValueError):
            return {}
        return answer


def make_cluster(folder: Path, size: int = 3) -> list[EtcdServer]:
    """Members of one cluster, which do not run yet."""
    members = [EtcdServer(folder) for _ in range(size)]
    for member in members:
        member.members = members
    return members
