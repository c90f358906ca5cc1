"""`scripts/services`: a server whose port another program has taken starts on another one."""

import os
import socket
import subprocess
from pathlib import Path

from mainspring.testing.servers.process import free_port

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "services"


def test_a_server_that_finds_its_port_taken_starts_on_another(tmp_path: Path) -> None:
    folder, port = tmp_path / "services", free_port()
    (folder / "etcd").mkdir(parents=True)
    (folder / "etcd" / "port").write_text(str(port))
    with socket.create_server(("127.0.0.1", port)):
        try:
            started = call(folder, "start")
            assert started.returncode == 0, started.stderr
            assert "starting etcd again, on other ports" in started.stderr
            chosen = int((folder / "etcd" / "port").read_text())
            assert chosen != port
            assert f"ETCD at etcd://127.0.0.1:{chosen}" in started.stderr
        finally:
            call(folder, "stop")


def test_a_server_that_has_answered_before_keeps_its_port_and_its_data(tmp_path: Path) -> None:
    folder = tmp_path / "services"
    assert call(folder, "start").returncode == 0
    call(folder, "stop")
    kept = folder / "etcd" / "data"
    assert kept.is_dir()
    with socket.create_server(("127.0.0.1", int((folder / "etcd" / "port").read_text()))):
        refused = call(folder, "start")
    call(folder, "stop")
    assert refused.returncode != 0
    assert "etcd ended before it answered" in refused.stderr
    assert kept.is_dir()


def call(folder: Path, verb: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MAINSPRING_SERVICES": str(folder)}
    return subprocess.run([SCRIPT, verb, "etcd"], env=environ, capture_output=True, text=True, timeout=120, check=False)
