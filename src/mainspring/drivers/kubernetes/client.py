"""Requests to the API server of Kubernetes, with its refusals in our words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.drivers.kubernetes.config import Access
from mainspring.drivers.per_loop import PerLoop
from mainspring.errors import LeaseUnavailable

if TYPE_CHECKING:
    import httpx

NOT_FOUND: Final = 404
CONFLICT: Final = 409
_UNAUTHORISED: Final = 401
_FORBIDDEN: Final = 403
FORBIDDEN: Final = (_UNAUTHORISED, _FORBIDDEN)
"""Statuses by which the API server refuses an account: asking again does not help."""
_THROTTLED: Final = 429
SILENCE_S: Final = 60.0
"""A watch without any byte for this long may hang on a dead connection: it is opened again."""
LONGEST_THROTTLE_S: Final = 30.0
LONGEST_LINE: Final = 16 * 2**20
"""Objects of Kubernetes are smaller. A longer line of a log is split."""


class KubernetesRefused(LeaseUnavailable):
    """The API server answered with an error of this HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class KubernetesLink:
    """One API server. A call is made once, except where a token has been replaced. Failures are LeaseUnavailable."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._clients = PerLoop(self._make_client, lambda client: client.aclose())
        self._throttled_until = 0.0

    async def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None, **query: str
    ) -> dict[str, Any]:
        """The object that the server answers. KubernetesRefused with the status otherwise. While the server has asked
        to wait, nothing is sent."""
        if (pause_s := self._throttled_until - time.monotonic()) > 0:
            raise KubernetesRefused(
                f"{self._access.server} throttles: it is asked again in {pause_s:.1f} s", _THROTTLED
            )
        answer = await self._send(method, path, body, query, fresh=False)
        if answer.status_code == _UNAUTHORISED:
            answer = await self._send(method, path, body, query, fresh=True)
        if answer.status_code < 300:
            return self._read(answer.content)
        raise self._refusal(method, path, answer)

    async def watch(self, path: str, version: str, **selector: str) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Events of the selected objects after a version: their type and the object. It ends by LeaseUnavailable."""
        query = {"watch": "1", "resourceVersion": version, **selector}
        async for line in self._stream("WATCH", path, query, SILENCE_S):
            event = self._read(line)
            if event.get("type") == "ERROR":
                said = event.get("object", {}).get("message", "the watch failed")
                raise LeaseUnavailable(f"{self._access.server}{path}: {said}")
            yield event["type"], event["object"]
        raise LeaseUnavailable(f"{self._access.server}{path}: the watch has ended")

    def read_lines(self, path: str, silence_s: float, **query: str) -> AsyncGenerator[bytes, None]:
        """The lines of an answer that is no object, such as a log that grows. It raises LeaseUnavailable if nothing
        arrives for `silence_s`."""
        return self._stream("GET", path, query, silence_s)

    async def _stream(
        self, verb: str, path: str, query: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[bytes, None]:
        import httpx

        client = await self._clients.get()
        timeout = httpx.Timeout(self._timeout_s, read=silence_s)
        headers = await self._headers(fresh=False)
        url = self._access.server + path
        try:
            async with client.stream("GET", url, params=query, headers=headers, timeout=timeout) as stream:
                if stream.status_code != 200:
                    await stream.aread()
                    raise self._refusal(verb, path, stream)
                async for line in _split_lines(stream.aiter_bytes()):
                    yield line
        except httpx.HTTPError as error:
            raise LeaseUnavailable(f"{url}: {str(error) or type(error).__name__}") from error

    async def _send(
        self, method: str, path: str, body: Mapping[str, object] | None, query: Mapping[str, str], *, fresh: bool
    ) -> httpx.Response:
        import httpx

        client = await self._clients.get()
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", **await self._headers(fresh=fresh)}
        try:
            return await client.request(
                method, self._access.server + path, content=content, params=query, headers=headers
            )
        except httpx.HTTPError as error:
            raise LeaseUnavailable(f"{self._access.server}: {str(error) or type(error).__name__}") from error

    async def _headers(self, *, fresh: bool) -> dict[str, str]:
        # Reading a file is quick, but a credential plugin is a program.
        token = await asyncio.to_thread(self._access.token, fresh)
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def _read(self, content: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise LeaseUnavailable(f"{self._access.server}: this is no answer of Kubernetes") from error

    def _refusal(self, method: str, path: str, answer: httpx.Response) -> KubernetesRefused:
        status, said = answer.status_code, f"HTTP {answer.status_code}"
        with suppress(msgspec.DecodeError, AttributeError):
            said = msgspec.json.decode(answer.content).get("message") or said
        if status == _THROTTLED:
            self._throttle(answer.headers.get("Retry-After", "1"))
            said = f"throttled: {said}"
        elif status == _UNAUTHORISED:
            said = f"the token is not accepted ({said}): mount a valid service account token, or renew the kubeconfig"
        elif status == _FORBIDDEN:
            said = f"{said}: bind a Role of deploy/kubernetes (rbac.yaml) to this account"
        return KubernetesRefused(f"{self._access.server}{path}: {method}: {said}", status)

    def _throttle(self, retry_after: str) -> None:
        pause_s = float(retry_after) if retry_after.isdecimal() else 1.0
        self._throttled_until = time.monotonic() + min(pause_s, LONGEST_THROTTLE_S)

    def _make_client(self) -> httpx.AsyncClient:
        import httpx

        verify = self._access.tls if self._access.tls is not None else False
        return httpx.AsyncClient(verify=verify, timeout=self._timeout_s, trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._clients.close()


async def _split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Lines without their ends. Only a line feed ends a line: other characters may be part of a text."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest
