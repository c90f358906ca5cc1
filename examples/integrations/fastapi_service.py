"""A FastAPI service that schedules and works by itself: `uvicorn fastapi_service:server`.

POST /videos answers 202 with the id of a run; GET /runs/ID shows it, and GET /results/ID waits for its result.
"""

from typing import Annotated, Any

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from mainspring import Mainspring, Retry, RunHandle, every
from mainspring.integrations.fastapi import answer_errors, handle_of, lifespan, runs_router

app = Mainspring("sqlite:///service.db", name="videos")


class Video(BaseModel):
    """Arguments may be pydantic models."""

    name: str
    minutes: int


@app.task(retry=Retry(3))
async def encode(video: Video) -> str:
    """The work, on the event loop of the service."""
    return f"{video.name}: {video.minutes} minutes"


@app.job(every("1m"))
async def heartbeat() -> None:
    """A job that fires while the service runs."""


server = FastAPI(lifespan=lifespan(app))
server.include_router(runs_router(app), prefix="/runs")
answer_errors(server)


@server.post("/videos", status_code=202)
async def submit(video: Video) -> dict[str, str]:
    """Accept a video: it is encoded even if this process dies now."""
    run = await encode.submit(video)
    return {"run_id": run.id}


@server.get("/results/{run_id}")
async def result(run: Annotated[RunHandle[Any], Depends(handle_of(app))]) -> dict[str, Any]:
    """Wait for a result, for ten seconds at most."""
    return {"result": await run.result(timeout=10)}
