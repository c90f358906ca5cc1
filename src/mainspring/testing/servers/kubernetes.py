"""The API server of Kubernetes on an etcd of its own, where `make kubernetes` has built it. Everything here blocks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from mainspring.testing.servers.etcd import EtcdServer
from mainspring.testing.servers.process import ServerProcess

ADMIN: Final = "secret-of-the-administrator"
ACCOUNT: Final = "secret-of-the-account"
"""Bearer tokens: of the administrator, and of the service account `mainspring` in the namespace `default`."""
USER: Final = "system:serviceaccount:default:mainspring"


def find_program() -> Path | None:
    """The newest kube-apiserver of the cache; None where none was built."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(os.environ.get("MAINSPRING_CACHE") or Path(home, "mainspring"))
    return next(iter(sorted(cache.glob("kubernetes-*/kube-apiserver"), reverse=True)), None)


class KubernetesServer(ServerProcess):
    """A kube-apiserver with RBAC."""

    name = "kubernetes"

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__(folder)
        self._program = program
        self._etcd = EtcdServer(self.folder)
        self._make_keys()
        tokens = f'{ADMIN},admin,admin,"system:masters"\n{ACCOUNT},{USER},1,"system:serviceaccounts"\n'
        (self.folder / "tokens.csv").write_text(tokens)

    def _make_keys(self) -> None:
        for words in (["genrsa", "-out", "sa.key", "2048"], ["rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"]):
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    @property
    def server(self) -> str:
        """Its URL."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate that it serves, and that clients trust."""
        return self.folder / "certs" / "apiserver.crt"

    def words(self) -> list[str]:
        flags = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd.port}",
            "bind-address": "127.0.0.1",
            "secure-port": str(self.port),
            "cert-dir": str(self.folder / "certs"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(self.folder / "sa.pub"),
            "service-account-signing-key-file": str(self.folder / "sa.key"),
            "service-cluster-ip-range": "10.0.0.0/24",
            "endpoint-reconciler-type": "none",
            "token-auth-file": str(self.folder / "tokens.csv"),
            "authorization-mode": "RBAC",
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
        }
        return [str(self._program), *(f"--{flag}={value}" for flag, value in flags.items())]

    def begin(self) -> KubernetesServer:
        if not self._etcd.answers():
            self._etcd.start()
        self.spawn()
        return self

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/readyz").text == "ok"
        except (httpx.HTTPError, OSError):
            return False

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """A request of the administrator."""
        headers = {"Authorization": f"Bearer {ADMIN}"}
        verify: Any = str(self.authority) if self.server.startswith("https") else False
        with httpx.Client(verify=_trust(verify), timeout=10, trust_env=False) as client:
            return client.request(method, self.server + path, json=body, headers=headers)

    def stop(self) -> None:
        """Kill it and its etcd."""
        self.kill()
        self._etcd.kill()

    def write_kubeconfig(self, path: Path, token: str = ADMIN, port: int | None = None) -> Path:
        """A kubeconfig file for a user of this server, perhaps through a proxy on another port."""
        cluster: dict[str, object] = {"server": self.server.replace(str(self.port), str(port or self.port))}
        if cluster["server"].startswith("https"):  # type: ignore[attr-defined]
            cluster["certificate-authority"] = str(self.authority)
        config = {
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))  # JSON is YAML.
        return path


def _trust(verify: Any) -> Any:
    import ssl

    return ssl.create_default_context(cafile=verify) if verify else False
