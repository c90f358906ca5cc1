"""A real Prometheus with our rules, which scrapes one server."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from mainspring.testing.servers.process import free_port

RULES: Final = Path(__file__).parent.parent / "deploy" / "prometheus"
READY_S: Final = 60.0


@contextmanager
def running_prometheus(folder: Path, target: str) -> Iterator[str]:
    """The address of a Prometheus that scrapes a target each second, with all rules of deploy/prometheus."""
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is not installed: make services"
    port = free_port()
    rules = ", ".join(str(RULES / f"{name}.rules.yml") for name in ("recording", "alerts", "sources"))
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules}]\nscrape_configs:\n"
        f"  - job_name: mainspring\n    static_configs: [{{targets: ['{target.removeprefix('http://')}']}}]\n"
    )
    options = ["--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.path=data"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *options], cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_S
        while not answers(f"http://127.0.0.1:{port}/-/ready"):
            assert time.monotonic() < deadline, (folder / "prometheus.log").read_text()[-2_000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    """Whether a URL answers 200."""
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False
