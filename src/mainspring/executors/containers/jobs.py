"""One Job of Kubernetes per run: made, adopted from an earlier worker, deleted.

The Job's name is that of the run, so the API server itself refuses a second one, also if a worker that was paused asks
for it late. The label with the token says which claim the Job belongs to. A worker that finds the Job of a lost or
stopped worker writes its own token there, by `resourceVersion`, and so of two workers only one adopts it. A worker
whose token is older lets go of the Job, and never deletes it.

A run can end while no worker has it: cancelled, expired, or lost too often. `LeftJobs` finds its Job.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final

from mainspring.core.instants import SECOND
from mainspring.core.tasks.containers import ContainerSpec, Manifest, write_container, write_placement
from mainspring.drivers.kubernetes.client import CONFLICT, FORBIDDEN, NOT_FOUND, KubernetesLink, KubernetesRefused
from mainspring.errors import LeaseUnavailable
from mainspring.executor import AttemptContext, Leftover
from mainspring.executors.containers.request import environment_of, name_of, retries_of

RUN: Final = "mainspring/run"
TOKEN: Final = "mainspring/token"
RETRIES: Final = "mainspring/retries"
JOB: Final = "mainspring/job"
OWN: Final = {"app.kubernetes.io/managed-by": "mainspring"}
KEEP_S: Final = 3600
"""How long Kubernetes keeps a finished Job whose run says nothing else. While it is there, no late request of a worker
that was paused can start the container again."""
GRACE_S: Final = 10
"""How long a container that is asked to end may take before it is killed."""
SPARE_S: Final = 2
"""Added to the deadline that Kubernetes keeps, which counts whole seconds from a time that it rounds down: the worker's
comes first, and that of Kubernetes ends the container of a lost worker."""
LOOK_S: Final = 0.2
PAGE: Final = 500
"""Jobs in one answer of a list."""
VANISH_S: Final = 60.0
"""A Job is deleted with its pods. One that is still there after this long needs a person: its node may be lost."""


RESTRICTED: Final[Manifest] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What a namespace that enforces the pod security standard `restricted` requires of each container."""


class NotOurs(Exception):
    """The Job belongs to a later claim of the run."""


def write_job(attempt: AttemptContext, spec: ContainerSpec, *, restricted: bool = False) -> Manifest:
    """The Job of an attempt. Its retries are ours, so it makes one pod."""
    claim, deadline = attempt.claim, attempt.deadline
    labels = {**OWN, RUN: claim.run_id, TOKEN: str(claim.token)}
    notes = {RETRIES: str(retries_of(attempt)), **({} if claim.job is None else {JOB: claim.job})}
    container = write_container(spec, environment_of(attempt))
    if restricted:
        container["securityContext"] = RESTRICTED
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        **write_placement(spec),
    }
    work: Manifest = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": KEEP_S if spec.ttl_after_finished is None else spec.ttl_after_finished,
        "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": pod},
    }
    if deadline is not None:
        work["activeDeadlineSeconds"] = math.ceil((deadline - attempt.started_at) / SECOND) + SPARE_S
    metadata = {"name": name_of(attempt), "labels": labels, "annotations": notes}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": work}


class RunJob:
    """The Job of one run, as the worker with this token sees it."""

    def __init__(self, link: KubernetesLink, namespace: str, manifest: Manifest) -> None:
        self._link = link
        self._manifest = manifest
        self._path = _path_of(namespace)
        self.name: str = manifest["metadata"]["name"]
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        """The path of the namespace's pods."""
        self._token = int(manifest["metadata"]["labels"][TOKEN])

    async def start(self) -> bool:
        """Create the Job, or adopt the one that an earlier worker of the same attempt left; True if adopted. A Job of
        an attempt that has failed is deleted first. NotOurs if a later claim has one."""
        ends = asyncio.get_running_loop().time() + VANISH_S
        while True:
            try:
                await self._link.request("POST", self._path, self._manifest)
                return False
            except KubernetesRefused as refusal:
                if refusal.status != CONFLICT:
                    raise
            found = await self.find()
            if found is not None and await self._adopt(found):
                return True
            if asyncio.get_running_loop().time() >= ends:
                raise LeaseUnavailable(
                    f"the Job {self.name} of an earlier attempt is still being deleted: see why its pod does not end"
                )
            await asyncio.sleep(LOOK_S)

    async def _adopt(self, found: Manifest) -> bool:
        metadata = found["metadata"]
        token = metadata.get("labels", {}).get(TOKEN, "")
        if not token.isdecimal() or int(token) > self._token:
            raise NotOurs(f"the Job {self.name} belongs to another claim ({token or 'without a token'})")
        if metadata.get("deletionTimestamp") is not None:
            return False
        if metadata["annotations"].get(RETRIES) != self._manifest["metadata"]["annotations"][RETRIES]:
            await _delete(self._link, self._path, found)
            return False
        metadata["labels"][TOKEN] = str(self._token)
        try:
            await self._link.request("PUT", f"{self._path}/{self.name}", found)
        except KubernetesRefused as refusal:
            if refusal.status not in (CONFLICT, NOT_FOUND):
                raise
            return False  # It has changed meanwhile: look again.
        return True

    async def find(self) -> Manifest | None:
        """The Job as it is; None if there is none."""
        try:
            return await self._link.request("GET", f"{self._path}/{self.name}")
        except KubernetesRefused as refusal:
            if refusal.status != NOT_FOUND:
                raise
            return None

    async def end(self, within_s: float) -> None:
        """Delete the Job with its pod, if it is of this token, and wait until both are gone. TimeoutError if they are
        not within the time."""
        async with asyncio.timeout(within_s):
            while (found := await self._find_again()) is not None:
                if found["metadata"].get("deletionTimestamp") is None:
                    token = found["metadata"].get("labels", {}).get(TOKEN)
                    if token != str(self._token):
                        return
                    await _delete(self._link, self._path, found)
                await asyncio.sleep(LOOK_S)

    async def _find_again(self) -> Manifest | None:
        """The Job, once the API server answers. KubernetesRefused without the right to see it."""
        while True:
            try:
                return await self.find()
            except LeaseUnavailable as error:
                if isinstance(error, KubernetesRefused) and error.status in FORBIDDEN:
                    raise
                await asyncio.sleep(LOOK_S)


class LeftJobs:
    """The unfinished Jobs of runs in some namespaces, whichever worker started them."""

    def __init__(self, link: KubernetesLink, namespaces: Sequence[str], place: str) -> None:
        self._link = link
        self._namespaces = namespaces
        self.place = place

    async def find(self) -> list[Leftover]:
        """All of them. The handle has the version of the Job: one that a worker adopts has another."""
        found = []
        for namespace in self._namespaces:
            for each in await self._list(namespace):
                labels, metadata = each["metadata"].get("labels", {}), each["metadata"]
                ended = _ended(each) or metadata.get("deletionTimestamp") is not None
                if RUN in labels and not ended:
                    handle = f"{namespace}/{metadata['name']}/{metadata['resourceVersion']}"
                    found.append(Leftover(labels[RUN], handle))
        return found

    async def _list(self, namespace: str) -> list[Manifest]:
        [(name, value)] = OWN.items()
        query = {"labelSelector": f"{name}={value}", "fieldSelector": "status.successful=0", "limit": str(PAGE)}
        jobs: list[Manifest] = []
        while True:
            listed = await self._link.request("GET", _path_of(namespace), None, **query)
            jobs += listed["items"]
            query["continue"] = listed["metadata"].get("continue", "")
            if not query["continue"]:
                return jobs

    async def end(self, leftover: Leftover) -> bool:
        """Delete the Job with its pod, if it is still as it was found."""
        namespace, name, version = leftover.handle.split("/")
        found = {"metadata": {"name": name, "resourceVersion": version}}
        return await _delete(self._link, _path_of(namespace), found)


def _path_of(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


async def _delete(link: KubernetesLink, path: str, found: Manifest) -> bool:
    """Delete a Job as it was found; False if it has changed since, or is gone. In the foreground: the name stays taken
    until the pod is gone, so no second one can be beside it."""
    version = found["metadata"]["resourceVersion"]
    options = {"propagationPolicy": "Foreground", "preconditions": {"resourceVersion": version}}
    try:
        await link.request("DELETE", f"{path}/{found['metadata']['name']}", options)
    except KubernetesRefused as refusal:
        if refusal.status not in (CONFLICT, NOT_FOUND):
            raise
        return False
    return True


def _ended(job: Manifest) -> bool:
    conditions: list[dict[str, Any]] = job.get("status", {}).get("conditions") or []
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def failure_of(job: Manifest) -> tuple[str, str] | None:
    """Why a Job has failed: reason and message; None if it has not."""
    conditions: list[dict[str, Any]] = job.get("status", {}).get("conditions") or []
    for each in conditions:
        # FailureTarget: it fails once its pod has ended.
        if each["type"] in ("Failed", "FailureTarget") and each["status"] == "True":
            return each.get("reason", ""), each.get("message", "")
    return None
