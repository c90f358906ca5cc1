"""The time from `kubectl apply` to the first run of a job: `python -m bench.operations.applying [--rounds 5]`

It needs kubectl, the programs that `make kubernetes` builds, and the PostgreSQL of `make services`. The overlay `dev`,
with three servers, is applied to a namespace of its own and an empty database, in each round. The job fires every
second. The time ends at the first line of its function, so it contains the scheduling of the pods, the start of their
processes, the migration of the database, the election by a Lease, and up to a second until the job is due. Pods are
processes of a test node: no image is pulled. A round takes about 15 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from bench.harness.running import Failed
from bench.operations.containers import running_cluster
from examples.running import ROOT, new_database
from tests.servers.kubernetes import fit_for_one_host

OVERLAY = ROOT / "deploy" / "kubernetes" / "overlays" / "dev"
PATIENCE_S = 180.0
LIMIT_S = 60.0
APP = """
import time

from mainspring import Mainspring, every

app = Mainspring(name="applying")


@app.job(every("1s"))
async def tick() -> None:
    with open({notes!r}, "a") as notes:
        notes.write(f"{{time.time()}}\\n")
"""


def call_kubectl(*words: str, given: str | None = None) -> str:
    """What kubectl prints."""
    argv, limit_s = ["kubectl", *words], PATIENCE_S + LIMIT_S
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False, timeout=limit_s)
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)}: {done.stderr}")
    return done.stdout


def render(namespace: str, app: Path, store: str) -> str:
    """The overlay in another namespace, with the app and the store of a round."""
    text = call_kubectl("kustomize", str(OVERLAY)).replace("mainspring-dev", namespace)
    objects: list[dict[str, Any]] = [fit_for_one_host(each, app, store) for each in yaml.safe_load_all(text) if each]
    objects.sort(key=lambda each: each["kind"] != "Namespace")
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def await_first(notes: Path) -> float:
    """When the job ran first."""
    deadline = time.monotonic() + PATIENCE_S
    while "\n" not in (text := notes.read_text()):
        if time.monotonic() > deadline:
            raise Failed(f"the job did not run within {PATIENCE_S:g} s")
        time.sleep(0.05)
    return float(text.splitlines()[0])


async def play(home: Path, config: Path, number: int) -> tuple[float, float]:
    """Seconds until kubectl has returned, and until the job has run."""
    namespace, notes, app = f"round-{number}", home / f"notes-{number}", home / f"app_{number}.py"
    notes.touch()
    app.write_text(APP.format(notes=str(notes)))
    access = ("--kubeconfig", str(config))
    async with new_database() as store:
        objects = render(namespace, app, store)
        began = time.time()
        try:
            call_kubectl(*access, "apply", "-f", "-", given=objects)
            applied = time.time()
            return applied - began, await_first(notes) - began
        finally:
            call_kubectl(*access, "delete", "namespace", namespace, f"--timeout={PATIENCE_S:.0f}s")


def main() -> None:
    """Start a cluster, measure, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with running_cluster() as config:
        taken = [asyncio.run(play(config.parent, config, number)) for number in range(rounds)]
    for name, seconds in zip(("kubectl apply returned", "the job ran"), zip(*taken, strict=True), strict=True):
        each = " ".join(f"{value:.2f}" for value in sorted(seconds))
        print(f"{name}: median {median(seconds):.2f} s ({each})")


if __name__ == "__main__":
    main()
