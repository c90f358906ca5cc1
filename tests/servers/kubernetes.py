"""The API server of Kubernetes on its own etcd, where `make kubernetes` has built it. Everything here blocks."""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from mainspring.testing.servers.process import ServerProcess

from .etcd import EtcdServer

ADMIN: Final = "secret-of-the-administrator"
ACCOUNT: Final = "secret-of-the-account"
"""Bearer tokens: of the administrator, and of the service account `mainspring` in the namespace `default`."""
CONTROLLERS: Final = (
    ",".join(
        f"{each}-controller"
        for each in (
            "job",
            "cronjob",
            "namespace",
            "garbage-collector",
            "ttl-after-finished",
            "deployment",
            "replicaset",
        )
    )
    + ",serviceaccount-controller,disruption-controller"
)
USER: Final = "system:serviceaccount:default:mainspring"


def find_program() -> Path | None:
    """The newest kube-apiserver of the cache; None where none was built."""
    return _find_built("kubernetes-*/kube-apiserver")


def find_helm() -> Path | None:
    """The newest Helm of the cache; None where none was built."""
    return _find_built("helm-*/helm")


def find_kinds() -> list[Path]:
    """Files of the cache that define the kinds of KEDA and of the Prometheus operator; none where none were fetched."""
    return sorted((_cache() / "kinds").glob("**/*.yaml"))


def _find_built(pattern: str) -> Path | None:
    return next(iter(sorted(_cache().glob(pattern), reverse=True)), None)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainspring"


def find_cluster() -> Path | None:
    """The API server, if controllers and scheduler were built, too."""
    program = find_program()
    parts = ("kube-controller-manager", "kube-scheduler")
    return program if program is not None and all(program.with_name(each).exists() for each in parts) else None


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
        cluster = {"server": self.server.replace(str(self.port), str(port or self.port))}
        if cluster["server"].startswith("https"):
            cluster["certificate-authority"] = str(self.authority)
        config = {
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))  # JSON is YAML.
        return path


class ControllersProcess(ServerProcess):
    """The controllers of Kubernetes, or its scheduler: programs beside the API server's."""

    name = "kube-controller-manager"
    flags: Mapping[str, str] = {"controllers": CONTROLLERS}

    def __init__(self, folder: Path, program: Path, server: KubernetesServer) -> None:
        super().__init__(folder)
        self._program, self._server = program, server

    def words(self) -> list[str]:
        config = str(self._server.write_kubeconfig(self.folder / "config"))
        flags = {
            "kubeconfig": config,
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            "bind-address": "127.0.0.1",
            "secure-port": str(self.port),
            "cert-dir": str(self.folder / "certs"),
            "leader-elect": "false",
            **self.flags,
        }
        if self.name == "kube-controller-manager":
            flags["service-account-private-key-file"] = str(self._server.folder / "sa.key")
        return [str(self._program.with_name(self.name)), *(f"--{flag}={value}" for flag, value in flags.items())]

    def answers(self) -> bool:
        try:
            with httpx.Client(verify=False, timeout=2, trust_env=False) as client:
                return client.get(f"https://127.0.0.1:{self.port}/healthz").status_code == 200
        except (httpx.HTTPError, OSError):
            return False


class SchedulerProcess(ControllersProcess):
    """Gives pods to nodes."""

    name = "kube-scheduler"
    flags: Mapping[str, str] = {}


class NodeProcess(ServerProcess):
    """See `kubernetes_node`."""

    name = "node"

    def __init__(self, folder: Path, server: KubernetesServer) -> None:
        super().__init__(folder)
        self._server = server

    def words(self) -> list[str]:
        config = self._server.write_kubeconfig(self.folder / "config")
        program = str(Path(__file__).with_name("kubernetes_node.py"))
        return [sys.executable, "-P", program, str(config), "node", str(self.folder)]

    def answers(self) -> bool:
        answer = self._server.ask("GET", "/api/v1/nodes/node")
        return answer.status_code == 200 and "addresses" in answer.json().get("status", {})

    def stop(self) -> None:
        """Let it end its processes, then end it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


class KubernetesCluster:
    """An API server with what makes its Jobs and Deployments run: controllers, a scheduler and one node."""

    def __init__(self, folder: Path, server: KubernetesServer, program: Path | None) -> None:
        self.server = server
        self._folder, self._program = folder, program
        self._parts: list[ServerProcess] = []
        self._node = NodeProcess(folder, server)

    def start(self) -> KubernetesCluster:
        """Return once all of it works. Without a program, the server is one that has its own controllers."""
        self.server.start()
        if self._program is not None:
            kinds = (ControllersProcess, SchedulerProcess)
            self._parts = [kind(self._folder, self._program, self.server) for kind in kinds]
        for part in (*self._parts, self._node):
            part.begin()
        for part in (*self._parts, self._node):
            part.wait()
        return self

    def stop(self) -> None:
        """End all of it, and all processes of its pods."""
        self._node.stop()
        for part in self._parts:
            part.kill()
        self.server.stop()


def fit_for_one_host(manifest: dict[str, Any], app: Path, store: str) -> dict[str, Any]:
    """A manifest of deploy/kubernetes for the node of this cluster, changed in place. All its pods share the network of
    this host, and its image is this program with an app. There are three servers."""
    if manifest["kind"] == "Secret":
        manifest.pop("data", None)
        manifest["stringData"] = {"MAINSPRING_STORE": store, "MAINSPRING_SECRET": secrets.token_hex(32)}
    if manifest["kind"] == "Deployment":
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        verb = container["args"][0]
        own = ["--host", "127.0.0.1", "--port", "0"] if verb == "server" else ["--region", "default"]
        container["args"] = [verb, str(app), *own]
        if verb == "server":
            manifest["spec"]["replicas"] = 3
    return manifest


def _trust(verify: Any) -> Any:
    return ssl.create_default_context(cafile=verify) if verify else False
