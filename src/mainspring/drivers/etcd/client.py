"""etcd as a URL names it: `etcd://user:password@host1:2379,host2,host3/path`, `etcds://` with TLS.

`path` is the folder of the keys (`mainspring` unless given). A call goes to one endpoint, and to the next one where
that does not answer. All calls that the lease adapter makes may be repeated.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mainspring.drivers.per_loop import PerLoop
from mainspring.drivers.server_url import TLS_OPTIONS, ServerUrl, make_tls, read_server_url
from mainspring.errors import LeaseUnavailable

if TYPE_CHECKING:
    import httpx

PORT: Final = 2379
SILENCE_S: Final = 15.0
"""A watch without any byte for this long may hang on a dead connection: it is opened again."""
NOT_FOUND: Final = 5
_UNAUTHENTICATED: Final = 16
_ELSEWHERE: Final = (4, 8, 13, 14)
"""gRPC codes for which another endpoint may answer: deadline exceeded, too many requests, internal, unavailable."""


class EtcdRefused(LeaseUnavailable):
    """etcd answered with an error of this gRPC code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Change(NamedTuple):
    """What a watch reports of a key."""

    revision: int
    deleted: bool


def read_url(url: str) -> ServerUrl:
    """What an etcd URL says; InvalidInput names what is wrong with it."""
    return read_server_url(url, "lease", port=PORT, options=("timeout", *TLS_OPTIONS))


class EtcdLink:
    """Calls and watches on one etcd cluster. Failures are raised as LeaseUnavailable, with the URL."""

    def __init__(self, address: ServerUrl) -> None:
        self.address = address
        self._timeout_s = address.seconds("timeout", "1s")
        protocol = "https" if address.scheme == "etcds" else "http"
        self._endpoints = [f"{protocol}://{_host(*each)}" for each in address.hosts]
        self._first = 0
        """The endpoint that answered most recently."""
        self._token: str | None = None
        self._clients = PerLoop(self._make_client, lambda client: client.aclose())

    def key(self, name: str) -> str:
        """The key of a name, in the base64 of the gateway. A name may have any characters."""
        return b64encode(f"{self.address.path.strip('/') or 'mainspring'}/{name}".encode()).decode()

    async def call(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """POST to one endpoint after another until one answers. EtcdRefused if it answers with an error."""
        trouble: Exception | None = None
        for _ in self._endpoints:
            index = self._first
            try:
                return await self._authenticated(index, path, body)
            except EtcdRefused as error:
                if error.code not in _ELSEWHERE:
                    raise
                trouble = error
            except (LeaseUnavailable, asyncio.CancelledError) as error:
                self._avoid(index)
                if isinstance(error, asyncio.CancelledError):
                    raise
                trouble = error
            self._avoid(index)
        raise LeaseUnavailable(f"{self.address.shown}: {trouble}")

    def _avoid(self, index: int) -> None:
        """Ask the next endpoint first, unless another call has moved on already."""
        if self._first == index:
            self._first = (index + 1) % len(self._endpoints)

    async def _authenticated(self, index: int, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        if self.address.username is None:
            return await self._post(index, path, body)
        for fresh in (False, True):
            if fresh or self._token is None:
                login = {"name": self.address.username, "password": self.address.password or ""}
                self._token = (await self._post(index, "/v3/auth/authenticate", login))["token"]
            try:
                return await self._post(index, path, body, self._token)
            except EtcdRefused as error:
                # Tokens of etcd expire after five minutes without use, and with the member that issued them.
                if fresh or not _is_stale_token(error):
                    raise
        raise AssertionError("unreachable")

    async def _post(
        self, index: int, path: str, body: Mapping[str, object], token: str | None = None
    ) -> dict[str, Any]:
        import httpx

        client = await self._clients.get()
        try:
            answer = await client.post(self._endpoints[index] + path, json=body, headers=_headers(token))
        except httpx.HTTPError as error:
            raise LeaseUnavailable(f"{self._endpoints[index]}: {str(error) or type(error).__name__}") from error
        return self._read(answer.content, answer.status_code)

    def _read(self, content: bytes, status: int) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise LeaseUnavailable(f"{self.address.shown}: HTTP {status}, which is no answer of etcd") from error
        if status == 200 and "error" not in answer:
            return answer
        said = answer.get("message") or answer.get("error") or f"HTTP {status}"
        raise EtcdRefused(f"{self.address.shown}: {said}", int(answer.get("code", 2)))

    async def watch(self, key: str, revision: int) -> AsyncGenerator[Change, None]:
        """Changes of a key from a revision on. It ends by LeaseUnavailable, when the connection does."""
        import httpx

        if self.address.username is not None and self._token is None:
            await self.call("/v3/maintenance/status", {})
        index = self._first
        body = {"create_request": {"key": key, "start_revision": str(revision)}}
        client = await self._clients.get()
        timeout = httpx.Timeout(self._attempt_s, read=SILENCE_S)
        try:
            async with client.stream(
                "POST", f"{self._endpoints[index]}/v3/watch", json=body, headers=_headers(self._token), timeout=timeout
            ) as stream:
                async for line in stream.aiter_lines():
                    for change in self._read_changes(line, stream.status_code):
                        yield change
        except httpx.HTTPError as error:
            self._avoid(index)
            raise LeaseUnavailable(f"{self.address.shown}: {str(error) or type(error).__name__}") from error
        raise LeaseUnavailable(f"{self.address.shown}: the watch has ended")

    def _read_changes(self, line: str, status: int) -> list[Change]:
        answer = self._read(line.encode(), status)
        result = answer.get("result", {})
        if result.get("canceled"):
            if "permission" in result.get("cancel_reason", "") or "auth" in result.get("cancel_reason", ""):
                self._token = None
            raise LeaseUnavailable(f"{self.address.shown}: the watch was cancelled: {result.get('cancel_reason', '')}")
        return [
            Change(int(event["kv"]["mod_revision"]), event.get("type") == "DELETE")
            for event in result.get("events", ())
        ]

    @property
    def _attempt_s(self) -> float:
        """The time for one endpoint: all of them must fit into the timeout of a call."""
        return self._timeout_s / len(self._endpoints)

    def _make_client(self) -> httpx.AsyncClient:
        import httpx

        verify = make_tls(self.address.options) if self.address.scheme == "etcds" else False
        return httpx.AsyncClient(verify=verify, timeout=self._attempt_s, trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._clients.close()


def _host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": token}


def _is_stale_token(error: EtcdRefused) -> bool:
    return error.code == _UNAUTHENTICATED or "auth token" in str(error) or "revision of auth store" in str(error)


def decoded(text: str) -> str:
    """A value as the gateway writes it."""
    return b64decode(text).decode()


def encoded(text: str) -> str:
    """A value for the gateway."""
    return b64encode(text.encode()).decode()
