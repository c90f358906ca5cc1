"""Flask: views submit by `app.sync`; errors become problem documents, and a blueprint shows runs.

install(server, app)                            # or install(server, app, url_prefix="/runs") with its routes

@server.post("/encode")
def encode_video() -> dict[str, str]:
    return {"run_id": app.sync(encode.submit, video=request.json["video"]).id}
"""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Flask, Response, jsonify

from mainspring.errors import MainspringError
from mainspring.integrations.refusals import refusal_of
from mainspring.sdk.app import Mainspring


def install(server: Flask, app: Mainspring, *, url_prefix: str | None = None) -> None:
    """Let a Flask application use an app: `server.extensions["mainspring"]` is the app.

    With `url_prefix` it also serves `GET PREFIX/RUN` and `POST PREFIX/RUN/cancel`, which ask for no permission.
    Scheduler and workers are other processes: `mainspring up`, `mainspring worker`.
    """
    server.extensions["mainspring"] = app
    server.register_error_handler(MainspringError, _answer)
    if url_prefix is not None:
        server.register_blueprint(_runs(app), url_prefix=url_prefix)


def _answer(error: MainspringError) -> Response:
    refusal = refusal_of(error)
    return Response(refusal.body, refusal.status, refusal.headers, content_type=refusal.media_type)


def _runs(app: Mainspring) -> Blueprint:
    blueprint = Blueprint("mainspring_runs", __name__)

    def show(run_id: str) -> Any:
        return jsonify(msgspec.to_builtins(app.sync(app.runs.get, run_id)))

    def cancel(run_id: str) -> Any:
        return jsonify({"state": app.sync(app.runs.handle(run_id).cancel)})

    blueprint.add_url_rule("/<run_id>", view_func=show)
    blueprint.add_url_rule("/<run_id>/cancel", view_func=cancel, methods=["POST"])
    return blueprint
