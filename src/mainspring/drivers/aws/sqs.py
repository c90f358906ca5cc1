"""SQS, as a URL names it: a region of AWS, or another server that speaks its protocol.

sqs://eu-central-1                                        credentials by the usual chain of AWS
sqs://key:secret@local?endpoint=http://127.0.0.1:9324     another server
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from mainspring.drivers.server_url import TLS_OPTIONS, ServerLink, read_server_url
from mainspring.errors import BackendUnavailable

AT_ONCE: Final = 10
"""Messages of one request: the most that SQS takes."""
REQUESTS: Final = 8
"""Requests under way at once of one call: more did not raise the rate."""
CONNECT_S: Final = 2.0
LONGEST_S: Final = 25.0
"""An answer to a long poll of 20 s may take this long."""
OPTIONS: Final = ("timeout", "prefix", "endpoint", *TLS_OPTIONS)
_GONE: Final = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


class SqsLink(ServerLink):
    """Makes clients."""

    errors = (BotoCoreError, ClientError, OSError)

    def __init__(
        self, url: str, field: str, options: Collection[str], unavailable: type[BackendUnavailable], timeout: str
    ) -> None:
        super().__init__(read_server_url(url, field, port=443, options=options), unavailable, timeout)

    def make_client(self) -> Any:
        """A client, to be entered as an asynchronous context."""
        options = self.url.options
        certificate = options.get("ssl_certfile")
        return get_session().create_client(
            "sqs",
            region_name=self.url.hosts[0][0],
            endpoint_url=options.get("endpoint"),
            verify=False if options.get("ssl_cert_reqs") == "none" else options.get("ssl_ca_certs"),
            aws_access_key_id=self.url.username,
            aws_secret_access_key=self.url.password,
            config=AioConfig(
                max_pool_connections=64,
                connect_timeout=CONNECT_S,
                read_timeout=LONGEST_S,
                retries={"max_attempts": 0},
                client_cert=(certificate, options["ssl_keyfile"]) if "ssl_keyfile" in options else certificate,
            ),
        )


class SqsClient:
    """The client of one event loop, and the addresses of the queues that it uses."""

    def __init__(self, link: SqsLink) -> None:
        self._link = link
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._urls: dict[str, str] = {}
        self._opening = asyncio.Lock()

    def knows(self, name: str) -> bool:
        """Whether this client has found a queue before."""
        return name in self._urls

    async def call(self, operation: str, *, wait_s: float = 0.0, **arguments: Any) -> Any:
        """The answer to one request, within the timeout and `wait_s`."""
        client = await self._ready()
        async with self._link.explained(), asyncio.timeout(self._link.timeout_s + wait_s):
            return await getattr(client, operation)(**arguments)

    async def on_queue(self, name: str, operation: str, *, wait_s: float = 0.0, **arguments: Any) -> Any:
        """The answer to a request about a queue that was found before. One that was deleted must be found anew."""
        try:
            return await self.call(operation, wait_s=wait_s, QueueUrl=self._urls[name], **arguments)
        except KeyError:
            raise self._link.unavailable(f"the queue {name} was deleted, and is made again") from None
        except BackendUnavailable as error:
            if code_of(error) in _GONE:
                self._urls.pop(name, None)
            raise

    async def batch(self, name: str, operation: str, entries: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Send entries, ten at a time; the errors of those that failed."""
        failed: list[Any] = []
        places = asyncio.Semaphore(REQUESTS)

        async def send(some: Sequence[Mapping[str, Any]]) -> None:
            async with places:
                numbered = [{"Id": str(number), **entry} for number, entry in enumerate(some)]
                answer = await self.on_queue(name, operation, Entries=numbered)
            failed.extend(answer.get("Failed", ()))

        await asyncio.gather(*(send(entries[at : at + AT_ONCE]) for at in range(0, len(entries), AT_ONCE)))
        return failed

    async def find(self, name: str, attributes: Mapping[str, str]) -> str:
        """The address of a queue, which is made with these attributes if it does not exist."""
        known = self._urls.get(name)
        if known is not None:
            return known
        try:
            answer = await self.call("get_queue_url", QueueName=name)
        except BackendUnavailable as error:
            if code_of(error) not in _GONE:
                raise
            answer = await self._create(name, attributes)
        self._urls[name] = str(answer["QueueUrl"])
        return self._urls[name]

    async def _create(self, name: str, attributes: Mapping[str, str]) -> Any:
        try:
            return await self.call("create_queue", QueueName=name, Attributes=dict(attributes))
        except BackendUnavailable as error:
            if "Denied" in code_of(error):
                remedy = "create it, or allow sqs:CreateQueue"
                raise self._link.unavailable(f"the queue {name} does not exist: {remedy}") from error
            raise

    async def _ready(self) -> Any:
        async with self._opening:
            if self._client is None:
                async with self._link.explained():
                    self._client = await self._stack.enter_async_context(self._link.make_client())
            return self._client

    async def close(self) -> None:
        """Let go of connections."""
        await self._stack.aclose()


def code_of(error: BackendUnavailable) -> str:
    """What AWS calls the error; empty for errors of the connection."""
    cause = error.__cause__
    return str(cause.response.get("Error", {}).get("Code", "")) if isinstance(cause, ClientError) else ""
