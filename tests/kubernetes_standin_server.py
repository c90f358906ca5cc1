"""A stand-in for the API server of Kubernetes, for machines where `make kubernetes` has not been run. It is not
Kubernetes: it keeps the rules that the lease adapter rests on (resourceVersion, 409, preconditions, watches, roles,
throttling), and those of Jobs with one pod (`kubernetes_standin_jobs`), and passes the suites that the real one
passes.

python kubernetes_standin_server.py PORT TOKENS, where TOKENS is a file of lines `token,user`
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from kubernetes_standin_jobs import JobController, end_later, now, read_log, selected

Object = dict[str, Any]
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
PATH = re.compile(r"/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?")
VERBS = {"POST": "create", "GET": "get", "PUT": "update", "DELETE": "delete"}


class Refused(Exception):
    """An answer with an error."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


class Cluster:
    """Objects by resource, namespace and name, and their watches."""

    def __init__(self, users: dict[str, str]) -> None:
        self.users = users
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.watchers: list[tuple[str, str, Object, asyncio.Queue[Object]]] = []
        self.version = 0
        self._uids = count(1)
        self.controller = JobController(self)

    def check(self, user: str | None, verb: str, resource: str, namespace: str) -> None:
        if user is None:
            raise Refused(401, "Unauthorized")
        if user == "admin":
            return
        flows = {name for kind, _, name in self.objects if kind == "flowschemas"}
        if "broken" in flows:
            raise Refused(503, "the server is currently unable to handle the request")
        if flows:
            raise Refused(429, "Too many requests, please try again later.")
        roles = {
            binding["roleRef"]["name"]
            for (kind, where, _), binding in self.objects.items()
            if kind == "rolebindings" and where == namespace
            for subject in binding["subjects"]
            if user in (subject["name"], f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}")
        }
        for role in roles:
            for rule in self.objects.get(("roles", namespace, role), {}).get("rules", ()):
                if resource in rule["resources"] and verb in rule["verbs"]:
                    return
        said = f'leases.coordination.k8s.io is forbidden: User "{user}" cannot {verb} resource "{resource}"'
        raise Refused(403, f'{said} in API group "coordination.k8s.io" in the namespace "{namespace}"')

    def get(self, key: tuple[str, str, str]) -> Object:
        if key not in self.objects:
            raise Refused(404, f'{key[0]} "{key[2]}" not found')
        return self.objects[key]

    def create(self, resource: str, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if not NAME.fullmatch(name) or len(name) > 253:
            raise Refused(422, f'"{name}" is invalid: metadata.name: a lowercase RFC 1123 subdomain must consist of …')
        if (resource, namespace, name) in self.objects:
            raise Refused(409, f'{resource} "{name}" already exists')
        for key, text in body.pop("stringData", {}).items():
            body.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        metadata = {**body["metadata"], "namespace": namespace, "uid": f"uid-{next(self._uids)}"}
        return self.write("ADDED", (resource, namespace, name), {**body, "metadata": metadata})

    def update(self, key: tuple[str, str, str], body: Object) -> Object:
        found = self.get(key)
        if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise Refused(409, f'Operation cannot be fulfilled on {key[0]} "{key[2]}": the object has been modified')
        return self.write("MODIFIED", key, {**body, "metadata": {**found["metadata"], **body["metadata"]}})

    def delete(self, key: tuple[str, str, str], body: Object) -> Object:
        found = self.get(key)
        for field, expected in (body.get("preconditions") or {}).items():
            if found["metadata"][field] != expected:
                raise Refused(409, f"the {field} in the precondition ({expected}) does not match that of the record")
        if key[0] == "pods" and body.get("gracePeriodSeconds") != 0:
            return end_later(self, key, found["spec"].get("terminationGracePeriodSeconds", 30))
        if body.get("propagationPolicy") == "Foreground":
            return self.write("MODIFIED", key, {**found, "metadata": {**found["metadata"], "deletionTimestamp": now()}})
        self.write("DELETED", key, found)
        return {"kind": "Status", "status": "Success"}

    def write(self, kind: str, key: tuple[str, str, str], body: Object) -> Object:
        if key[0] == "leases" and body["spec"].get("leaseDurationSeconds", 1) <= 0:
            raise Refused(422, "spec.leaseDurationSeconds: must be greater than 0")
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        written = {**body, "metadata": metadata}
        self.objects[key] = written
        if kind == "DELETED":
            del self.objects[key]
        for resource, namespace, query, queue in self.watchers:
            if resource == key[0] and namespace in ("", key[1]) and selected(written, query):
                queue.put_nowait({"type": kind, "object": written})
        return written


Receive = Callable[[], Awaitable[Object]]
Send = Callable[[Object], Awaitable[None]]


class Api:
    """The HTTP side."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def __call__(self, scope: Object, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            await self._answer(scope, json.loads(body or b"{}"), receive, send)
        except Refused as error:
            said = {"kind": "Status", "status": "Failure", "message": error.message, "code": error.status}
            await reply(send, error.status, said)

    async def _answer(self, scope: Object, body: Object, receive: Receive, send: Send) -> None:
        if scope["path"] == "/readyz":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        if scope["path"] == "/version":
            await reply(send, 200, {"major": "1", "minor": "0", "gitVersion": "v1.0.0-stand-in"})
            return
        found = PATH.fullmatch(scope["path"])
        if found is None:
            raise Refused(404, "the server could not find the requested resource")
        namespace, resource, name, part = found[2] or "", found[3], found[4], found[5]
        query = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
        verb = "watch" if query.get("watch") else VERBS[scope["method"]]
        verb = "list" if verb == "get" and name is None else verb
        login = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        cluster = self._cluster
        cluster.check(cluster.users.get(login), verb, f"{resource}/{part}" if part else resource, namespace)
        if part == "log":
            await self._copy_log(namespace, name, query, send)
        elif part == "token":
            raise Refused(404, "the stand-in has no service accounts")
        elif verb == "watch":
            await self._watch(resource, namespace, query, receive, send)
        elif verb == "create":
            await reply(send, 201, cluster.create(resource, namespace, body))
        elif verb == "list":
            items = [
                each
                for (kind, where, _), each in cluster.objects.items()
                if kind == resource and namespace in ("", where) and selected(each, query)
            ]
            await reply(send, 200, {"metadata": {"resourceVersion": str(cluster.version)}, "items": items})
        else:
            key = (resource, namespace, name)
            acts = {"get": lambda: cluster.get(key), "update": lambda: cluster.update(key, body)}
            acts["delete"] = lambda: cluster.delete(key, body)
            await reply(send, 200, acts[verb]())
        cluster.controller.look()

    async def _watch(self, resource: str, namespace: str, query: Object, receive: Receive, send: Send) -> None:
        """What has changed since the version, then each change, until the client goes."""
        queue: asyncio.Queue[Object] = asyncio.Queue()
        watcher = (resource, namespace, query, queue)
        since = int(query.get("resourceVersion", "0"))
        for (kind, where, _), each in self._cluster.objects.items():
            new = kind == resource and namespace in ("", where) and int(each["metadata"]["resourceVersion"]) > since
            if new and selected(each, query):
                queue.put_nowait({"type": "MODIFIED", "object": each})
        self._cluster.watchers.append(watcher)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        try:
            while not gone.done():
                coming = asyncio.ensure_future(queue.get())
                await asyncio.wait([coming, gone], return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    line = json.dumps(coming.result()).encode() + b"\n"
                    await send({"type": "http.response.body", "body": line, "more_body": True})
                else:
                    coming.cancel()
        finally:
            gone.cancel()
            self._cluster.watchers.remove(watcher)

    async def _copy_log(self, namespace: str, pod: str, query: Object, send: Send) -> None:
        self._cluster.get(("pods", namespace, pod))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async for part in read_log(self._cluster, namespace, pod, query):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def reply(send: Send, status: int, body: Object) -> None:
    headers = [(b"content-type", b"application/json")] + ([(b"retry-after", b"1")] if status == 429 else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


if __name__ == "__main__":
    lines = [line.split(",") for line in Path(sys.argv[2]).read_text().splitlines()]
    api = Api(Cluster({line[0]: line[1] for line in lines}))
    uvicorn.run(api, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", timeout_graceful_shutdown=1)
