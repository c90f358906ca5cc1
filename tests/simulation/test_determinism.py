"""A seed decides everything: the same one gives the same history, byte for byte."""

import os
import subprocess
import sys

import pytest

_PLAY = """
import sys
from collections import Counter
from mainspring.testing.history import History
from mainspring.testing.simulation import Scenario
from mainspring.testing.simulation.world.world import World
profile, seed = sys.argv[1], int(sys.argv[2])
World(Scenario(seed, profile, 1.5), History(sys.stdout.buffer.write, keep=False), Counter()).turn()
"""


def play(profile: str, seed: int, hash_seed: str) -> bytes:
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PLAY, profile, str(seed)]
    return subprocess.run(command, env=environ, capture_output=True, check=True).stdout


@pytest.mark.parametrize("profile", ["chaos", "herd", "broker"])
def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed(profile: str) -> None:
    first, second = play(profile, 7, "1"), play(profile, 7, "4242")

    assert first == second
    assert first.count(b"\n") > 200


def test_another_seed_gives_another_history() -> None:
    assert play("calm", 1, "0") != play("calm", 2, "0")
