"""The manifests of deploy/kubernetes on a cluster: a dry run by the API server, then applied with all that follows."""

from __future__ import annotations

import asyncio
import copy
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from manifests import DEPLOY, OF_OPERATORS, ROOT, Manifest, kustomize, read
from test_cronjobs import jobs

from examples.running import find_service
from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Job, RunOptions
from mainspring.core.tasks.containers import ContainerSpec, Resources
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.containers.kubernetes import KubernetesExecutor
from mainspring.ops.kubernetes.reading import read_cronjob
from mainspring.ops.kubernetes.writing import write_cronjob
from mainspring.settings import Settings
from servers.kubernetes import (
    KubernetesCluster,
    KubernetesServer,
    find_cluster,
    find_kinds,
    fit_for_one_host,
)

pytestmark = pytest.mark.kubernetes
GROUPS = {
    "Deployment": "deployments", "Service": "services", "ServiceAccount": "serviceaccounts", "Role": "roles",
    "RoleBinding": "rolebindings", "ConfigMap": "configmaps", "Secret": "secrets", "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets", "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules",
    "ScaledObject": "scaledobjects",
}  # fmt: skip
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESTRICTED_WORK = '{"image": "tools:1", "command": ["echo", "done"]}'
PATIENCE_S = 90.0

APP = """
from mainspring import Mainspring, every

app = Mainspring(name="cluster")


@app.job(every("1s"))
async def tick() -> str:
    return "tock"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    program = find_cluster()
    if program is None:
        pytest.fail("there is no cluster: `make kubernetes` builds one in about ten minutes")
    folder = tmp_path_factory.mktemp("cluster")
    cluster = KubernetesCluster(folder, KubernetesServer(folder, program), program)
    try:
        yield cluster.start().server
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def kinds(server: KubernetesServer) -> None:
    """The server knows the kinds of KEDA and of the Prometheus operator."""
    files = find_kinds()
    if not files:
        pytest.fail("the kinds of KEDA and of the Prometheus operator are missing: `make kubernetes` fetches them")
    definitions = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    for each in definitions:
        post(server, CRDS, each)

    def is_served() -> bool:
        found = server.ask("GET", CRDS).json()["items"]
        established = [each["metadata"]["name"] for each in found if is_established(each)]
        return len(established) == len(definitions)

    until("the kinds are served", is_served)


def is_established(definition: Manifest) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@pytest.fixture
def store() -> Iterator[str]:
    """A database of its own."""
    name = f"cluster_{secrets.token_hex(6)}"
    home = urlunsplit(urlsplit(find_service("postgres"))._replace(path="/postgres"))

    async def run(statement: str) -> None:
        connection = await asyncpg.connect(home)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run(f"CREATE DATABASE {name}"))
    yield urlunsplit(urlsplit(home)._replace(path=f"/{name}"))
    asyncio.run(run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


def path_of(manifest: Manifest) -> str:
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{manifest['metadata']['namespace']}/{GROUPS[manifest['kind']]}"


def post(server: KubernetesServer, path: str, body: Manifest) -> Manifest:
    answer = server.ask("POST", path, body)
    assert answer.status_code == 201, f"{body['kind']} {body['metadata']['name']}: {answer.text}"
    found: Manifest = answer.json()
    return found


def until(what: str, holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.05)
    return value


def dry_run(server: KubernetesServer, manifest: Manifest, namespace: str = "default") -> httpx.Response:
    """What the server says of an object, without storing it."""
    placed = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    return server.ask("POST", f"{path_of(placed)}?dryRun=All&fieldValidation=Strict", placed)


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("overlay", ["dev", "production"])
def test_the_api_server_takes_every_object_of_an_overlay(server: KubernetesServer, overlay: str) -> None:
    objects = copy.deepcopy(kustomize(f"overlays/{overlay}"))
    [namespace] = [each for each in objects if each["kind"] == "Namespace"]
    name = f"dry-{overlay}"
    post(server, "/api/v1/namespaces", {**namespace, "metadata": {**namespace["metadata"], "name": name}})
    for each in objects:
        if each["kind"] != "Namespace":
            answer = dry_run(server, each, name)
            assert answer.status_code == 201, f"{each['kind']} {each['metadata']['name']}: {answer.text}"


def objects_of_operators() -> dict[str, Manifest]:
    """One of each kind of KEDA and of the Prometheus operator. The rules of deploy/prometheus are a PrometheusRule, as
    they are, if that is what a cluster wants."""
    found = {each["kind"]: each for each in kustomize("overlays/production") if each["kind"] in OF_OPERATORS}
    groups = [group for file in sorted((DEPLOY / "prometheus").glob("*.yml")) for group in read(file)[0]["groups"]]
    rules = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "mainspring"}}
    return {
        **found,
        "ScaledObject": read(ROOT / "metrics" / "keda" / "scaledobject.yaml")[0],
        "ScaledObject of Kafka": read(ROOT / "metrics" / "keda" / "kafka-lag.yaml")[0],
        "PrometheusRule": {**rules, "spec": {"groups": groups}},
    }


WRONG: dict[str, Callable[[Manifest], object]] = {
    "ServiceMonitor": lambda spec: spec["endpoints"][0].update(intervall="15s"),
    "PodMonitor": lambda spec: spec["podMetricsEndpoints"][0].update(interval="often"),
    "PrometheusRule": lambda spec: spec["groups"][0]["rules"][0].pop("expr"),
    "ScaledObject": lambda spec: spec["triggers"][0].pop("type"),
    "ScaledObject of Kafka": lambda spec: spec.update(maxReplicaCount="twelve"),
}


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("kind", WRONG)
def test_the_kinds_of_operators_fit_their_definitions(server: KubernetesServer, kind: str) -> None:
    manifest = copy.deepcopy(objects_of_operators()[kind])
    answer = dry_run(server, manifest)
    assert answer.status_code == 201, answer.text
    WRONG[kind](manifest["spec"])
    assert dry_run(server, manifest).status_code in (400, 422)


def test_a_field_that_does_not_exist_is_refused(server: KubernetesServer) -> None:
    """So the test above can fail."""
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "dta": {}}
    assert dry_run(server, wrong).status_code in (400, 422)


def ask(store: str, *words: str) -> Any:
    """What a command prints."""
    argv = [sys.executable, "-m", "mainspring", *words, "--json", "--store", store]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_applied_it_elects_a_leader_fires_and_runs_a_container(
    server: KubernetesServer, store: str, tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text(APP)
    objects = [fit_for_one_host(each, tmp_path / "work.py", store) for each in copy.deepcopy(kustomize("overlays/dev"))]
    began = time.monotonic()
    for each in sorted(objects, key=lambda each: each["kind"] != "Namespace"):
        post(server, "/api/v1/namespaces" if each["kind"] == "Namespace" else path_of(each), each)
    leases = "/apis/coordination.k8s.io/v1/namespaces/mainspring-dev/leases"

    def leader() -> Any:
        found = [each["spec"].get("holderIdentity") for each in server.ask("GET", leases).json()["items"]]
        return [each for each in found if each]

    until("a leader by its Lease", leader)
    until("a firing of the job", lambda: any(row["state"] == "succeeded" for row in ask(store, "run", "list") or ()))
    print(f"from apply to the end of the first run: {time.monotonic() - began:.1f} s")
    pods = server.ask("GET", "/api/v1/namespaces/mainspring-dev/pods").json()["items"]
    parts = [each["metadata"]["labels"]["app.kubernetes.io/component"] for each in pods]
    assert sorted(parts) == ["server", "server", "server", "worker"]
    assert {each["status"]["phase"] for each in pods} == {"Running"}
    words = ["--arg", "image=tools:1", "--arg", 'command=["echo", "hello from a container"]']
    run = until("a submission", lambda: ask(store, "run", "submit", "container", *words))
    run_id = run["run_id"]
    until("the end of the container", lambda: (ask(store, "run", "show", run_id) or {})["state"] == "succeeded")
    lines = [line["text"] for line in ask(store, "run", "logs", run_id)]
    assert "hello from a container" in lines


@pytest.mark.parametrize(
    ("security", "end"),
    [("&security=restricted", "succeeded"), ("", "it has not started within 3s: it has no pod")],
)
def test_containers_run_where_only_restricted_pods_may(
    server: KubernetesServer, tmp_path: Path, security: str, end: str
) -> None:
    [namespace] = [each for each in kustomize("overlays/production") if each["kind"] == "Namespace"]
    name = f"restricted-{secrets.token_hex(4)}"
    post(server, "/api/v1/namespaces", {**namespace, "metadata": {**namespace["metadata"], "name": name}})
    config = server.write_kubeconfig(tmp_path / "config")
    url = f"kubernetes://{name}?kubeconfig={config}{security}"
    patience = 90 * SECOND if security else 3 * SECOND
    claim = Claim(name, 1, "container", RESTRICTED_WORK, "{}", 0, 0, 5, 0, "default", None, None, 0, 0)

    async def execute() -> Outcome:
        executor = KubernetesExecutor(Settings(containers=url, container_start=patience))
        return await executor.run(AttemptContext(claim, RunOptions()))

    outcome = asyncio.run(execute())
    assert end in (outcome.kind, outcome.failure.message.partition(": ")[2] if outcome.failure else ""), outcome


CRONJOBS = "/apis/batch/v1/namespaces/default/cronjobs?dryRun=All&fieldValidation=Strict"


@given(jobs())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_job_survives_the_way_through_the_api_server_and_back(server: KubernetesServer, job: Job) -> None:
    """As the server would store it: with the defaults that it adds."""
    spec = msgspec.json.decode(job.args, type=ContainerSpec)
    # The namespace exists, a request does not exceed its limit, and the server has no default to write.
    words = {"namespace": "default", "resources": Resources(spec.resources.requests, {}), "pull": spec.pull or "Always"}
    fit = msgspec.structs.replace(spec, **words)
    sent = msgspec.structs.replace(job, args=msgspec.json.encode(fit).decode())
    stored = post(server, CRONJOBS, write_cronjob(sent).manifest)
    imported = read_cronjob(stored, "default", sent.created_at)
    assert _in_order(imported.job) == _in_order(sent)
    assert imported.lost == []


def _in_order(job: Job) -> dict[str, Any]:
    """The server sorts the keys of objects."""
    options = msgspec.structs.replace(job.options, tags=tuple(sorted(job.options.tags)))
    return {**msgspec.structs.asdict(job), "args": json.loads(job.args), "options": options}
