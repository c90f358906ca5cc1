"""A Flask service that submits: `flask --app flask_service run`, and `mainspring up flask_service.py` beside it."""

from flask import Flask, request

from mainspring import Mainspring
from mainspring.integrations.flask import install

app = Mainspring("sqlite:///service.db", name="videos")


@app.task
def encode(video: str) -> str:
    """The work, in a worker."""
    return f"{video} encoded"


server = Flask(__name__)
install(server, app, url_prefix="/runs")


@server.post("/videos")
def submit() -> tuple[dict[str, str], int]:
    """Accept a video. A view cannot await, so it submits by `app.sync`."""
    run = app.sync(encode.submit, video=request.get_json()["video"])
    return {"run_id": run.id}, 202
