"""A FastAPI service that answers at once and works later: `uvicorn examples.fastapi.service:service`.

Scheduler and worker run inside the service, on a file. With `MAINSPRING_STORE=postgresql://…` several servers share
the work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException

from mainspring import Mainspring, Retry, every
from mainspring.errors import NotFound

app = Mainspring("sqlite:///thumbnails.db", name="thumbnails")


@app.task(retry=Retry(3, delay="1s"))
async def make_thumbnail(url: str, width: int) -> str:
    """Make a thumbnail; here, only its name."""
    return f"{url.rsplit('/', 1)[-1]}-{width}.png"


@app.job(every("1h"))
async def delete_old_thumbnails() -> int:
    """What the service does by itself, once an hour, in one of its processes."""
    return 0


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Scheduler and worker live as long as the server."""
    async with app.running():
        yield


service = FastAPI(lifespan=lifespan)


@service.post("/thumbnails", status_code=202)
async def request_thumbnail(
    url: str, width: int = 200, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, str]:
    """Accept a request. A client that repeats it with the same key gets the same run."""
    run = await make_thumbnail.options(idempotency_key=idempotency_key).submit(url, width)
    return {"run": run.id}


@service.get("/thumbnails/{run_id}")
async def show_thumbnail(run_id: str) -> dict[str, Any]:
    """The state of a request and, once it has succeeded, the thumbnail."""
    try:
        run = await app.runs.get(run_id)
    except NotFound as error:
        raise HTTPException(404, str(error)) from error
    return {"state": run.state, "thumbnail": run.result}
