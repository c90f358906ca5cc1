"""What strangers may send, and what they get: never a 5xx, never a traceback, always a document that says what is
wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from door import Door, open_door
from fleet import a_database

DEEP = b'{"task":"x","args":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}"
DEEPER = b"[" * 200_000
LADDER = b'{"task":"x","args":{"a":' + b"[[]," * 600 + b"1" + b"]" * 600 + b"}}"
BRACKETS_IN_A_TEXT = b'{"task":"x","tags":["' + b"[" * 600 + b'"],"priority":0}'
BIG = 10**40
JOB = {"name": "j", "task": "encode", "args": {"video": "v"}}
RUN = {"task": "encode", "args": {"video": "v"}}


class Row(NamedTuple):
    """One attack and the answer to it."""

    name: str
    method: str
    path: str
    body: Any
    status: int
    kind: str
    field: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})


def post(name: str, path: str, body: Any, status: int, kind: str, field: str | None = None, **headers: str) -> Row:
    return Row(name, "POST", path, body, status, kind, field, {key.replace("_", "-"): v for key, v in headers.items()})


def wrong(name: str, path: str, body: Any, field: str) -> Row:
    return post(name, path, body, 422, "invalid-input", field)


def get(name: str, path: str, status: int, kind: str, field: str | None = None, **headers: str) -> Row:
    return Row(name, "GET", path, None, status, kind, field, {key.replace("_", "-"): v for key, v in headers.items()})


ROWS = [
    # Bodies that are no JSON, or no object.
    post("empty", "/v1/runs", b"", 400, "malformed-body"),
    post("nonsense", "/v1/runs", b"{nonsense", 400, "malformed-body"),
    post("trailing", "/v1/runs", b'{"task":"x"} {}', 400, "malformed-body"),
    post("cut", "/v1/runs", b'{"task":"x"', 400, "malformed-body"),
    post("deep", "/v1/runs", DEEP, 400, "malformed-body"),
    wrong("deeper, where an object should be", "/v1/runs:batch", b'{"runs":' + b"[" * 400 + b"]" * 400 + b"}", "runs"),
    post("deepest", "/v1/runs", DEEPER, 400, "malformed-body"),
    post("deep behind closed brackets", "/v1/runs", LADDER, 400, "malformed-body"),
    post("not UTF-8", "/v1/runs", b'{"task":"\xff\xfe"}', 400, "malformed-body"),
    post("half a character", "/v1/runs", b'{"task":"\\ud800"}', 400, "malformed-body"),
    post("UTF-16", "/v1/runs", '{"task":"x"}'.encode("utf-16"), 400, "malformed-body"),
    post("byte order mark", "/v1/runs", b'\xef\xbb\xbf{"task":"x"}', 400, "malformed-body"),
    post("NaN", "/v1/runs", b'{"task":"x","args":{"n":NaN}}', 400, "malformed-body"),
    post("too large a number", "/v1/runs", b'{"task":"x","args":{"n":1e999}}', 400, "malformed-body"),
    wrong("array", "/v1/runs", b"[]", "body"),
    wrong("null", "/v1/runs", b"null", "body"),
    wrong("text", "/v1/runs", b'"task"', "body"),
    wrong("number", "/v1/runs", b"7", "body"),
    # Other media types than JSON: forms, pickles, XML.
    post("form", "/v1/runs", b"task=x", 400, "malformed-body", Content_Type="application/x-www-form-urlencoded"),
    post("form of a page", "/v1/runs", b'{"task":"x"}', 415, "unsupported-media-type",
         Content_Type="application/x-www-form-urlencoded", Origin="https://evil.example"),
    post("form of a site", "/v1/runs", b'{"task":"x"}', 415, "unsupported-media-type",
         Content_Type="application/x-www-form-urlencoded", Sec_Fetch_Site="cross-site"),
    post("pickle", "/v1/runs", b"\x80\x04.", 415, "unsupported-media-type", Content_Type="application/python-pickle"),
    post("XML", "/v1/runs", b"<!DOCTYPE x>", 415, "unsupported-media-type", Content_Type="application/xml"),
    post("other charset", "/v1/runs", b'{"task":"x"}', 415, "unsupported-media-type",
         Content_Type="application/json; charset=utf-7"),
    # Fields that no caller may set.
    wrong("sets state", "/v1/runs", {**RUN, "state": "succeeded"}, "state"),
    wrong("sets id", "/v1/runs", {**RUN, "id": "x"}, "id"),
    wrong("sets namespace", "/v1/runs", {**RUN, "namespace": "rival"}, "namespace"),
    wrong("sets owner", "/v1/jobs", {**JOB, "manual": True, "app": "films"}, "app"),
    wrong("sets version", "/v1/jobs", {**JOB, "manual": True, "version": 9}, "version"),
    wrong("sets role", "/v1/jobs", {**JOB, "manual": True, "roles": {"*": ["admin"]}}, "roles"),
    wrong("sets worker's namespace", "/v1/workers", {"tasks": ["x"], "namespace": "rival"}, "namespace"),
    # Names that are none.
    wrong("empty name", "/v1/jobs", {**JOB, "manual": True, "name": ""}, "name"),
    wrong("blank name", "/v1/jobs", {**JOB, "manual": True, "name": " x "}, "name"),
    wrong("name of control characters", "/v1/jobs", {**JOB, "manual": True, "name": "a\x00b\n"}, "name"),
    wrong("long name", "/v1/jobs", {**JOB, "manual": True, "name": "x" * 201}, "name"),
    wrong("name as number", "/v1/jobs", {**JOB, "manual": True, "name": 5}, "name"),
    wrong("name as object", "/v1/jobs", {**JOB, "manual": True, "name": {"$ne": ""}}, "name"),
    wrong("task with zero", "/v1/runs", {"task": "a\x00"}, "task"),
    wrong("brackets in a text are no depth", "/v1/runs", BRACKETS_IN_A_TEXT, "priority"),
    wrong("tag with a line break", "/v1/runs", {**RUN, "tags": ["a\nb"]}, "tags[0]"),
    wrong("too many tags", "/v1/runs", {**RUN, "tags": ["x"] * 101}, "tags"),
    wrong("zero in a reason", "/v1/jobs/none/pause", {"reason": "a\x00b"}, "reason"),
    wrong("zero in a command", "/v1/runs", {"command": ["a", "b\x00"]}, "command"),
    wrong("empty command", "/v1/runs", {"command": "   "}, "command"),
    wrong("no words", "/v1/runs", {"command": []}, "command"),
    wrong("shell by argument", "/v1/runs", {"command": "echo", "args": {"shell": True}}, "args"),
    wrong("task and command", "/v1/runs", {"task": "x", "command": "y"}, "task"),
    wrong("argv that is none", "/v1/runs", {"task": "command", "args": {"argv": [1]}}, "args.argv"),
    # Numbers beyond all bounds.
    wrong("priority 0", "/v1/runs", {**RUN, "priority": 0}, "priority"),
    wrong("priority true", "/v1/runs", {**RUN, "priority": True}, "priority"),
    wrong("priority 1.5", "/v1/runs", {**RUN, "priority": 1.5}, "priority"),
    wrong("priority huge", "/v1/runs", {**RUN, "priority": BIG}, "priority"),
    wrong("limit huge", "/v1/jobs", {**JOB, "manual": True, "limit": BIG}, "limit"),
    wrong("completions huge", "/v1/jobs", {**JOB, "manual": True, "completions": 10**9}, "completions"),
    wrong("retries huge", "/v1/runs", {**RUN, "retry": BIG}, "retry"),
    wrong("negative retries", "/v1/runs", {**RUN, "retry": -1}, "retry"),
    wrong("delay negative", "/v1/runs", {**RUN, "delay": -5}, "delay"),
    wrong("delay of ages", "/v1/runs", {**RUN, "delay": "9999999999d"}, "delay"),
    wrong("delay huge", "/v1/runs", {**RUN, "delay": BIG}, "delay"),
    wrong("timeout of no time", "/v1/runs", {**RUN, "timeout": 0}, "timeout"),
    # Times that are none.
    wrong("no offset", "/v1/runs", {**RUN, "run_at": "2100-01-01T00:00:00"}, "run_at"),
    wrong("year 10000", "/v1/runs", {**RUN, "run_at": "10000-01-01T00:00:00Z"}, "run_at"),
    wrong("in the past", "/v1/runs", {**RUN, "run_at": "2001-01-01T00:00:00Z"}, "run_at"),
    wrong("in the past, as at", "/v1/runs", {**RUN, "at": "2001-01-01T00:00:00Z"}, "at"),
    wrong("year 2", "/v1/runs", {**RUN, "run_at": "0002-01-01T00:00:00Z"}, "run_at"),
    wrong("a batch in the past", "/v1/runs:batch", {"runs": [RUN, {**RUN, "run_at": "0002-01-01T00:00:00Z"}]},
          "runs[1].run_at"),
    wrong("year 1", "/v1/runs", {**RUN, "run_at": "0001-01-01T00:00:00Z"}, "run_at"),
    wrong("at and delay", "/v1/runs", {**RUN, "at": "2100-01-01T00:00:00Z", "delay": "1s"}, "delay"),
    wrong("30 February", "/v1/jobs", {**JOB, "schedule": "0 0 30 2 *"}, "schedule"),
    wrong("cron of a megabyte", "/v1/jobs", {**JOB, "schedule": "1," * 500_000 + "1 * * * *"}, "schedule"),
    wrong("cron that repeats itself", "/v1/jobs", {**JOB, "schedule": "*/" * 400}, "schedule"),
    wrong("zone as path", "/v1/jobs", {**JOB, "schedule": "* * * * *", "timezone": "../../etc/passwd"}, "timezone"),
    wrong("zone of zeros", "/v1/jobs", {**JOB, "schedule": "* * * * *", "timezone": "\x00"}, "timezone"),
    wrong("every nanosecond", "/v1/jobs", {**JOB, "every": "1us"}, "every"),
    wrong("every never", "/v1/jobs", {**JOB, "every": 0}, "every"),
    wrong("no trigger", "/v1/jobs", JOB, "schedule"),
    wrong("two triggers", "/v1/jobs", {**JOB, "every": "1s", "manual": True}, "manual"),
    wrong("after itself", "/v1/jobs", {**JOB, "after": ["j"]}, "after"),
    wrong("after twice", "/v1/jobs", {**JOB, "after": ["a", "a"]}, "after[1]"),
    # Code by name: names are looked up, never imported.
    wrong("error class of code", "/v1/runs", {**RUN, "retry": {"on": ["os:system"]}}, "retry.on"),
    Row("callable in a result", "PUT", "/v1/runs/none/complete", {"token": 1, "__reduce__": "os.system"}, 422,
        "invalid-input", "__reduce__"),
    Row("forged error type", "PUT", "/v1/runs/none/fail", {"token": 1, "error": {"type": "os;system", "message": ""}},
        422, "invalid-input", "error"),
    # Queries.
    get("SQL in a filter", "/v1/runs?task=x'%20OR%201=1--&state=succeeded;DROP%20TABLE%20runs", 422, "invalid-input",
        "state"),
    get("sort by column", "/v1/runs?sort=(SELECT%201)", 422, "invalid-input", "sort"),
    get("huge page", "/v1/runs?limit=1000000", 422, "invalid-input", "limit"),
    get("page of text", "/v1/runs?limit=ten", 422, "invalid-input", "limit"),
    get("forged cursor", "/v1/jobs/none/firings?cursor=AAAA", 404, "not-found"),
    get("cursor of zeros", "/v1/runs?cursor=AAAA", 422, "invalid-input", "cursor"),
    get("given twice", "/v1/runs?task=a&task=b", 422, "invalid-input", "task"),
    get("not UTF-8 in a query", "/v1/runs?task=%ff", 400, "bad-request"),
    get("zero in a query", "/v1/runs?task=%00", 422, "invalid-input", "task"),
    get("a thousand parameters", "/v1/runs?" + "&".join(f"a{n}=1" for n in range(1_000)), 400, "bad-request"),
    get("since nonsense", "/v1/runs?since=yesterday", 422, "invalid-input", "since"),
    get("query where none is taken", "/v1/runs/none?x=1", 400, "bad-request"),
    # Paths.
    get("climbing for logs", "/v1/runs/..%2f..%2fetc%2fpasswd/logs", 404, "not-found"),
    get("zero in an id", "/v1/runs/a%00b", 404, "not-found"),
    get("long id", "/v1/runs/" + "x" * 5_000, 404, "not-found"),
    get("emoji as id", "/v1/runs/%F0%9F%92%A9", 404, "not-found"),
    get("not UTF-8 as id", "/v1/runs/%ff", 404, "not-found"),
    get("wildcard as id", "/v1/runs/%25", 404, "not-found"),
    get("install again", "/v1/setup", 404, "not-found"),
    get("debugger", "/debug", 404, "not-found"),
    # Headers.
    get("namespace of zeros", "/v1/runs", 422, "invalid-input", "mainspring-namespace", Mainspring_Namespace="a\tb"),
    Row("body where none is taken", "DELETE", "/v1/jobs/none", {"x": 1}, 400, "bad-request"),
    Row("patch of nothing known", "PATCH", "/v1/jobs/none", {"job_id": "x"}, 422, "invalid-input", "job_id"),
    Row("patch of a job that is not", "PATCH", "/v1/jobs/none", {"priority": 1}, 404, "not-found"),
    Row("calendar that calls itself", "PUT", "/v1/calendars/c", {"rules": [{"kind": "calendar", "calendar": "c"}]}, 422,
        "invalid-input", "rules"),
    Row("calendar of nothing", "PUT", "/v1/calendars/c", {"rules": [{"kind": "not", "rules": []}]}, 422,
        "invalid-input", "rules[0].rules"),
    Row("assign for ever", "PUT", "/v1/workers/none/assign", {"wait": "forever"}, 422, "invalid-input", "wait"),
    Row("take all", "PUT", "/v1/workers/none/assign", {"limit": BIG}, 422, "invalid-input", "limit"),
    Row("progress beyond all", "PUT", "/v1/runs/none/progress", {"token": 1, "fraction": 2}, 422, "invalid-input",
        "fraction"),
    # Said twice, or in disguise: what one program on the way goes by must be what the other does.
    get("two tokens", "/v1/runs", 400, "bad-request", X="y\r\nAuthorization: Bearer other"),
    get("two namespaces", "/v1/runs", 400, "bad-request", Mainspring_Namespace="a\r\nMainspring-Namespace: rival"),
    post("two idempotency keys", "/v1/runs", RUN, 400, "bad-request", Idempotency_Key="a\r\nIdempotency-Key: b"),
    post("two lengths", "/v1/runs", RUN, 400, "bad-request", X="y\r\nContent-Length: 1"),
    post("a length, and chunks", "/v1/runs", RUN, 400, "bad-request", Transfer_Encoding="chunked"),
    post("compressed", "/v1/runs", RUN, 415, "unsupported-media-type", Content_Encoding="gzip"),
    Row("a path within a name", "POST", "/v1/jobs/j%2Fpause", None, 404, "not-found"),
    wrong("worker's name with a line break", "/v1/workers", {"tasks": ["x"], "name": "abc\n"}, "name"),
    Row("error type with a line break", "PUT", "/v1/runs/none/fail",
        {"token": 1, "error": {"type": "abc\n", "message": ""}}, 422, "invalid-input", "error"),
    # Work without end.
    Row("calendar of very many days", "PUT", "/v1/calendars/c",
        {"rules": [{"kind": "dates", "dates": ["12-25"] * 1_001}]}, 422, "invalid-input", "rules"),
    wrong("very many calendars", "/v1/jobs", {**JOB, "every": "1h", "calendars": ["c"] * 11}, "calendars"),
    post("a number of a million digits", "/v1/runs", b'{"task":"x","args":{"n":' + b"9" * 1_000_000 + b"}}", 400,
         "malformed-body"),
    post("too many runs", "/v1/runs:batch", {"runs": [{"task": "x"}] * 10_001}, 422, "invalid-input", "runs"),
]  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("hostile")
    if request.param == "sqlite":
        with open_door(folder) as door:
            yield door
    else:
        with a_database() as url, open_door(folder, store=url) as door:
            yield door


def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_attack_is_answered_as_it_should_be(door: Door, row: Row) -> None:
    token = door.token("admin", "worker")
    body = row.body if isinstance(row.body, bytes) else b"" if row.body is None else json.dumps(row.body).encode()
    headers = {"Host": "x", "Authorization": f"Bearer {token}", "Connection": "close"}
    if row.body is not None:
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    headers |= row.headers
    head = f"{row.method} {row.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    answer = door.raw(head.encode() + b"\r\n" + body)
    top, _, rest = answer.partition(b"\r\n\r\n")
    assert int(top.split(b" ")[1]) == row.status, answer
    document = json.loads(rest)
    assert document["type"] == f"urn:mainspring:problem:{row.kind}"
    assert "Traceback" not in rest.decode()
    assert all(each["fault"] and each["remedy"] for each in document.get("errors", ())), document
    if row.field is not None:
        named = [each["field"] for each in document["errors"]]
        assert any(name == row.field or name.startswith((f"{row.field}[", f"{row.field}.")) for name in named), named


def test_after_all_of_it_the_server_still_serves_and_nothing_was_stored(door: Door) -> None:
    client = door.client("admin")
    assert client.get("/v1/jobs").json()["items"] == []
    assert client.get("/v1/runs").json()["items"] == []
    assert client.get("/health/ready").status_code == 200
    text = client.get("/metrics").text
    assert not [line for line in text.splitlines() if 'status="5' in line and not line.endswith(" 0.0")]
