"""A container run beside a bare Job of Kubernetes, on the same API server.

`python -m bench.operations.containers --runs 20`

It needs the programs that `make kubernetes` builds. Containers are processes of a test node, so both sides start at
once. The difference is what Mainspring adds: the Job by a run's name, its pod followed, its log copied. The two sides
take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from mainspring.core.model import Claim, RunOptions
from mainspring.drivers.kubernetes.client import KubernetesLink
from mainspring.drivers.kubernetes.config import find_access
from mainspring.executor import AttemptContext
from mainspring.executors.containers.kubernetes import KubernetesExecutor
from mainspring.settings import Settings
from tests.servers.kubernetes import KubernetesCluster, KubernetesServer, find_cluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


async def run_bare(link: KubernetesLink, number: int) -> None:
    """What a script would do: create the Job, watch its pod to the end, read its log."""
    name = f"bare-{number}"
    container = {"name": "main", "image": "tools:1", "command": ["echo", "done"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
    made = await link.request("POST", JOBS, job)
    selector = f"batch.kubernetes.io/job-name={name}"
    async for _, found in link.watch(PODS, made["metadata"]["resourceVersion"], labelSelector=selector):
        if found.get("status", {}).get("phase") == "Succeeded":
            path = f"{PODS}/{found['metadata']['name']}/log"
            assert [line async for line in link.read_lines(path, 10.0)] == [b"done"]
            return


async def run_ours(executor: KubernetesExecutor, number: int) -> None:
    """One attempt of the task `container`."""
    args = json.dumps({"image": "tools:1", "command": ["echo", "done"]})
    claim = Claim(f"bench-{number}", 1, "container", args, "{}", 0, 0, 5, 0, "default", None, None, 0, 0)
    attempt, lines = AttemptContext(claim, RunOptions()), []
    attempt.write = lambda _stream, text, _at=None: lines.append(text)
    outcome = await executor.run(attempt)
    assert (outcome.kind, lines) == ("succeeded", ["done"]), outcome


async def measure(runs: int, config: Path) -> dict[str, list[float]]:
    """The seconds of each run, by side."""
    link = KubernetesLink(find_access({"kubeconfig": str(config)}), 10.0)
    executor = KubernetesExecutor(Settings(containers=f"kubernetes://default?kubeconfig={config}"))
    sides: dict[str, Any] = {"bare Job": (run_bare, link), "container run": (run_ours, executor)}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(runs):
        for name, (work, tool) in sides.items():
            began = time.perf_counter()
            await work(tool, number)
            taken[name].append(time.perf_counter() - began)
    await link.close()
    return taken


@contextmanager
def running_cluster() -> Iterator[Path]:
    """A cluster in a folder of its own: the file that says how to reach it."""
    program = find_cluster()
    if program is None:
        raise SystemExit("there is no cluster: `make kubernetes` builds one")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        cluster = KubernetesCluster(home, KubernetesServer(home, program), program)
        try:
            yield cluster.start().server.write_kubeconfig(home / "config")
        finally:
            cluster.stop()


def main() -> None:
    """Start a cluster, measure, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with running_cluster() as config:
        taken = asyncio.run(measure(runs, config))
    for name, seconds in taken.items():
        print(f"{name}: median {median(seconds) * 1000:.0f} ms, worst {max(seconds) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
