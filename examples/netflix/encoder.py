"""The encoding engine: ffmpeg where it is installed, otherwise a stand-in that uses CPU as the resolution asks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

HEIGHTS = {"4K": 2160, "1080p": 1080, "720p": 720, "480p": 480}
WORK = int(os.environ.get("ENCODER_WORK", "100"))
"""Rounds of the stand-in for each line of the picture: 100 take about 0.1 s for 4K."""
BROKEN = "broken"
"""A source with this word in its URL cannot be decoded."""
STALL = os.environ.get("ENCODER_STALL", "")
"""A file. The encoder that can remove it stands still before it answers, as a suspended machine does."""


async def encode(url: str, resolution: str) -> str:
    """Encode a source, and return the URL of the result. ValueError if the source cannot be decoded."""
    if BROKEN in url:
        raise ValueError(f"{url} cannot be decoded: it is no video")
    program = shutil.which("ffmpeg")
    if program is not None and url.startswith("file:"):
        return await _ffmpeg(program, Path(url.removeprefix("file:")), resolution)
    rounds = HEIGHTS[resolution] * WORK
    digest = await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", url.encode(), resolution.encode(), rounds)
    if STALL:
        _stall_once(Path(STALL))
    return f"s3://encoded/{digest.hex()[:16]}/{resolution}.mp4"


def _stall_once(mark: Path) -> None:
    with suppress(FileNotFoundError):
        mark.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


async def _ffmpeg(program: str, source: Path, resolution: str) -> str:
    """Encode into a file of this process, and rename it: a worker that was overtaken cannot tear an accepted file."""
    target = source.with_suffix(f".{resolution}.mp4")
    part = source.with_suffix(f".{resolution}.{os.getpid()}.mp4")
    words = ("-loglevel", "error", "-y", "-i", source, "-vf", f"scale=-2:{HEIGHTS[resolution]}", part)
    process = await asyncio.create_subprocess_exec(program, *words, stderr=asyncio.subprocess.PIPE)
    try:
        _, complaint = await process.communicate()
        if process.returncode:
            raise ValueError(f"{source} cannot be encoded: {complaint.decode(errors='replace')[-300:]}")
        part.replace(target)
    except asyncio.CancelledError:
        process.kill()
        raise
    finally:
        part.unlink(missing_ok=True)
    return f"file:{target}"
