"""Executes HTTP calls: only to allowed addresses, bounded in time and size, signed on request."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec

from mainspring.core.instants import SECOND, Duration, Instant, format_instant, from_datetime
from mainspring.core.tasks.specs import HttpSpec
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.addresses import AddressRefused, resolve
from mainspring.executors.failures import failed_by
from mainspring.settings import Settings

if TYPE_CHECKING:
    import httpx

HTTP = "http"
"""The task name under which HTTP calls are stored."""
SIGNATURE = "Mainspring-Signature"
_REDIRECTS = (301, 302, 303, 307, 308)
_TOLD_TO_WAIT = (429, 503)
_PRIVATE_HEADERS = ("authorization", "cookie", "proxy-authorization", SIGNATURE.lower())
_OWN_HEADERS = ("host", "content-length", "transfer-encoding", "connection")
"""Headers that only Mainspring sets: with two values, two servers on the way might read different requests."""
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class HttpCall(NamedTuple):
    """One request, with all values filled in."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    body: bytes


class HttpReply(NamedTuple):
    """The response, up to the size limit."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool


class HttpExecutor:
    """Makes each call on a new connection, to an address that was resolved and checked once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._allowed = [ip_network(each) for each in settings.http_networks]
        self._trust: ssl.SSLContext | None = None

    async def run(self, attempt: AttemptContext) -> Outcome:
        import httpx

        limit_s = self._settings.http_timeout / SECOND
        try:
            spec = msgspec.json.decode(attempt.claim.args, type=HttpSpec)
            call = _prepare(spec, attempt)
            async with asyncio.timeout(limit_s):
                answer = await self._follow(call, spec, attempt)
        except TimeoutError:
            return failed_by("HttpTimeout", f"no complete answer within {limit_s:g}s")
        except AddressRefused as refusal:
            return failed_by("HttpRefused", f"{refusal}: add its network to http_networks to allow it", final=True)
        except (httpx.TransportError, OSError) as error:
            return failed_by("HttpUnreachable", f"{type(error).__name__}: {error}")
        except (ValueError, httpx.InvalidURL) as error:
            return failed_by("HttpInvalid", f"it cannot be sent: {error}", final=True)
        return _judge(spec, answer, attempt.now(), self._settings.payload_limit)

    async def _follow(self, call: HttpCall, spec: HttpSpec, attempt: AttemptContext) -> HttpReply:
        for _ in range(spec.redirects + 1):
            answer = await self._send(call)
            attempt.write("log", f"{call.method} {_place(call.url)}: {answer.status}")
            place = answer.headers.get("location")
            if answer.status not in _REDIRECTS or place is None or not spec.redirects:
                return answer
            call = _redirect(call, answer.status, place)
        raise ValueError(f"there were more than {spec.redirects} redirects")

    async def _send(self, call: HttpCall) -> HttpReply:
        import httpx

        host, port = call.url.host, call.url.port or (443 if call.url.scheme == "https" else 80)
        address = await resolve(host, port, self._allowed)
        # Connect to the checked address; the name goes where servers and certificates expect it.
        pinned = call.url.copy_with(host=address)
        headers = {**call.headers, "Host": call.url.netloc.decode("ascii")}
        if self._trust is None:
            self._trust = await asyncio.to_thread(httpx.create_ssl_context)
        client = httpx.AsyncClient(verify=self._trust, trust_env=False, follow_redirects=False, timeout=None)
        async with client, client.stream(
            call.method, pinned, headers=headers, content=call.body or None, extensions={"sni_hostname": host}
        ) as response:  # fmt: skip
            body, cut = await _read(response, self._settings.http_limit)
            return HttpReply(response.status_code, response.headers, body, cut)


async def _read(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """Read the body without decompressing it: a small body could become a large one."""
    parts, size = [], 0
    async for part in response.aiter_raw():
        parts.append(part)
        size += len(part)
        if size > limit:
            return b"".join(parts)[:limit], True
    return b"".join(parts), False


def _prepare(spec: HttpSpec, attempt: AttemptContext) -> HttpCall:
    import httpx

    claim = attempt.claim
    facts = {"run_id": claim.run_id, "attempt": claim.attempt + 1, "job": claim.job or ""}
    facts["fire_at"] = "" if claim.fire_at is None else format_instant(claim.fire_at)
    values = facts | spec.data
    headers = {name: _fill(value, values) for name, value in spec.headers.items() if name.lower() not in _OWN_HEADERS}
    body = b""
    if spec.json is not msgspec.UNSET:
        body = msgspec.json.encode(_fill_json(spec.json, values))
        headers = {"Content-Type": "application/json"} | headers
    elif spec.body is not None:
        body = _fill(spec.body, values).encode()
    headers = {"User-Agent": "mainspring", "Accept-Encoding": "identity"} | headers
    if attempt.context is not None:
        carried = attempt.context.context
        headers = {name: carried[name] for name in ("traceparent", "tracestate") if name in carried} | headers
    headers |= {"Mainspring-Run-Id": claim.run_id, "Mainspring-Attempt": str(claim.attempt + 1)}
    if spec.sign is not None:
        headers[SIGNATURE] = sign(spec.sign, attempt.now() // SECOND, body)
    method = spec.method or ("POST" if body else "GET")
    return HttpCall(method, httpx.URL(_fill(spec.url, values, lambda value: quote(value, safe=""))), headers, body)


def sign(key: str, seconds: int, body: bytes) -> str:
    """`t=SECONDS,v1=HEX`: the HMAC-SHA256 of the seconds, a dot and the body. Receivers should refuse old times."""
    digest = hmac.new(key.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def _redirect(call: HttpCall, status: int, place: str) -> HttpCall:
    url = call.url.join(place)
    if url.scheme not in ("http", "https") or (call.url.scheme == "https" and url.scheme == "http"):
        raise ValueError(f"it was redirected to {_place(url)}, which is less secure or no web address")
    headers = call.headers
    if (url.scheme, url.host, url.port) != (call.url.scheme, call.url.host, call.url.port):
        headers = {name: value for name, value in headers.items() if name.lower() not in _PRIVATE_HEADERS}
    if status == 303 or (status in (301, 302) and call.method == "POST"):
        return HttpCall("GET", url, {name: value for name, value in headers.items() if name != "Content-Type"}, b"")
    return HttpCall(call.method, url, headers, call.body)


def _place(url: httpx.URL) -> str:
    """The URL without the parts that may be secret."""
    return f"{url.scheme}://{url.host}{'' if url.port is None else f':{url.port}'}{url.path}"


def _judge(spec: HttpSpec, answer: HttpReply, now: Instant, limit: int) -> Outcome:
    status = answer.status
    if status in spec.expect if spec.expect else 200 <= status <= 299:
        return Outcome("succeeded", _result(answer, limit))
    start = answer.body[:300].decode("utf-8", "replace")
    asked = _retry_after(answer.headers.get("retry-after"), now) if status in _TOLD_TO_WAIT else None
    message = f"the server answered with status {status}" + (f": {start}" if start else "")
    return failed_by("HttpStatus", message, final=status not in spec.retried, asked=asked)


def _result(answer: HttpReply, limit: int) -> str:
    body: Any = answer.body[: limit // 8].decode("utf-8", "replace")
    cut = answer.cut or len(answer.body) > limit // 8
    if "json" in answer.headers.get("content-type", "") and not cut:
        with suppress(ValueError):
            body = msgspec.json.decode(answer.body)
    result: dict[str, Any] = {"status": answer.status, "body": body}
    if cut:
        result["cut"] = True
    return msgspec.json.encode(result).decode()


def _retry_after(value: str | None, now: Instant) -> Duration | None:
    """Parse seconds or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return int(value) * SECOND if len(value) < 10 else None
    try:
        return max(from_datetime(parsedate_to_datetime(value)) - now, 0)
    except (ValueError, TypeError):
        return None


def _fill(text: str, values: Mapping[str, Any], write: Callable[[str], str] = str) -> str:
    """The text with every `${name}` replaced by its value, passed through `write`. Raises ValueError for an unknown
    name."""

    def value(match: re.Match[str]) -> str:
        found = _value_of(match[1], values)
        return write(found if isinstance(found, str) else msgspec.json.encode(found).decode())

    return _PLACEHOLDER.sub(value, text)


def _fill_json(value: Any, values: Mapping[str, Any]) -> Any:
    """JSON with its texts filled. A text that is only `${name}` becomes the value itself."""
    if isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value)
        return _value_of(whole[1], values) if whole else _fill(value, values)
    if isinstance(value, dict):
        return {name: _fill_json(each, values) for name, each in value.items()}
    return [_fill_json(each, values) for each in value] if isinstance(value, list) else value


def _value_of(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise ValueError(f"${{{name}}} has no value: add {name} to data")
    return values[name]
