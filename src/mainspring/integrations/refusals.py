"""Errors of Mainspring as answers of a web framework: the same problem documents as the API's."""

from __future__ import annotations

from typing import NamedTuple

from mainspring.api.problems import MEDIA_TYPE, Problem, to_problem
from mainspring.errors import MainspringError


class Refusal(NamedTuple):
    """What a web framework answers instead of a page."""

    status: int
    body: bytes
    headers: dict[str, str]
    media_type: str = MEDIA_TYPE


def refusal_of(error: MainspringError) -> Refusal:
    """The answer to a request in which Mainspring raised an error: 404, 409, 413, 422 or 503."""
    problem = to_problem(error) or Problem("internal", str(error))
    return Refusal(problem.status, problem.document(""), problem.headers)
