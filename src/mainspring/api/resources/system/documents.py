"""The OpenAPI document, and a page of it for people that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any

import msgspec

from mainspring.api.endpoint import AUTHENTICATED, PUBLIC, Endpoint, Request, Response
from mainspring.api.openapi import Document, describe_api

HTML = "text/html; charset=utf-8"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:13px/1.4 ui-monospace,monospace;background:#8881;padding:.1em .3em;border-radius:3px}"
    "pre{padding:.7em;overflow:auto}summary{cursor:pointer;padding:.3em 0}"
    "summary b{display:inline-block;min-width:4.5em}"
    ".must{font-size:80%;color:#b33}th{text-align:left;font-weight:normal;opacity:.6}"
    "table{border-collapse:collapse}td{border-top:1px solid #8884;padding:.2em .8em .2em 0;vertical-align:top}"
    ":root{color-scheme:light dark}"
)


class _Documents:
    """What is served, described once it is asked for."""

    def __init__(self, others: Sequence[Endpoint]) -> None:
        self.endpoints = (
            *others,
            Endpoint(
                "GET", "/openapi.json", self.get_openapi, AUTHENTICATED, "The OpenAPI document.", {200: dict[str, Any]}
            ),
            Endpoint("GET", "/docs", self.get_docs, PUBLIC, "This API for people.", {200: HTML}),
            Endpoint("GET", "/", self.get_landing, PUBLIC, "Where to go from here.", {200: HTML}),
        )

    async def get_openapi(self, request: Request) -> Response:
        """What is served, in OpenAPI 3.1."""
        return Response(200, self._encoded)

    async def get_docs(self, request: Request) -> Response:
        """The same for people. It is the same on every server, so it needs no token."""
        return Response(200, self._page, {"Content-Security-Policy": _POLICY}, HTML)

    async def get_landing(self, request: Request) -> Response:
        """Leads browsers to the web UI, and everything else to the documentation."""
        if request.context.settings.ui and "text/html" in request.headers.get("accept", ""):
            return Response(303, headers={"Location": f"{request.context.settings.base_path}/ui/"})
        return Response(200, _LANDING, {"Content-Security-Policy": _POLICY}, HTML)

    @cached_property
    def _described(self) -> Document:
        return describe_api(self.endpoints)

    @cached_property
    def _encoded(self) -> bytes:
        return msgspec.json.encode(self._described)

    @cached_property
    def _page(self) -> bytes:
        return _page(self._described)


def with_documents(others: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Endpoints, and those that describe all of them."""
    return _Documents(others).endpoints


_LANDING = (
    f"<!doctype html><meta charset=utf-8><title>Mainspring</title><style>{_STYLE}</style><h1>Mainspring</h1>"
    "<p>This is the API of a job scheduler. <a href=/docs>What it serves</a>, also as "
    "<a href=/openapi.json>OpenAPI</a>. "
    "<a href=/health/ready>Whether it is ready</a>."
    "<p>With a secret, requests need a token: <code>mainspring token create --role viewer</code>, then "
    "<code>curl -H &quot;Authorization: Bearer $TOKEN&quot; …/v1/jobs</code>."
).encode()


def _page(document: Document) -> bytes:
    schemas = document["components"]["schemas"]
    parts = [
        "<!doctype html><meta charset=utf-8><title>Mainspring API</title>",
        f"<style>{_STYLE}</style><h1>Mainspring API</h1>",
        *(f"<p>{_text(text)}" for text in document["info"]["description"].split("\n\n")),
        "<p>Fields marked <b class=must>required</b> must be given.",
    ]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation, schemas))
    for tag, described in by_tag.items():
        parts += [f"<h2>{escape(tag)}</h2>", *described]
    return "".join(parts).encode()


def _text(text: str) -> str:
    """Prose as HTML: what is between backticks is code."""
    pieces = text.split("`")
    return "".join(f"<code>{escape(each)}</code>" if n % 2 else escape(each) for n, each in enumerate(pieces))


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> ",
        f"{escape(operation['summary'])}</summary>",
        f"<p>{_text(operation['description'])}",
    ]
    rows = [
        _row(
            each["name"], each["in"], each["schema"], each.get("required", False), each.get("description", ""), schemas
        )
        for each in operation.get("parameters", ())
    ]
    example: object = None
    for content in operation.get("requestBody", {}).get("content", {}).values():
        example = content.get("example")
        named = content["schema"].get("allOf", [content["schema"]])[0]
        shape = schemas[named["$ref"].rpartition("/")[2]]
        must = set(shape.get("required", ()))
        rows += [_row(name, "body", kind, name in must, "", schemas) for name, kind in shape["properties"].items()]
    parts.append(f"<pre>{escape(_curl(method, path, operation, example))}</pre>")
    if rows:
        head = "<tr><th>name<th>in<th>type<th>"
        parts.append(f"<table>{head}{''.join(rows)}</table>")
    answers = ", ".join(f"<code>{status}</code>" for status in operation["responses"])
    return "".join([*parts, f"<p>Answers: {answers}</details>"])


def _curl(method: str, path: str, operation: dict[str, Any], example: object) -> str:
    """A request that can be typed, once the parts in braces are filled in."""
    words = ["curl"]
    if operation.get("security") != []:
        words.append('-H "Authorization: Bearer $TOKEN"')
    if method != "get" and not (method == "post" and example is not None):
        words.append(f"-X {method.upper()}")
    if example is not None:
        body = msgspec.json.encode(example).decode().replace("'", "'\\''")
        words.append(f"-H 'Content-Type: application/json' -d '{body}'")
    return " ".join([*words, f'"$SERVER{path}"'])


def _row(name: str, place: str, kind: dict[str, Any], must: bool, about: str, schemas: dict[str, Any]) -> str:
    mark = " <b class=must>required</b>" if must else ""
    meaning = _text(about or _about(kind))
    return (
        f"<tr><td><code>{escape(name)}</code>{mark}<td>{escape(place)}<td>{escape(_type(kind, schemas))}<td>{meaning}"
    )


def _type(kind: dict[str, Any], schemas: dict[str, Any]) -> str:
    """What values of a schema are, in a few words."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return "object" if schemas.get(name, {}).get("type") == "object" else _type(schemas.get(name, {}), schemas)
    if "anyOf" in kind:
        found = [_type(each, schemas) for each in kind["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(found))
    if "enum" in kind:
        return "one of " + ", ".join(str(each) for each in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {_type(kind.get('items', {}), schemas)}"
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(
        str(kind.get("type")), str(kind.get("type", "any"))
    )


def _about(kind: dict[str, Any]) -> str:
    found = (str(each["description"]) for each in (kind, *kind.get("anyOf", ())) if "description" in each)
    return next(found, "")
