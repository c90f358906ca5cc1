"""Work that goes on until a file says that it may end."""

import asyncio
import os
from pathlib import Path

from mainspring import Mainspring

app = Mainspring(name="pools")
END = Path(os.environ.get("POOL_FOLDER", ".")) / "end"


@app.task
async def hold() -> None:
    while not END.exists():
        await asyncio.sleep(0.02)
