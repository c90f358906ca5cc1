"""HTTP calls: to real servers on this machine, and never to those that they should not reach."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scene import Attempt, Scene, scene_of
from web import Dripping, Fickle, Server, reply

from certificates import make_certificates
from mainspring.core.tasks.specs import check_spec
from mainspring.errors import InvalidInput

HERE = ("127.0.0.0/8",)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.listening("127.0.0.1"):
        yield server


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of(http_networks=HERE) as scene:
        yield scene


async def call(scene: Scene, **spec: Any) -> Any:
    check_spec("http", spec)
    return await scene.execute(Attempt("http", spec))


class TestRequests:
    async def test_it_sends_what_is_said_filled_with_what_is_given(self, scene: Scene, server: Server) -> None:
        outcome = await call(
            scene,
            url=server.url + "/orders/${id}?note=${note}",
            headers={"X-Order": "${id}"},
            json={"order": "${id}", "rows": "${rows}", "text": "run ${attempt} of ${note}"},
            data={"id": "a/b", "rows": [1, 2], "note": "x&y"},
        )
        ((first, headers, body),) = server.requests
        assert first == "POST /orders/a%2Fb?note=x%26y HTTP/1.1"
        assert headers["x-order"] == "a/b"
        assert headers["content-type"] == "application/json"
        assert headers["mainspring-run-id"].startswith("run-")
        assert json.loads(body) == {"order": "a/b", "rows": [1, 2], "text": "run 1 of x&y"}
        assert json.loads(outcome.result) == {"status": 200, "body": "ok"}

    async def test_it_gets_unless_there_is_something_to_send(self, scene: Scene, server: Server) -> None:
        await call(scene, url=server.url)
        await call(scene, url=server.url, body="x")
        await call(scene, url=server.url, method="DELETE")
        assert [first.split()[0] for first, _, _ in server.requests] == ["GET", "POST", "DELETE"]

    async def test_a_signature_covers_the_time_and_the_body(self, scene: Scene, server: Server) -> None:
        attempt = Attempt("http", {"url": server.url, "body": "payload", "sign": "key"})
        attempt.now = lambda: 1_700_000_000_500_000
        await scene.execute(attempt)
        digest = hmac.new(b"key", b"1700000000.payload", hashlib.sha256).hexdigest()
        assert server.requests[0][1]["mainspring-signature"] == f"t=1700000000,v1={digest}"

    async def test_json_comes_back_as_json(self, scene: Scene, server: Server) -> None:
        server.answer = lambda _: reply(200, b'{"a": [1]}', Content_Type="application/json")
        assert json.loads((await call(scene, url=server.url)).result)["body"] == {"a": [1]}

    async def test_headers_that_are_not_its_own_to_set_are_left_out(self, scene: Scene, server: Server) -> None:
        await call(scene, url=server.url, headers={"Host": "other", "Content-Length": "99"}, body="x")
        (_, headers, body) = server.requests[0]
        assert (headers["host"], headers["content-length"], body) == (f"127.0.0.1:{server.port}", "1", b"x")

    @pytest.mark.parametrize(
        "spec",
        [
            {"url": "ftp://example.org/x"},
            {"url": "file:///etc/passwd"},
            {"url": "https://example.org", "headers": {"A": "b\r\nC: d"}},
            {"url": "https://example.org", "headers": {"A b": "c"}},
            {"url": "https://example.org", "body": "x", "json": {}},
            {"url": "https://example.org", "method": "CONNECT"},
            {"url": "https://example.org", "timeout": 3},
        ],
    )
    def test_what_can_be_no_call_is_refused_when_it_is_defined(self, spec: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="are no arguments of http"):
            check_spec("http", spec)

    async def test_a_place_without_a_value_is_a_failure_that_stays(self, scene: Scene, server: Server) -> None:
        outcome = await call(scene, url=server.url + "/${nothing}")
        assert outcome.final
        assert not server.requests


class TestStatuses:
    @pytest.mark.parametrize(
        ("status", "kind", "final"),
        [(204, "succeeded", False), (404, "failed", True), (500, "failed", False), (429, "failed", False)],
    )
    async def test_they_decide(self, scene: Scene, server: Server, status: int, kind: str, final: bool) -> None:
        server.answer = lambda _: reply(status)
        outcome = await call(scene, url=server.url)
        assert (outcome.kind, outcome.final) == (kind, final)

    async def test_others_can_be_expected(self, scene: Scene, server: Server) -> None:
        server.answer = lambda _: reply(404)
        assert (await call(scene, url=server.url, expect=[200, 404])).kind == "succeeded"
        server.answer = lambda _: reply(204)
        assert (await call(scene, url=server.url, expect=[200, 404])).kind == "failed"

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        ("value", "asked"), [("17", 17_000_000), ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000_000), ("soon", None)]
    )
    async def test_a_server_may_say_when_to_come_again(
        self, scene: Scene, server: Server, status: int, value: str, asked: int | None
    ) -> None:
        server.answer = lambda _: reply(status, Retry_After=value)
        attempt = Attempt("http", {"url": server.url})
        attempt.now = lambda: 1_700_000_000_000_000
        assert (await scene.execute(attempt)).asked == asked

    async def test_a_refused_connection_is_retried(self, scene: Scene) -> None:
        outcome = await call(scene, url="http://127.0.0.1:9")
        assert (outcome.kind, outcome.final) == ("failed", False)


class TestRedirects:
    async def test_they_are_followed_and_a_post_becomes_a_get(self, scene: Scene, server: Server) -> None:
        server.answer = lambda path: reply(303, Location="/there") if path == "/" else reply(200, b"there")
        outcome = await call(scene, url=server.url + "/", body="x")
        assert [first.split()[:2] for first, _, _ in server.requests] == [["POST", "/"], ["GET", "/there"]]
        assert json.loads(outcome.result)["body"] == "there"

    async def test_redirects_are_bounded(self, scene: Scene, server: Server) -> None:
        server.answer = lambda path: reply(302, Location="/again")
        outcome = await call(scene, url=server.url, redirects=3)
        assert "more than 3 redirects" in outcome.failure.message
        assert len(server.requests) == 4

    async def test_credentials_do_not_go_to_another_host(self, scene: Scene, server: Server) -> None:
        other = Server()
        async with other.listening("0.0.0.0"):
            server.answer = lambda _: reply(307, Location=other.url.replace("127.0.0.1", "127.0.0.2"))
            await call(scene, url=server.url, headers={"Authorization": "Bearer x", "X-Plain": "y"}, sign="k", body="b")
            (_, headers, body) = other.requests[0]
        assert {"authorization", "mainspring-signature"} & set(headers) == set()
        assert (headers["x-plain"], body) == ("y", b"b")

    @pytest.mark.parametrize("place", ["file:///etc/passwd", "gopher://127.0.0.1/"])
    async def test_not_to_other_kinds_of_places(self, scene: Scene, server: Server, place: str) -> None:
        server.answer = lambda _: reply(302, Location=place)
        outcome = await call(scene, url=server.url)
        assert (outcome.kind, outcome.final) == ("failed", True)


class TestForbiddenPlaces:
    @pytest.mark.parametrize(
        "host",
        [
            *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]"),
            *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
            *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "[fc00::1]", "[fe80::1]", "224.0.0.1"),
            *("169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "168.63.129.16", "100.100.100.200"),
            "0xa9.0xfe.0xa9.0xfe",
        ],
    )
    async def test_private_addresses_are_refused_however_they_are_written(self, host: str) -> None:
        async with scene_of() as scene:
            outcome = await call(scene, url=f"http://{host}/latest/meta-data")
        # Some of them are already no host to the client.
        assert outcome.failure.type in ("HttpRefused", "HttpInvalid"), outcome
        assert outcome.final

    async def test_a_redirect_to_one_is_refused(self, server: Server) -> None:
        async with scene_of(http_networks=("127.0.0.1/32",)) as scene:
            server.answer = lambda _: reply(302, Location=f"http://127.0.0.2:{server.port}/")
            outcome = await call(scene, url=server.url)
        assert outcome.failure.type == "HttpRefused"
        assert len(server.requests) == 1

    async def test_a_name_that_changes_its_mind_is_reached_where_it_was_judged(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fickle = Fickle(monkeypatch, fickle=["127.0.0.1", "127.0.0.2"])
        async with scene_of(http_networks=("127.0.0.1/32",)) as scene:
            outcome = await call(scene, url=f"http://fickle.test:{server.port}/")
            assert outcome.kind == "succeeded"
            assert len(fickle.asked) == 1
            assert server.requests[0][1]["host"] == f"fickle.test:{server.port}"
            outcome = await call(scene, url=f"http://fickle.test:{server.port}/")
        assert outcome.failure.type == "HttpRefused"

    async def test_no_proxy_of_the_worker_is_used(
        self, scene: Scene, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        assert (await call(scene, url=server.url)).kind == "succeeded"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An authority's certificate, and a file with a server's key and certificate that it signed."""
    return make_certificates(tmp_path_factory.mktemp("tls"), "secure.test", "127.0.0.1")


class TestEncryption:
    """Connected to the address that was judged, as the name that was asked for."""

    @pytest.fixture
    async def secure(
        self, certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[tuple[Server, list[str | None]]]:
        authority, own = certificates
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        server, names = Server(), list[str | None]()
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(own)
        server.tls.sni_callback = lambda _socket, name, _context: names.append(name)
        async with server.listening("127.0.0.1"):
            yield server, names

    async def test_the_server_sees_the_name_though_the_address_is_pinned(
        self, secure: tuple[Server, list[str | None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, names = secure
        fickle = Fickle(monkeypatch, secure=["127.0.0.1", "127.0.0.2"])
        async with scene_of(http_networks=("127.0.0.1/32",)) as scene:
            outcome = await call(scene, url=f"https://secure.test:{server.port}/x")
            assert outcome.kind == "succeeded", outcome
            assert (names, len(fickle.asked)) == (["secure.test"], 1)
            assert server.requests[0][1]["host"] == f"secure.test:{server.port}"
            outcome = await call(scene, url=f"https://secure.test:{server.port}/x")
        assert outcome.failure.type == "HttpRefused"
        assert len(server.requests) == 1

    async def test_a_certificate_for_another_name_is_refused(
        self, secure: tuple[Server, list[str | None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, _ = secure
        Fickle(monkeypatch, other=["127.0.0.1"])
        async with scene_of(http_networks=HERE) as scene:
            outcome = await call(scene, url=f"https://other.test:{server.port}/")
        assert outcome.failure.type == "HttpUnreachable"
        assert "certificate" in outcome.failure.message
        assert not server.requests

    async def test_a_certificate_for_an_address_is_good_for_it(self, secure: tuple[Server, list[str | None]]) -> None:
        server, names = secure
        async with scene_of(http_networks=HERE) as scene:
            outcome = await call(scene, url=f"https://127.0.0.1:{server.port}/")
        assert (outcome.kind, names) == ("succeeded", [None]), outcome

    async def test_an_untrusted_authority_is_refused(
        self, secure: tuple[Server, list[str | None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, _ = secure
        monkeypatch.delenv("SSL_CERT_FILE")
        async with scene_of(http_networks=HERE) as scene:
            outcome = await call(scene, url=f"https://127.0.0.1:{server.port}/")
        assert outcome.failure.type == "HttpUnreachable"

    @pytest.mark.parametrize(
        ("place", "kind"),
        [("http://127.0.0.1:{port}/", "HttpInvalid"), ("https://inside.test:{port}/", "HttpRefused")],
        ids=["unencrypted", "private"],
    )
    async def test_a_redirect_is_judged_like_the_first_address(
        self, secure: tuple[Server, list[str | None]], monkeypatch: pytest.MonkeyPatch, place: str, kind: str
    ) -> None:
        server, names = secure
        Fickle(monkeypatch, secure=["127.0.0.1"], inside=["127.0.0.2"])
        server.answer = lambda _: reply(302, Location=place.format(port=server.port))
        async with scene_of(http_networks=("127.0.0.1/32",)) as scene:
            outcome = await call(scene, url=f"https://secure.test:{server.port}/")
        assert (outcome.failure.type, outcome.final) == (kind, True)
        assert (names, len(server.requests)) == (["secure.test"], 1)

    async def test_a_redirect_to_a_name_that_is_public_at_first_is_pinned_too(
        self, secure: tuple[Server, list[str | None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each step resolves once, and connects to what was judged."""
        server, names = secure
        fickle = Fickle(monkeypatch, secure=["127.0.0.1", "127.0.0.1", "127.0.0.2"])
        there = f"https://secure.test:{server.port}/there"
        server.answer = lambda path: reply(302, Location=there) if path == "/" else reply(200, b"there")
        async with scene_of(http_networks=("127.0.0.1/32",)) as scene:
            outcome = await call(scene, url=f"https://secure.test:{server.port}/")
        assert outcome.kind == "succeeded"
        assert (names, len(fickle.asked)) == (["secure.test"] * 2, 2)


class TestBounds:
    async def test_a_large_answer_is_cut(self, server: Server) -> None:
        server.answer = lambda _: reply(200, b"x" * 500_000)
        async with scene_of(http_networks=HERE, http_limit=1_000) as scene:
            result = json.loads((await call(scene, url=server.url)).result)
        assert (len(result["body"]), result["cut"]) == (1_000, True)

    async def test_a_packed_answer_stays_packed(self, scene: Scene, server: Server) -> None:
        packed = gzip.compress(bytes(20_000_000))
        server.answer = lambda _: reply(200, packed, Content_Encoding="gzip")
        outcome = await call(scene, url=server.url)
        assert len(outcome.result) < 4 * len(packed) + 100
        assert server.requests[0][1]["accept-encoding"] == "identity"

    async def test_an_endless_answer_ends(self) -> None:
        server = Dripping()
        async with server.listening("127.0.0.1"), scene_of(http_networks=HERE, http_timeout=300_000) as scene:
            outcome = await call(scene, url=server.url)
        assert outcome.failure.message == "no complete answer within 0.3s"
        assert not outcome.final
