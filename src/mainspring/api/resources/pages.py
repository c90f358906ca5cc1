"""The web UI over HTTP: the shell under /ui/, and its files under a digest that changes with any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

from mainspring.api.assets import MISSING, OVERVIEW, Asset, Assets, packed
from mainspring.api.endpoint import PUBLIC, Endpoint, Request, Response
from mainspring.api.problems import Problem

HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
IMMUTABLE: Final = "public, max-age=31536000, immutable"


class _Pages:
    """Serves the UI of one set of files."""

    def __init__(self, assets: Assets, base_path: str) -> None:
        self._assets = assets
        self._base_path = base_path

    @cached_property
    def _shell(self) -> Asset:
        return packed(self._assets.shell(self._base_path), HTML)

    @cached_property
    def _shell_of_overview(self) -> Asset:
        return packed(self._assets.shell(self._base_path, OVERVIEW), HTML)

    async def get_overview(self, request: Request) -> Response:
        """The page of the web UI, which begins with the overview."""
        return self._respond(request, lambda: self._shell_of_overview)

    async def get_page(self, request: Request) -> Response:
        """The page of the web UI, for a path within it: the same for all of them."""
        return self._respond(request, lambda: self._shell)

    def _respond(self, request: Request, shell: Callable[[], Asset]) -> Response:
        if not self._assets.is_complete:
            return Response(503, MISSING.encode(), media_type=TEXT)
        headers = {
            "Content-Security-Policy": POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
        }
        return _encoded(shell(), headers, request.headers)

    async def get_asset(self, request: Request) -> Response:
        """A file of the web UI. Under its own digest it may be cached for good; under another one it may not."""
        asset = self._assets.files.get(request.parameters["file"])
        if asset is None:
            raise Problem("not-found", "the web UI has no such file", remedy="reload the page")
        is_current = request.parameters["digest"] == self._assets.digest
        headers = {"ETag": asset.etag, "Cache-Control": IMMUTABLE if is_current else "no-cache",
                   "Vary": "Accept-Encoding"}  # fmt: skip
        if asset.etag in _etags(request.headers):
            return Response(304, headers=headers)
        return _encoded(asset, headers, request.headers)


def _etags(headers: Mapping[str, str]) -> list[str]:
    return [each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")]


def _encoded(asset: Asset, headers: dict[str, str], asked: Mapping[str, str]) -> Response:
    accepted = [each.strip().partition(";")[0].lower() for each in asked.get("accept-encoding", "").split(",")]
    if "gzip" not in accepted:
        return Response(200, asset.content, headers, asset.media_type)
    return Response(200, asset.compressed, {**headers, "Content-Encoding": "gzip"}, asset.media_type)


def pages(assets: Assets, base_path: str = "") -> tuple[Endpoint, ...]:
    """The endpoints of the web UI, whose addresses begin with the base path."""
    served = _Pages(assets, base_path)
    return (
        Endpoint("GET", "/ui", served.get_overview, PUBLIC, "The web UI.", {200: HTML}, ignores_query=True),
        Endpoint("GET", "/ui/{path*}", served.get_page, PUBLIC, "A page of the web UI.", {200: HTML},
                 ignores_query=True),
        Endpoint("GET", "/ui/assets/{digest}/{file*}", served.get_asset, PUBLIC, "A file of the web UI.",
                 {200: "text/javascript"}),
    )  # fmt: skip
