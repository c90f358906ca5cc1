"""The peers' virtualenv, made on first use and again when the pinned versions change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.running import PEERS

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
STAMP = PEERS / ".installed"
LIMIT_S = 300


def install() -> None:
    """Make sure that the peers are there, in the versions that are pinned."""
    wanted = REQUIREMENTS.read_text()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    print(f"installing the peers into {PEERS.name} ...", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", PEERS], check=True, timeout=LIMIT_S)
    pip = [str(PEERS / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True, timeout=LIMIT_S)
    STAMP.write_text(wanted)
