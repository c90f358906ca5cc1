"""Jobs and pods of the stand-in: what the job controller, the scheduler and the garbage collector do for a Job with one
pod. Processes run on the same node as with the real API server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

Object = dict[str, Any]
Key = tuple[str, str, str]
JOB_NAME = "batch.kubernetes.io/job-name"


class Objects(Protocol):
    """The part of the stand-in that a controller needs."""

    objects: dict[Key, Object]

    def create(self, resource: str, namespace: str, body: Object) -> Object: ...

    def write(self, kind: str, key: Key, body: Object) -> Object: ...


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def selected(found: Object, query: Mapping[str, str]) -> bool:
    """Whether an object is among those that a list or a watch asks for."""
    name, _, value = query.get("labelSelector", "").partition("=")
    if name and found["metadata"].get("labels", {}).get(name) != value:
        return False
    path, _, value = query.get("fieldSelector", "").partition("=")
    if path == "status.successful":
        return str(found.get("status", {}).get("succeeded", 0)) == value
    place: Any = found
    for part in path.split(".") if path else ():
        place = place.get(part, {})
    return not path or place == value


def end_later(cluster: Objects, key: Key, grace_s: int) -> Object:
    """A pod that is deleted: its node removes it once its process has ended."""
    pod = cluster.objects[key]
    if "deletionTimestamp" in pod["metadata"]:
        return pod
    asked = {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace_s}
    return cluster.write("MODIFIED", key, {**pod, "metadata": {**pod["metadata"], **asked}})


class JobController:
    """Looks at all Jobs after each change, and at deadlines now and then."""

    def __init__(self, cluster: Objects) -> None:
        self._cluster = cluster
        self._since: dict[str, float] = {}

    def look(self) -> None:
        """Bring every Job nearer to what it asks for."""
        objects = self._cluster.objects
        for key, job in [(key, job) for key, job in objects.items() if key[0] == "jobs"]:
            pods = {
                each: pod
                for each, pod in objects.items()
                if each[:2] == ("pods", key[1]) and pod["metadata"].get("labels", {}).get(JOB_NAME) == key[2]
            }
            if "deletionTimestamp" in job["metadata"]:
                self._delete(key, job, pods)
            elif not pods and not job.get("status", {}).get("conditions"):
                self._begin(key, job)
            elif "conditions" not in job.get("status", {}):
                self._judge(key, job, pods)

    def _delete(self, key: Key, job: Object, pods: Mapping[Key, Object]) -> None:
        for each, pod in pods.items():
            if "deletionTimestamp" not in pod["metadata"]:
                end_later(self._cluster, each, pod["spec"].get("terminationGracePeriodSeconds", 30))
        if not pods:
            self._cluster.write("DELETED", key, job)

    def _begin(self, key: Key, job: Object) -> None:
        template = {"metadata": {}, **job["spec"]["template"]}
        labels = {**template["metadata"].get("labels", {}), JOB_NAME: key[2]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": f"{key[2]}-{job['metadata']['uid'][4:]}", "labels": labels},
            "spec": {**template["spec"], "nodeName": "node"},
            "status": {"phase": "Pending"},
        }
        self._since[job["metadata"]["uid"]] = time.monotonic()
        self._cluster.create("pods", key[1], pod)

    def _judge(self, key: Key, job: Object, pods: Mapping[Key, Object]) -> None:
        phases = {pod["status"].get("phase") for pod in pods.values()}
        limit = job["spec"].get("activeDeadlineSeconds")
        if limit is not None and time.monotonic() > self._since[job["metadata"]["uid"]] + limit:
            self._conclude(key, job, "Failed", "DeadlineExceeded")
            for each in pods:
                end_later(self._cluster, each, 30)
        elif "Failed" in phases:
            self._conclude(key, job, "Failed", "BackoffLimitExceeded")
        elif "Succeeded" in phases:
            self._conclude(key, job, "Complete", "CompletionsReached")

    def _conclude(self, key: Key, job: Object, kind: str, reason: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": reason}
        status = {"conditions": [condition], "succeeded": int(kind == "Complete")}
        self._cluster.write("MODIFIED", key, {**job, "status": status})


async def read_log(cluster: Objects, namespace: str, pod: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The log of a pod, from its node."""
    port = cluster.objects["nodes", "", "node"]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    url = f"https://127.0.0.1:{port}/containerLogs/{namespace}/{pod}/main"
    # The node has a certificate of its own, as kubelets often do.
    client = httpx.AsyncClient(verify=False, timeout=None, trust_env=False)
    async with client, client.stream("GET", url, params=dict(query)) as answer:
        async for part in answer.aiter_bytes():
            yield part
