"""Starts the real API server where it was built, and the stand-in otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

from servers.kubernetes import KubernetesCluster, KubernetesServer, find_cluster, find_program


class StandInServer(KubernetesServer):
    """See `kubernetes_standin_server`. It keeps nothing after it was killed."""

    name = "standin"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Path(sys.executable))

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def words(self) -> list[str]:
        program = Path(__file__).with_name("kubernetes_standin_server.py")
        return [sys.executable, str(program), str(self.port), str(self.folder / "tokens.csv")]

    def begin(self) -> StandInServer:
        self.spawn()
        return self

    def stop(self) -> None:
        self.kill()


def make_server(folder: Path) -> KubernetesServer:
    program = find_program()
    return StandInServer(folder) if program is None else KubernetesServer(folder, program)


def make_cluster(folder: Path) -> KubernetesCluster:
    """A cluster that runs pods: the real one where all of its programs were built."""
    program = find_cluster()
    server = StandInServer(folder) if program is None else KubernetesServer(folder, program)
    return KubernetesCluster(folder, server, program)
