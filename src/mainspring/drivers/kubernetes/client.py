"""Requests to the API server of Kubernetes, with its refusals in our words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.drivers.http import Clients
from mainspring.drivers.kubernetes.config import Access
from mainspring.errors import LeaseUnavailable

if TYPE_CHECKING:
    import httpx

NOT_FOUND: Final = 404
CONFLICT: Final = 409
_UNAUTHORISED: Final = 401
_FORBIDDEN: Final = 403
_THROTTLED: Final = 429
SILENCE_S: Final = 60.0
"""A watch without any byte for this long may hang on a dead connection: it is opened again."""
LONGEST_THROTTLE_S: Final = 30.0


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
        self._clients = Clients(self._make_client)
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

    async def watch(self, path: str, name: str, version: str) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Events of one object after a version: their type and the object. It ends by LeaseUnavailable."""
        import httpx

        client = await self._clients.here()
        query = {"watch": "1", "fieldSelector": f"metadata.name={name}", "resourceVersion": version}
        timeout = httpx.Timeout(self._timeout_s, read=SILENCE_S)
        headers = await self._headers(fresh=False)
        url = self._access.server + path
        try:
            async with client.stream("GET", url, params=query, headers=headers, timeout=timeout) as stream:
                if stream.status_code != 200:
                    await stream.aread()
                    raise self._refusal("WATCH", path, stream)
                async for line in stream.aiter_lines():
                    event = self._read(line.encode())
                    if event.get("type") == "ERROR":
                        raise LeaseUnavailable(f"{url}: {event.get('object', {}).get('message', 'the watch failed')}")
                    yield event["type"], event["object"]
        except httpx.HTTPError as error:
            raise LeaseUnavailable(f"{url}: {str(error) or type(error).__name__}") from error
        raise LeaseUnavailable(f"{url}: the watch has ended")

    async def _send(
        self, method: str, path: str, body: Mapping[str, object] | None, query: Mapping[str, str], *, fresh: bool
    ) -> httpx.Response:
        import httpx

        client = await self._clients.here()
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
            said = f"{said}: bind the Role of deploy/kubernetes/base/rbac.yaml to this account"
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
