"""How to reach the API server of Kubernetes: as the service account of this pod, or as a kubeconfig file says."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mainspring.errors import InvalidInput, LeaseUnavailable

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, which rotates, the authority of the API server, and its namespace."""
REREAD_S: Final = 60.0
"""Kubernetes replaces a token long before it expires: reading it again once a minute is enough."""
PLUGIN_S: Final = 30.0
"""How long a credential plugin may take."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One API server, and how this process logs in."""

    server: str
    namespace: str
    """The namespace of the pod or context: for URLs that name none."""
    tls: ssl.SSLContext | None
    token: Callable[[bool], str | None]
    """The bearer token; with True, a fresh one, since the last was refused."""


def find_access(options: Mapping[str, str], environ: Mapping[str, str] = os.environ, field: str = "lease") -> Access:
    """The access that the options of a URL name (`kubeconfig`, `context`), else that of this pod, else that of
    $KUBECONFIG or ~/.kube/config. InvalidInput for the setting `field` if there is none."""
    host = environ.get("KUBERNETES_SERVICE_HOST")
    if "kubeconfig" not in options and "context" not in options and host and (ACCOUNT / "token").exists():
        return _from_pod(host, environ.get("KUBERNETES_SERVICE_PORT", "443"), ACCOUNT)
    named = options.get("kubeconfig") or environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    for each in named.split(os.pathsep):
        if Path(each).exists():
            return _from_file(Path(each), options.get("context"))
    remedy = "run inside a pod, set KUBECONFIG, or append ?kubeconfig=FILE to the URL"
    raise InvalidInput(field, named, "is not there, and this is no pod of Kubernetes", remedy)


def _from_pod(host: str, port: str, account: Path) -> Access:
    where = f"[{host}]" if ":" in host else host
    namespace = account / "namespace"
    return Access(
        server=f"https://{where}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        tls=ssl.create_default_context(cafile=str(account / "ca.crt")),
        token=_token_of_file(account / "token"),
    )


def _token_of_file(path: Path) -> Callable[[bool], str | None]:
    read_at, token = -REREAD_S, ""

    def read(fresh: bool) -> str:
        nonlocal read_at, token
        if fresh or time.monotonic() >= read_at + REREAD_S:
            try:
                token, read_at = path.read_text().strip(), time.monotonic()
            except OSError as error:
                raise LeaseUnavailable(f"the token of Kubernetes cannot be read: {error}") from error
        return token

    return read


def _from_file(path: Path, context: str | None) -> Access:
    import yaml

    try:
        config = yaml.safe_load(path.read_text())
        chosen = _entry(config, "context", context or config["current-context"])
        cluster, user = _entry(config, "cluster", chosen["cluster"]), _entry(config, "user", chosen["user"])
        server = str(cluster["server"]).rstrip("/")
    except (yaml.YAMLError, KeyError, TypeError, OSError) as error:
        problem = f"cannot be used as kubeconfig: {type(error).__name__} {error}"
        raise InvalidInput("lease", str(path), problem, "name a context that has a cluster and a user") from None
    return Access(
        server=server,
        namespace=chosen.get("namespace", "default"),
        tls=_tls(path.parent, cluster, user) if server.startswith("https:") else None,
        token=_token_of(path.parent, user),
    )


def _entry(config: Any, kind: str, name: str) -> dict[str, Any]:
    """The entry of a kind and name: kubeconfig has lists of `{name, KIND: {...}}`."""
    for each in config[f"{kind}s"]:
        if each["name"] == name:
            return dict(each[kind] or {})
    raise KeyError(f"{kind} {name}")


def _tls(folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority")
    data = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=str(folder / authority) if authority else None, cadata=b64decode(data).decode() if data else None
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "client-certificate-data" in user:
        # The ssl module reads certificates from files only: these exist while it does.
        with tempfile.TemporaryDirectory() as private:
            files = [Path(private, "certificate"), Path(private, "key")]
            for file, key in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
                file.touch(0o600)
                file.write_bytes(b64decode(user[key]))
            context.load_cert_chain(str(files[0]), str(files[1]))
    elif "client-certificate" in user:
        context.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])
    return context


def _token_of(folder: Path, user: Mapping[str, Any]) -> Callable[[bool], str | None]:
    if "exec" in user:
        return _token_of_plugin(user["exec"])
    if "tokenFile" in user:
        return _token_of_file(folder / user["tokenFile"])
    token = user.get("token")
    return lambda _fresh: token


def _token_of_plugin(plugin: Mapping[str, Any]) -> Callable[[bool], str | None]:
    """Cloud providers issue tokens by a program, which prints an ExecCredential; again when the token expires."""
    token, until = "", 0.0
    added = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    asked = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}

    def read(fresh: bool) -> str:
        nonlocal token, until
        if not fresh and time.time() < until:
            return token
        words = [plugin["command"], *(plugin.get("args") or ())]
        environ = {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        try:
            done = subprocess.run(words, env=environ, capture_output=True, timeout=PLUGIN_S, check=True)
            status = json.loads(done.stdout)["status"]
            token, until = str(status["token"]), float("inf")
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            raise LeaseUnavailable(f"the credential plugin {plugin['command']} failed: {error}") from error
        with suppress(KeyError, ValueError):
            until = datetime.fromisoformat(status["expirationTimestamp"].replace("Z", "+00:00")).timestamp() - REREAD_S
        return token

    return read
