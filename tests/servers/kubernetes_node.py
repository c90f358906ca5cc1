"""A node of Kubernetes for tests: the containers of its pods are processes of this host, without isolation.

    python -P tests/servers/kubernetes_node.py KUBECONFIG NAME FOLDER

It does what Jobs and Deployments rest on: it runs `command` and `args` with the environment that the pod names, reports
states and exit codes, kills what uses more memory than its limit, serves logs, and ends pods that are deleted. An image
`mainspring` stands for this program; an image that begins with `missing` cannot be pulled; others need a command. Each
pod gets a kubeconfig file of its service account in `$KUBECONFIG`, in place of the folder that a pod has.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import uvicorn

from mainspring.drivers.kubernetes.client import KubernetesLink
from mainspring.drivers.kubernetes.config import Access, find_access
from mainspring.errors import LeaseUnavailable

Manifest = dict[str, Any]
LOOK_S: Final = 0.05
UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp() -> str:
    """The time of a line, to the nanosecond."""
    nanoseconds = time.time_ns()
    seconds = datetime.fromtimestamp(nanoseconds // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{nanoseconds % 10**9:09d}Z"


class Container:
    """One process and its log."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self.ended = asyncio.Event()
        self.out_of_memory = False
        log.touch()

    async def run(self, argv: list[str], env: dict[str, str], cwd: str | None, limit: int | None) -> int:
        """Run the process to its end; the exit code as a container's."""
        try:
            self.process = await asyncio.create_subprocess_exec(
                *argv, env=env, cwd=cwd, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, limit=2**24,
            )  # fmt: skip
        except OSError as error:
            self.log.write_text(f"{stamp()} {error}\n")
            self.ended.set()
            return 127
        watching = asyncio.create_task(self._watch_memory(self.process.pid, limit))
        assert self.process.stdout is not None
        with self.log.open("ab", buffering=0) as log:
            while line := await self.process.stdout.readline():
                log.write(stamp().encode() + b" " + line.rstrip(b"\n") + b"\n")
        code = await self.process.wait()
        watching.cancel()
        self.ended.set()
        return code if code >= 0 else 128 - code

    async def _watch_memory(self, pid: int, limit: int | None) -> None:
        while limit is not None:
            if _memory_of(pid) > limit:
                self.out_of_memory = True
                self.signal(signal.SIGKILL)
            await asyncio.sleep(LOOK_S)

    def signal(self, number: int) -> None:
        """To the process and all that it started."""
        if self.process is not None and not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


def _memory_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class Node:
    """Watches the pods of its name, and runs them."""

    def __init__(self, access: Access, name: str, port: int, folder: Path) -> None:
        self._access, self._name, self._port, self._folder = access, name, port, folder
        self._link = KubernetesLink(access, 10.0)
        self._containers: dict[str, Container] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._ending: set[str] = set()
        self._uids: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Register, then follow the pods until cancelled."""
        await self._register()
        pods, mine = "/api/v1/pods", f"spec.nodeName={self._name}"
        while True:
            try:
                listed = await self._link.request("GET", pods, fieldSelector=mine)
                for pod in listed["items"]:
                    self._see(pod)
                version = listed["metadata"]["resourceVersion"]
                async for kind, pod in self._link.watch(pods, version, fieldSelector=mine):
                    if kind != "DELETED":
                        self._see(pod)
            except LeaseUnavailable:
                await asyncio.sleep(LOOK_S)

    async def _register(self) -> None:
        labels = {"kubernetes.io/hostname": self._name, "topology.kubernetes.io/zone": "a"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": labels}}
        with suppress(LeaseUnavailable):
            await self._link.request("POST", "/api/v1/nodes", node)
        found = await self._link.request("GET", f"/api/v1/nodes/{self._name}")
        room = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
        found["status"] = {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        await self._link.request("PUT", f"/api/v1/nodes/{self._name}/status", found)

    def _see(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._containers and pod["metadata"].get("deletionTimestamp") is None:
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self._uids[pod["metadata"]["namespace"], pod["metadata"]["name"]] = uid
                self._containers[uid] = Container(self._folder / f"{uid}.log")
                self._begin(self._run(pod, self._containers[uid]))
        elif pod["metadata"].get("deletionTimestamp") is not None and uid not in self._ending:
            self._ending.add(uid)
            self._begin(self._end(pod, self._containers.get(uid)))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _run(self, pod: Manifest, container: Container) -> None:
        spec = pod["spec"]["containers"][0]
        started = now()
        if spec["image"].startswith("missing"):
            waiting = {"reason": "ErrImagePull", "message": f"{spec['image']}: not found"}
            await self._report(pod, "Pending", {"waiting": waiting}, started)
            return
        if spec["image"] != spec["image"].lower():
            waiting = {"reason": "InvalidImageName", "message": f"couldn't parse image name {spec['image']!r}"}
            await self._report(pod, "Pending", {"waiting": waiting}, started)
            return
        env = await self._environment(pod, spec)
        argv = [*(spec.get("command") or _entry_point(spec["image"])), *(spec.get("args") or ())]
        memory = spec.get("resources", {}).get("limits", {}).get("memory")
        running = asyncio.create_task(container.run(argv, env, spec.get("workingDir"), _read_memory(memory)))
        await self._report(pod, "Running", {"running": {"startedAt": started}}, started)
        code = await running
        reason = "OOMKilled" if container.out_of_memory else "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}
        phase = "Succeeded" if code == 0 else "Failed"
        await self._report(pod, phase, {"terminated": ended}, started)

    async def _environment(self, pod: Manifest, spec: Manifest) -> dict[str, str]:
        namespace = pod["metadata"]["namespace"]
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        env["KUBECONFIG"] = str(await self._log_in(namespace, pod["spec"].get("serviceAccountName") or "default"))
        for source in spec.get("envFrom") or ():
            kind = "configMapRef" if "configMapRef" in source else "secretRef"
            env |= await self._read(namespace, kind, source[kind]["name"])
        for each in spec.get("env") or ():
            origin = each.get("valueFrom") or {}
            if "secretKeyRef" in origin or "configMapKeyRef" in origin:
                [(kind, wanted)] = origin.items()
                env[each["name"]] = (await self._read(namespace, kind, wanted["name"]))[wanted["key"]]
            elif "fieldRef" in origin:
                path = origin["fieldRef"]["fieldPath"]
                env[each["name"]] = {"metadata.namespace": namespace, "status.podIP": "127.0.0.1"}.get(
                    path, pod["metadata"]["name"]
                )
            else:
                env[each["name"]] = each.get("value", "")
        return env

    async def _read(self, namespace: str, kind: str, name: str) -> dict[str, str]:
        plural = "configmaps" if kind.startswith("configMap") else "secrets"
        data = (await self._link.request("GET", f"/api/v1/namespaces/{namespace}/{plural}/{name}")).get("data", {})
        return data if plural == "configmaps" else {key: base64.b64decode(text).decode() for key, text in data.items()}

    async def _log_in(self, namespace: str, account: str) -> Path:
        """A kubeconfig file with a token of the pod's service account."""
        path = self._folder / f"{namespace}-{account}.kubeconfig"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        try:
            answer = await self._link.request(
                "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked
            )
        except LeaseUnavailable:
            return path  # The pod's account does not exist: a pod that needs none runs nevertheless.
        _write_login(path, answer["status"]["token"], namespace)
        return path

    async def _report(self, pod: Manifest, phase: str, state: Manifest, started: str) -> None:
        """Write the status, again where it changed meanwhile."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        main = pod["spec"]["containers"][0]
        ready = "running" in state
        status = {"name": main["name"], "image": main["image"], "imageID": main["image"], "restartCount": 0}
        status |= {"ready": ready, "started": ready, "state": state}
        for _ in range(50):
            with suppress(LeaseUnavailable):
                found = await self._link.request("GET", path)
                if found["metadata"]["uid"] != pod["metadata"]["uid"]:
                    return
                conditions = [
                    each for each in found["status"].get("conditions") or () if each["type"] == "PodScheduled"
                ]
                conditions += [
                    {"type": kind, "status": "True" if ready else "False", "lastTransitionTime": now()}
                    for kind in ("Initialized", "Ready", "ContainersReady")
                ]
                found["status"] |= {"phase": phase, "hostIP": "127.0.0.1", "podIP": "127.0.0.1"}
                found["status"] |= {"startTime": started, "conditions": conditions, "containerStatuses": [status]}
                await self._link.request("PUT", f"{path}/status", found)
                return
            await asyncio.sleep(LOOK_S)

    async def _end(self, pod: Manifest, container: Container | None) -> None:
        if container is not None and container.process is not None and not container.ended.is_set():
            container.signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(container.ended.wait(), pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            container.signal(signal.SIGKILL)
            await container.ended.wait()
            await asyncio.sleep(LOOK_S)  # Its state is reported before the pod is gone.
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        with suppress(LeaseUnavailable):
            await self._link.request("DELETE", path, {"gracePeriodSeconds": 0})

    def container_of(self, namespace: str, pod: str) -> Container | None:
        """The container of a pod."""
        return self._containers.get(self._uids.get((namespace, pod), ""))

    def end_all(self) -> None:
        """Kill what still runs."""
        for container in self._containers.values():
            container.signal(signal.SIGKILL)


def _write_login(path: Path, token: str, namespace: str) -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = namespace
    path.write_text(json.dumps(config))


def _entry_point(image: str) -> list[str]:
    """Stands for what the image would run."""
    return [sys.executable, "-m", "mainspring"] if image.startswith("mainspring") else ["false"]


def _read_memory(text: str | None) -> int | None:
    return None if text is None else int(text[:-2]) * UNITS[text[-2:]] if text[-2:] in UNITS else int(text)


class Logs:
    """What a kubelet serves to the API server: `/containerLogs/NAMESPACE/POD/CONTAINER`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        _, _, namespace, pod, _ = scope["path"].split("/")
        container = self._node.container_of(namespace, pod)
        await send({"type": "http.response.start", "status": 404 if container is None else 200, "headers": []})
        query = parse_qs(scope["query_string"].decode())
        if container is not None:
            await self._copy(container, query, send)
        await send({"type": "http.response.body", "body": b""})

    async def _copy(self, container: Container, query: dict[str, list[str]], send: Any) -> None:
        stamped, follow = "timestamps" in query, query.get("follow") == ["true"]
        since = query.get("sinceTime", [""])[0].removesuffix("Z").encode()
        with container.log.open("rb") as log:
            while True:
                last = container.ended.is_set() or not follow
                while line := log.readline():
                    if line >= since:
                        body = line if stamped else line.partition(b" ")[2]
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                if last:
                    return
                await asyncio.sleep(LOOK_S)


def _make_certificate(folder: Path) -> tuple[str, str]:
    key, certificate = str(folder / "node.key"), str(folder / "node.crt")
    subject = ["-subj", "/CN=node", "-days", "2", "-keyout", key, "-out", certificate]
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *subject]
    subprocess.run(words, check=True, capture_output=True)
    return key, certificate


async def _serve(kubeconfig: str, name: str, folder: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    node = Node(find_access({"kubeconfig": kubeconfig}), name, listening.getsockname()[1], folder)
    key, certificate = _make_certificate(folder)
    config = uvicorn.Config(
        Logs(node), log_level="error", ssl_keyfile=key, ssl_certfile=certificate,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    # uvicorn raises the signal again once it has shut down: the default would end this process before its pods.
    signal.signal(signal.SIGTERM, lambda *_: None)
    running = asyncio.create_task(node.run())
    try:
        await uvicorn.Server(config).serve(sockets=[listening])
    finally:
        node.end_all()
        running.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
