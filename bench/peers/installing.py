"""The peers' virtualenvs, each made on first use and again when its pinned versions change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.harness.running import PEERS, Failed

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements"
"""What each of the peers on servers needs, by name; the embedded ones share a file and an environment."""
LIMIT_S = 300


def install(environment: Path = PEERS, requirements: Path = HERE / "requirements.txt") -> None:
    """Make sure that an environment has the versions that are pinned; Failed with the reason where it cannot."""
    stamp, wanted = environment / ".installed", requirements.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {environment.name} ...", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(environment)])
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--requirement", str(requirements)])
    stamp.write_text(wanted)


def _run(command: list[str]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"not installed within {LIMIT_S} s") from None
    if ended.returncode:
        raise Failed("not installed: " + (ended.stderr.strip().splitlines() or ["no reason given"])[-1])
