"""CronJobs of Kubernetes as jobs, with the fire times by the rules of its controller."""

from __future__ import annotations

from pathlib import Path

from mainspring.core.instants import Instant
from mainspring.errors import InvalidInput
from mainspring.ops.kubernetes.reading import CRONJOB, read_cronjob, read_manifests
from mainspring.ops.kubernetes.shapes import Manifest
from mainspring.ops.migrate.found import Found, left_out
from mainspring.ops.migrate.their_cron import their_fires


def read_cronjobs(path: Path, now: Instant, *, namespace: str) -> list[Found]:
    """The jobs of the CronJobs in a file. Objects of other kinds are left out."""
    return [_read_manifest(manifest, now, namespace) for manifest in read_manifests(path)]


def _read_manifest(manifest: Manifest, now: Instant, namespace: str) -> Found:
    metadata = manifest.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    kind = manifest.get("kind")
    source = f"{kind} {name}"
    if kind != CRONJOB:
        return left_out(source, name, "it is not a CronJob")
    try:
        read = read_cronjob(manifest, namespace, now)
    except InvalidInput as error:
        return left_out(source, name, error)
    fires = their_fires(read.job.trigger, "robfig")
    return Found(source, read.job.name, read.job, "", tuple(read.lost), fires)
