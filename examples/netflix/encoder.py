"""The encoding engine: ffmpeg where it is installed, otherwise a stand-in that uses CPU as the resolution asks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from pathlib import Path

HEIGHTS = {"4K": 2160, "1080p": 1080, "720p": 720, "480p": 480}
WORK = int(os.environ.get("ENCODER_WORK", "100"))
"""Rounds of the stand-in for each line of the picture: 100 take about 0.1 s for 4K."""
BROKEN = "broken"
"""A source with this word in its URL cannot be decoded."""


async def encode(url: str, resolution: str) -> str:
    """Encode a source, and return the URL of the result. ValueError if the source cannot be decoded."""
    if BROKEN in url:
        raise ValueError(f"{url} cannot be decoded: it is no video")
    program = shutil.which("ffmpeg")
    if program is not None and url.startswith("file:"):
        return await _ffmpeg(program, Path(url.removeprefix("file:")), resolution)
    rounds = HEIGHTS[resolution] * WORK
    digest = await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", url.encode(), resolution.encode(), rounds)
    return f"s3://encoded/{digest.hex()[:16]}/{resolution}.mp4"


async def _ffmpeg(program: str, source: Path, resolution: str) -> str:
    target = source.with_suffix(f".{resolution}.mp4")
    words = ("-loglevel", "error", "-y", "-i", source, "-vf", f"scale=-2:{HEIGHTS[resolution]}", target)
    process = await asyncio.create_subprocess_exec(program, *words, stderr=asyncio.subprocess.PIPE)
    try:
        _, complaint = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode:
        raise ValueError(f"{source} cannot be encoded: {complaint.decode(errors='replace')[-300:]}")
    return f"file:{target}"
