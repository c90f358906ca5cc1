"""ZooKeeper servers for tests: one, or an ensemble of three. Everything here blocks."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mainspring.errors import MainspringError
from mainspring.testing.servers.process import ServerProcess, free_port

JAR: Final = Path("/usr/share/java/zookeeper.jar")
OF_TLS: Final = [JAR.with_name(f"netty-{part}.jar") for part in ("codec", "resolver", "transport-native-unix-common")]
"""Parts of Netty that TLS needs, and that the package's list of classes leaves out."""


class ZooKeeperServer(ServerProcess):
    """One server. Its ticks are a tenth of the default, so that it grants sessions of 0.4 to 4 s."""

    name = "zookeeper"

    def __init__(self, folder: Path, *lines: str, tls: Path | None = None) -> None:
        if not JAR.exists():
            raise MainspringError("ZooKeeper is not installed here: install zookeeper, as `make services` does")
        super().__init__(folder)
        self.ports = (free_port(), free_port())
        self.members: Sequence[ZooKeeperServer] = [self]
        self.lines = lines
        self.tls = tls
        """A file of the key and certificate with which it also serves clients over TLS, on `tls_port`."""
        self.tls_port = free_port()
        self.java: Sequence[str] = ()
        """More options of the virtual machine."""

    @property
    def url(self) -> str:
        """All members, as a lease's URL."""
        return "zookeeper://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def words(self) -> list[str]:
        config = [
            "tickTime=200",
            "initLimit=50",
            "syncLimit=25",
            "minSessionTimeout=400",
            f"dataDir={self.folder}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={self.port}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,stat,mntr",
            *self.lines,
        ]
        if self.tls is not None:
            config += [
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"secureClientPort={self.tls_port}",
                "secureClientPortAddress=127.0.0.1",
                f"ssl.keyStore.location={self.tls}",
                f"ssl.trustStore.location={self.tls}",
                "ssl.clientAuth=none",
            ]
        if len(self.members) > 1:
            (self.folder / "myid").write_text(str(list(self.members).index(self) + 1))
            for number, member in enumerate(self.members):
                config.append(f"server.{number + 1}=127.0.0.1:{member.ports[0]}:{member.ports[1]}")
        (self.folder / "zoo.cfg").write_text("\n".join(config) + "\n")
        java = ["java", "-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [*java, *self.java, "-Dzookeeper.forceSync=no", main, str(self.folder / "zoo.cfg")]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "CLASSPATH": ":".join(map(str, [JAR, *OF_TLS]))}

    def answers(self) -> bool:
        return "Mode:" in self.ask("srvr")

    def leads(self) -> bool:
        """Whether this member leads the ensemble."""
        return "Mode: leader" in self.ask("srvr")

    def ask(self, word: str) -> str:
        """The answer to one of the commands of four letters; empty without an answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(1)
                connection.sendall(word.encode())
                said = b""
                while data := connection.recv(4096):
                    said += data
                return said.decode()
        except OSError:
            return ""


def make_ensemble(folder: Path, size: int = 3, *lines: str) -> list[ZooKeeperServer]:
    """Members of one ensemble, which do not run yet."""
    members = [ZooKeeperServer(folder, *lines) for _ in range(size)]
    for member in members:
        member.members = members
    return members
