"""The OpenAPI document, made of the table of endpoints: what is not in the table is not served, and the reverse."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mainspring.api.endpoint import JSON, PUBLIC, Endpoint
from mainspring.api.problems import MEDIA_TYPE, PREFIX, TITLES
from mainspring.operations.problems import Problem
from mainspring.version import VERSION

_REF = "#/components/schemas/{name}"
Document = dict[str, Any]

_ABOUT = """Jobs, their firings and runs over HTTP.

Every refusal is a problem document (RFC 9457) whose `type` never changes; `errors` names all wrong fields at once.
Every POST takes an `Idempotency-Key`. Tokens are JWTs: `mainspring token create` makes them.
The header `Mainspring-Namespace` chooses one of the namespaces that a token is for."""


def describe_api(endpoints: Sequence[Endpoint]) -> Document:
    """The whole document."""
    kinds = [*_kinds(endpoints), Problem]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    of = {str(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Document] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainspring", "version": VERSION, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
        "security": [{"token": []}],
    }


def _kinds(endpoints: Sequence[Endpoint]) -> list[Any]:
    found: dict[str, Any] = {}
    for endpoint in endpoints:
        for kind in (endpoint.body, endpoint.query, *endpoint.answers.values()):
            if kind is not None and not isinstance(kind, str):
                found.setdefault(str(kind), kind)
    return list(found.values())


def _operation(endpoint: Endpoint, of: dict[str, Document]) -> Document:
    responses = {str(status): _success(endpoint, kind, of) for status, kind in endpoint.answers.items()}
    responses |= {str(status): _refusal(status, of) for status in _refusals(endpoint)}
    note = {"public": "Needs no token.", "authenticated": "Needs a token, whatever it allows."}
    needs = note.get(endpoint.permission, f"Needs the permission `{endpoint.permission}`.")
    described = " ".join(filter(None, (inspect.getdoc(endpoint.act), endpoint.description, needs)))
    operation: Document = {
        "operationId": endpoint.operation_id,
        "summary": endpoint.summary,
        "description": described,
        "tags": [_tag(endpoint.path)],
        "responses": dict(sorted(responses.items())),
    }
    if parameters := list(_parameters(endpoint)):
        operation["parameters"] = parameters
    if endpoint.body is not None:
        shape = of[str(endpoint.body)]
        content: Document = {"schema": {"allOf": [shape, endpoint.rule]} if endpoint.rule else shape}
        if endpoint.example is not None:
            content["example"] = endpoint.example
        operation["requestBody"] = {"required": endpoint.needs_body, "content": {JSON: content}}
    if endpoint.permission == PUBLIC:
        operation["security"] = []
    return operation


def _tag(path: str) -> str:
    part = path.removeprefix("/v1").strip("/").split("/")[0].split(":")[0]
    return part if path.startswith("/v1") else "server"


def _success(endpoint: Endpoint, kind: Any, of: dict[str, Document]) -> Document:
    if kind is None:
        return {"description": "Done."}
    if isinstance(kind, str):
        return {"description": endpoint.summary, "content": {kind: {"schema": {"type": "string"}}}}
    content: Document = {JSON: {"schema": of[str(kind)]}}
    if endpoint.path.endswith("/logs") and endpoint.method == "GET":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": endpoint.summary, "content": content}


def _refusals(endpoint: Endpoint) -> set[int]:
    found = {400, 503, *endpoint.problems}
    if endpoint.permission != PUBLIC:
        found |= {401, 403, 422}
        if endpoint.method == "GET" and not endpoint.vital:
            found.add(429)
    if "{" in endpoint.path:
        found.add(404)
    if endpoint.body is not None:
        found |= {408, 413, 415, 422}
    if endpoint.method == "POST":
        found.add(409)
    return found


def _refusal(status: int, of: dict[str, Document]) -> Document:
    kinds = [f"`{PREFIX}{kind}`" for kind, (found, _) in TITLES.items() if found == status]
    schema = of[str(Problem)]
    return {"description": "Refused: " + ", ".join(kinds), "content": {MEDIA_TYPE: {"schema": schema}}}


def _parameters(endpoint: Endpoint) -> Iterable[Document]:
    for name in re.findall(r"\{(\w+)\}", endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    if endpoint.query is not None:
        schema, components = msgspec.json.schema_components([endpoint.query], ref_template=_REF)
        found = components[schema[0]["$ref"].rpartition("/")[2]]
        for name, kind in found["properties"].items():
            plain = {key: value for key, value in kind.items() if key not in ("default",)}
            needed = name in found.get("required", ())
            parameter = {"name": name, "in": "query", "required": needed, "schema": plain}
            if plain.get("type") == "array":
                parameter |= {"style": "form", "explode": False}
            yield parameter
    if endpoint.permission != PUBLIC:
        yield _header("Mainspring-Namespace", "one of the namespaces that the token is for")
    if endpoint.method == "POST":
        yield _header("Idempotency-Key", "repeated with the same key and body, the request is answered as before")
    if endpoint.method in ("PUT", "PATCH", "DELETE") and endpoint.path == "/v1/jobs/{job_id}":
        yield _header("If-Match", "only if the job still has this ETag", pattern=r'^(\*|"\d+")$')


def _header(name: str, description: str, pattern: str = r"^[!-~]([ -~]*[!-~])?$") -> Document:
    schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
