"""The OpenAPI document, and a page of it for people that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any

import msgspec

from mainspring.api.endpoint import ANYBODY, Answer, Call, Endpoint
from mainspring.api.openapi import Document, describe_api

HTML = "text/html; charset=utf-8"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:13px/1.4 ui-monospace,monospace;background:#8881;padding:.1em .3em;border-radius:3px}"
    "pre{padding:.7em;overflow:auto}summary{cursor:pointer;padding:.3em 0}b{display:inline-block;min-width:4.5em}"
    "table{border-collapse:collapse}td{border-top:1px solid #8884;padding:.2em .8em .2em 0;vertical-align:top}"
    ":root{color-scheme:light dark}"
)


class _Documents:
    """What is served, described once it is asked for."""

    def __init__(self, others: Sequence[Endpoint]) -> None:
        self.endpoints = (
            *others,
            Endpoint("GET", "/openapi.json", self.get_openapi, ANYBODY, "The OpenAPI document.", {200: dict[str, Any]}),
            Endpoint("GET", "/docs", self.get_docs, ANYBODY, "This API for people.", {200: HTML}),
        )

    async def get_openapi(self, call: Call) -> Answer:
        """What is served, in OpenAPI 3.1."""
        return Answer(200, self._encoded)

    async def get_docs(self, call: Call) -> Answer:
        """The same for people."""
        return Answer(200, self._page, {"Content-Security-Policy": _POLICY}, HTML)

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


def _page(document: Document) -> bytes:
    schemas = document["components"]["schemas"]
    parts = [
        "<!doctype html><meta charset=utf-8><title>Mainspring API</title>",
        f"<style>{_STYLE}</style><h1>Mainspring API {escape(document['info']['version'])}</h1>",
        *(f"<p>{escape(text)}" for text in document["info"]["description"].split("\n\n")),
    ]
    tag = ""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                parts.append(f"<h2>{escape(tag)}</h2>")
            parts.append(_operation(method, path, operation, schemas))
    return "".join(parts).encode()


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> ",
        f"{escape(operation['summary'])}</summary>",
        f"<p>{escape(operation['description'])}",
    ]
    rows = [(each["name"], each["in"], each.get("description", "")) for each in operation.get("parameters", ())]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        if "example" in content:
            example = msgspec.json.format(msgspec.json.encode(content["example"]), indent=2).decode()
            parts.append(f"<p>{escape(media)}<pre>{escape(example)}</pre>")
        named = content["schema"].get("allOf", [content["schema"]])[0]
        shape = schemas[named["$ref"].rpartition("/")[2]]
        rows += [(name, "body", _about(kind)) for name, kind in shape["properties"].items()]
    parts.append("<table>" + "".join(_row(*row) for row in rows) + "</table>")
    answers = ", ".join(f"<code>{status}</code>" for status in operation["responses"])
    return "".join([*parts, f"<p>Answers: {answers}</details>"])


def _row(name: str, place: str, about: str) -> str:
    return f"<tr><td><code>{escape(name)}</code><td>{escape(place)}<td>{escape(about)}"


def _about(kind: dict[str, Any]) -> str:
    for each in (kind, *kind.get("anyOf", ())):
        if "description" in each:
            return str(each["description"])
        if "enum" in each:
            return ", ".join(map(str, each["enum"]))
    return ""
