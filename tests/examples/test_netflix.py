"""The encodings of examples/netflix: one accepted output per resolution, in order by video, whichever worker dies."""

import os
from pathlib import Path

import pytest

from examples.netflix.app import PRIORITIES
from examples.netflix.encoder import encode
from examples.netflix.scenario import BROKEN, MOST_WORKERS, STALLED, VIDEOS, play, play_scaled
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.load.scaling import ScalingPolicy
from mainspring.ops.scaling.simulation import BURST_FROM, BURST_UNTIL, STEP, Day, simulate_day


@pytest.mark.brokers
async def test_each_resolution_is_accepted_once_in_order_though_workers_stall_and_die(tmp_path: Path) -> None:
    outcome = await play(tmp_path)
    assert outcome.verdict.ok, str(outcome.verdict)
    assert {2, 3, 4, 5, 6, 7, 8, 9, 19, 22} <= set(outcome.verdict.judged)
    videos = [STALLED, *(f"v{number}" for number in range(VIDEOS))]
    assert outcome.outputs == {video: list(PRIORITIES) for video in videos}
    assert outcome.accepted == {(video, resolution): 1 for video in videos for resolution in PRIORITIES}
    assert (STALLED, "4K") in outcome.refused, "the stalled worker was overtaken, and its output came too late"
    assert outcome.unfinished >= 1, "the killed worker was in the middle of an encoding"
    assert outcome.wasted == 0, "nothing else was encoded twice"
    assert len(outcome.pages) == len(PRIORITIES), f"each resolution of {BROKEN} was reported"
    assert set(outcome.pages) <= {4, 5}, "four attempts, and at most one that died with its worker"
    assert outcome.dead_letters == len(PRIORITIES)
    assert outcome.repeated, "a repeated upload answers the runs of the first"


@pytest.mark.brokers
async def test_real_workers_come_and_go_with_the_load(tmp_path: Path) -> None:
    scaled = await play_scaled(tmp_path)
    assert (scaled.most, scaled.left) == (MOST_WORKERS, 1)
    assert scaled.outputs == {f"v{number}": list(PRIORITIES) for number in range(VIDEOS)}


FFMPEG = """#!/bin/sh
for word; do target=$word; done
case $target in *torn*) echo half > "$target"; echo "moov atom not found" >&2; exit 1;; esac
echo "$*" > "$target"
"""


async def test_files_are_encoded_by_ffmpeg_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This stands for the program: it writes its arguments into the file that it was asked for."""
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(FFMPEG)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder = tmp_path / "videos"
    folder.mkdir()
    assert await encode(f"file:{folder}/raw.mov", "1080p") == f"file:{folder}/raw.1080p.mp4"
    part = folder / f"raw.1080p.{os.getpid()}.mp4"
    expected = f"-loglevel error -y -i {folder}/raw.mov -vf scale=-2:1080 {part}\n"
    assert (folder / "raw.1080p.mp4").read_text() == expected
    with pytest.raises(ValueError, match=r"torn.mov cannot be encoded: moov atom not found"):
        await encode(f"file:{folder}/torn.mov", "720p")
    assert [path.name for path in folder.iterdir()] == ["raw.1080p.mp4"], "no half of a file is left"


def test_ten_million_encodings_a_day_are_scaled_by_lag_from_ten_to_a_hundred_workers() -> None:
    as_in_the_source = list(simulate_day(ScalingPolicy(minimum=10, maximum=100), Day()))
    assert sum(each.arrivals_per_s * STEP / SECOND for each in as_in_the_source) > 10_000_000
    assert (min(each.workers for each in as_in_the_source), max(each.workers for each in as_in_the_source)) == (10, 100)
    assert {each.depth for each in as_in_the_source if not BURST_FROM <= each.at < BURST_UNTIL} == {0}
    quicker = ScalingPolicy(minimum=20, maximum=100, up_window=5 * SECOND, up_percent=400)
    assert max(each.oldest_due for each in simulate_day(quicker, Day())) < MINUTE
