"""The whole program on PostgreSQL, as its user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidInput
from mainspring.stores.sql import load_migrations

LATEST = load_migrations("postgres")[-1].version

APP = """
from mainspring import Mainspring, every

app = Mainspring(name="films")

@app.task
def encode(video: str) -> str:
    return f"{video} in HD"

@app.job(every("1s"))
async def beat() -> None: ...
"""


class Program:
    """`mainspring` in a folder of its own, which finds its store in the environment."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = os.environ | {"MAINSPRING_STORE": url, "NO_COLOR": "1"}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mainspring", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def json(self, *words: str) -> dict[str, object]:
        answer = self(*words, "--json")
        assert answer.returncode == 0, answer.stderr
        found: dict[str, object] = json.loads(answer.stdout)
        return found


@pytest.fixture
def program(tmp_path: Path, new_database: str) -> Program:
    (tmp_path / "films.py").write_text(APP)
    return Program(tmp_path, new_database)


def test_a_database_is_looked_at_migrated_and_used(program: Program) -> None:
    assert program.json("db", "status")["exists"] is False
    refused = program("job", "list")
    assert (refused.returncode, "mainspring db migrate" in refused.stderr) == (1, True)
    assert program.json("db", "migrate") | {"store": "", "path": ""} == {
        "store": "",
        "path": "",
        "from_version": 0,
        "version": LATEST,
    }
    assert "up to date" in program("db", "migrate").stdout
    submitted = program.json("run", "submit", "encode", "--arg", "video=v1")
    ran = program("up", "films.py", "--for", "6s", "--no-api")
    assert ran.returncode == 0, ran.stderr
    assert program.json("run", "show", str(submitted["run_id"]))["state"] == "succeeded"
    status = program.json("db", "status")
    assert (status["version"], status["usable"], status["jobs"]) == (LATEST, True, 1)
    runs = status["runs"]
    assert isinstance(runs, dict)
    assert runs["succeeded"] > 1
    assert "mainspring:mainspring" not in ran.stdout + ran.stderr + str(status)


def test_trouble_is_reported_in_one_line_without_the_password(program: Program) -> None:
    program.environment["MAINSPRING_STORE"] = "postgresql://somebody:hunter2@127.0.0.1:1/x"
    for words in (("job", "list"), ("db", "status"), ("db", "migrate"), ("up", "--for", "1s", "--no-api")):
        answer = program(*words)
        assert answer.returncode == 1
        assert "is PostgreSQL running there?" in answer.stderr
        assert "hunter2" not in answer.stdout + answer.stderr
        assert "Traceback" not in answer.stderr


async def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.adapter.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'mainspring\[postgres\]'"):
        await Mainspring("postgresql://localhost/x").open()
