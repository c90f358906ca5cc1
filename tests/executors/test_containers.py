"""Containers: as Jobs on the API server of Kubernetes with a node that runs them, and by podman's arguments."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from scene import Attempt, Scene, crowd_of, is_alive, scene_of, until
from test_worker_deaths import has_ended, up
from test_worker_deaths import until as eventually

from kubernetes_standin import make_cluster
from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND
from mainspring.core.tasks.containers import ContainerSpec
from mainspring.core.tasks.specs import check_spec
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.executor import Outcome
from mainspring.executors.containers.jobs import RESTRICTED, TOKEN, write_job
from mainspring.executors.containers.kubernetes import KubernetesExecutor
from mainspring.services.worker.sweeper import Sweeper
from mainspring.settings import Settings
from sdk_work import stored_run
from servers.kubernetes import ACCOUNT, KubernetesCluster, KubernetesServer

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
HUNDRED_MEGABYTES = "import time; kept = bytearray(100_000_000); time.sleep(60)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    cluster = make_cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def server(cluster: KubernetesCluster) -> KubernetesServer:
    return cluster.server


@pytest.fixture
def settings(server: KubernetesServer, tmp_path: Path) -> dict[str, Any]:
    config = server.write_kubeconfig(tmp_path / "config")
    return {"containers": f"kubernetes://default?kubeconfig={config}"}


@pytest.fixture
async def scene(settings: dict[str, Any]) -> AsyncIterator[Scene]:
    async with scene_of(**settings) as scene:
        yield scene


def a_container(*command: str, words: dict[str, Any] | None = None, **spec: Any) -> Attempt:
    spec = {"image": "tools:1", "command": list(command), **spec}
    check_spec("container", spec)
    return Attempt("container", spec, **(words or {}))


def shell(script: str, **spec: Any) -> Attempt:
    return a_container("sh", "-c", script, **spec)


def again(before: Attempt, **changes: Any) -> Attempt:
    """The next claim of the same run."""
    copy = Attempt("container", json.loads(before.claim.args))
    copy.claim = msgspec.structs.replace(before.claim, **{"token": before.claim.token + 1, **changes})
    return copy


def named(attempt: Attempt) -> str:
    return f"mainspring-{attempt.claim.run_id}"


def pods_of(server: KubernetesServer, attempt: Attempt) -> list[Any]:
    return pods_named(server, named(attempt))


def pods_named(server: KubernetesServer, job: str) -> list[Any]:
    found = server.ask("GET", f"{PODS}?labelSelector=batch.kubernetes.io/job-name={job}").json()["items"]
    return [each for each in found if each["metadata"].get("deletionTimestamp") is None]


async def stop(running: asyncio.Task[Outcome], attempt: Attempt, kind: Any) -> None:
    """What the runner does."""
    attempt.stop_kind = kind
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def leave(scene: Scene, attempt: Attempt) -> None:
    """Start a container that prints `started`, and let go of it as a lost worker does."""
    running = scene.begin(attempt)
    await until(lambda: attempt.said() == ["started"], 60)
    await stop(running, attempt, "fenced")


async def test_a_run_is_a_job_with_all_that_it_names(scene: Scene, server: KubernetesServer) -> None:
    server.ask(
        "POST", "/api/v1/namespaces/default/secrets",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"password": "xyzzy"}},
    )  # fmt: skip
    attempt = shell(
        'echo "$COLOUR ${#PASSWORD} $MAINSPRING_RUN_ID $JOB_COMPLETION_INDEX" "$@"; pwd',
        args=["sh", "a b"],
        env={"COLOUR": "red", "PASSWORD": {"secret": "login", "key": "password"}},
        cwd="/usr",
        resources={"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
        service_account="reports",
        node_selector={"kubernetes.io/hostname": "node"},
        ttl_after_finished=77,
        words={"timeout": "90s"},
    )
    outcome = await scene.execute(attempt)
    assert (outcome.kind, outcome.result) == ("succeeded", "null"), attempt.lines
    assert attempt.said() == [f"red 5 {attempt.claim.run_id} 0 a b", "/usr"]
    job = server.ask("GET", f"{JOBS}/{named(attempt)}").json()
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (0, 92, 77)
    assert job["metadata"]["labels"]["mainspring/run"] == attempt.claim.run_id
    assert job["metadata"]["labels"][TOKEN] == str(attempt.claim.token)
    assert (pod["restartPolicy"], pod["serviceAccountName"]) == ("Never", "reports")
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "node"}
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "64Mi"}
    assert "xyzzy" not in json.dumps(job)


def test_the_job_of_an_attempt_ends_when_the_total_timeout_of_its_run_does() -> None:
    attempt = Attempt("container", {"image": "i"}, timeout="90s", total_timeout="10m")
    attempt.started_at = 1_000 * SECOND
    for left, seconds in ((30, 32), (90, 92), (100, 92)):
        end = attempt.started_at + left * SECOND
        attempt.options = msgspec.structs.replace(attempt.options, give_up_at=end)
        assert write_job(attempt, ContainerSpec(image="i"))["spec"]["activeDeadlineSeconds"] == seconds


async def test_containers_are_restricted_where_the_worker_says_so(
    settings: dict[str, Any], server: KubernetesServer
) -> None:
    attempt = shell("echo done")
    async with scene_of(containers=f"{settings['containers']}&security=restricted") as scene:
        assert (await scene.execute(attempt)).kind == "succeeded", attempt.lines
    pod = server.ask("GET", f"{JOBS}/{named(attempt)}").json()["spec"]["template"]["spec"]
    assert pod["containers"][0]["securityContext"] == RESTRICTED
    with pytest.raises(InvalidInput, match="'baseline' is no standard of pod security"):
        KubernetesExecutor(Settings(containers=f"{settings['containers']}&security=baseline"))


async def test_ends_are_distinguished(settings: dict[str, Any]) -> None:
    attempts = {
        "code": shell("echo this went wrong; exit 3"),
        "memory": a_container(sys.executable, "-c", HUNDRED_MEGABYTES, resources={"limits": {"memory": "64Mi"}}),
        "missing": shell("true", image="missing:1"),
        "invalid": shell("true", image="NoSuchThing"),
    }
    async with scene_of(**settings) as scene, scene_of(**settings, container_start=5 * SECOND) as hurried:
        executed = [(hurried if name == "missing" else scene).execute(each) for name, each in attempts.items()]
        ends = dict(zip(attempts, await asyncio.gather(*executed), strict=True))
    failures = {name: end.failure for name, end in ends.items() if end.failure is not None}
    assert failures["code"].message == "the container exited with code 3: this went wrong"
    assert failures["memory"].type == "ContainerOOMKilled"
    assert "limit of 64Mi (OOMKilled)" in failures["memory"].message
    assert "not started within 5s: ErrImagePull: missing:1: not found" in failures["missing"].message
    assert [ends[name].final for name in ends] == [False, False, False, True]


async def test_output_arrives_while_it_runs_and_a_cancelled_run_deletes_its_job(
    scene: Scene, server: KubernetesServer
) -> None:
    attempt = shell("echo first; sleep 60; echo never")
    running = scene.begin(attempt)
    await until(lambda: attempt.said() == ["first"], 30)
    assert len(pods_of(server, attempt)) == 1
    await stop(running, attempt, "cancelled")
    assert server.ask("GET", f"{JOBS}/{named(attempt)}").status_code == 404
    assert pods_of(server, attempt) == []


async def test_a_deadline_deletes_the_job(settings: dict[str, Any], server: KubernetesServer) -> None:
    async with crowd_of(**settings) as crowd:
        attempt = shell("sleep 60", words={"timeout": "2s"})
        report = await crowd.run(attempt, 30)
    assert report.outcome == "timed_out"
    assert server.ask("GET", f"{JOBS}/{named(attempt)}").status_code == 404


class TestLostWorkers:
    async def test_the_next_worker_adopts_the_container(
        self, scene: Scene, server: KubernetesServer, tmp_path: Path
    ) -> None:
        starts, go = tmp_path / "starts", tmp_path / "go"
        first = shell(f"echo started; echo x >>{starts}; until test -e {go}; do sleep 0.05; done; echo done")
        await leave(scene, first)
        [pod] = pods_of(server, first)
        second = again(first, attempt=1, losses=1)
        running = scene.begin(second)
        await until(lambda: second.said() == ["started"], 30)
        # The first worker, which was only paused, neither takes it back nor ends it.
        late = await scene.execute(again(first, token=first.claim.token))
        assert late.failure is not None
        assert late.failure.type == "ContainerTaken"
        go.touch()
        outcome = await running
        assert (outcome.kind, second.said()) == ("succeeded", ["started", "done"])
        assert "an earlier worker started" in second.said("log")[0]
        assert [each["metadata"]["uid"] for each in pods_of(server, first)] == [pod["metadata"]["uid"]]
        assert starts.read_text() == "x\n"

    async def test_an_unreported_end_is_that_of_the_next_attempt(self, scene: Scene, tmp_path: Path) -> None:
        starts = tmp_path / "starts"
        first = shell(f"echo x >>{starts}; exit 4")
        assert (await scene.execute(first)).kind == "failed"
        adopted = await scene.execute(again(first, attempt=1, losses=1))
        assert adopted.failure is not None
        assert adopted.failure.message == "the container exited with code 4"
        assert starts.read_text() == "x\n"
        # A retry is another matter: the failure was reported, so the container runs again.
        assert (await scene.execute(again(first, token=9, attempt=1))).kind == "failed"
        assert starts.read_text() == "x\nx\n"

    async def test_an_old_worker_cannot_delete_what_was_adopted(self, scene: Scene, server: KubernetesServer) -> None:
        first = shell("echo started; sleep 60")
        running = scene.begin(first)
        await until(lambda: first.said() == ["started"], 30)
        second = again(first, attempt=1, losses=1)
        adopting = scene.begin(second)
        await until(lambda: second.said() == ["started"], 30)
        await stop(running, first, "cancelled")
        assert len(pods_of(server, first)) == 1
        await stop(adopting, second, "cancelled")
        assert pods_of(server, first) == []

    async def test_a_worker_process_that_is_killed_leaves_its_container_to_the_next_worker(
        self, settings: dict[str, Any], server: KubernetesServer, tmp_path: Path
    ) -> None:
        """Another worker waits for the run: it takes it as soon as the claim has expired, while the container runs."""
        (tmp_path / "app.py").write_text("from mainspring import Mainspring\n\napp = Mainspring()\n")
        alone, starts, go = tmp_path / "alone", tmp_path / "starts", tmp_path / "go"
        script = f"mkdir {alone} && echo x >>{starts} || exit 9; until test -e {go}; do sleep 0.05; done; rmdir {alone}"
        words = {"MAINSPRING_CONTAINERS": settings["containers"]}
        async with (
            Mainspring(f"sqlite:///{tmp_path / 'test.db'}") as app,
            up(tmp_path, **words) as one,
            up(tmp_path, **words) as other,
        ):
            run = await app.submit("container", {"image": "tools:1", "command": ["sh", "-c", script]}, timeout="10m")
            await until(starts.exists, 60)
            lost = await stored_run(app, run.id)
            assert lost.worker is not None
            [victim] = [each for each in (one, other) if f":{each.pid}:" in lost.worker]
            [before] = pods_named(server, f"mainspring-{run.id}")
            victim.kill()
            await victim.wait()

            async def is_adopted() -> bool:
                job = server.ask("GET", f"{JOBS}/mainspring-{run.id}").json()
                return int(job.get("metadata", {}).get("labels", {}).get(TOKEN, 0)) > lost.token

            await eventually(is_adopted, 60)
            [after] = pods_named(server, f"mainspring-{run.id}")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            go.touch()
            await eventually(lambda: has_ended(app, run.id), 60)
            ended = await stored_run(app, run.id)
        assert (ended.state, starts.read_text()) == ("succeeded", "x\n"), ended.reason
        assert ended.losses >= 1  # More where a busy machine delays a heartbeat.


RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
ROLE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "components" / "containers" / "rbac.yaml"


async def use_all(scene: Scene) -> AsyncGenerator[str, None]:
    """Does what the rights are for: a container, its adoption, its retry, the search for what is left. Yields what is
    refused."""
    first = shell("echo done")
    for attempt in (first, again(first, attempt=1, losses=1), again(first, token=9, attempt=1)):
        outcome = await scene.execute(attempt)
        yield f"{outcome.failure.message if outcome.failure else ''} {attempt.said('log')}"
    assert scene.registry.leftovers is not None
    try:
        await scene.registry.leftovers.find()
    except LeaseUnavailable as error:
        yield str(error)


async def test_the_rights_of_the_manifest_are_enough_and_each_is_needed(
    server: KubernetesServer, tmp_path: Path
) -> None:
    _, role, binding = yaml.safe_load_all(ROLE.read_text())
    binding["subjects"][0]["name"] = "mainspring"  # The account that has a token here.
    for kind, body in (("roles", role), ("rolebindings", binding)):
        assert server.ask("POST", f"{RBAC}/{kind}", body).status_code == 201
    config = server.write_kubeconfig(tmp_path / "account", ACCOUNT)
    missing = [(rule["resources"][0], verb) for rule in role["rules"] for verb in rule["verbs"]]
    async with scene_of(containers=f"kubernetes://default?kubeconfig={config}") as scene, asyncio.timeout(120):
        while "cannot" in "".join([said async for said in use_all(scene)]):
            await asyncio.sleep(0.05)  # The authoriser learns of a changed role a moment later.
        for resource, verb in missing:
            changed = server.ask("GET", f"{RBAC}/roles/{role['metadata']['name']}").json()
            rules = [{**rule, "verbs": list(rule["verbs"])} for rule in role["rules"]]
            [rule] = [rule for rule in rules if rule["resources"] == [resource]]
            rule["verbs"].remove(verb)
            kept = [rule for rule in rules if rule["verbs"]]
            path = f"{RBAC}/roles/{role['metadata']['name']}"
            assert server.ask("PUT", path, {**changed, "rules": kept}).status_code == 200
            expected = f'cannot {verb} resource "{resource}"'
            while not await says(scene, expected):
                await asyncio.sleep(0.05)


async def says(scene: Scene, expected: str) -> bool:
    async with aclosing(use_all(scene)) as all_said:
        async for said in all_said:
            if expected in said:
                return True
    return False


class TestRunsThatEndWithoutAWorker:
    async def test_their_containers_end_and_no_others(
        self, scene: Scene, server: KubernetesServer, tmp_path: Path
    ) -> None:
        async with Mainspring(f"sqlite:///{tmp_path / 'test.db'}") as app:
            begun: dict[str, Attempt] = {}
            for each in ("cancelled", "due", "unknown"):
                begun[each] = shell("echo started; sleep 600")
                if each != "unknown":
                    run = await app.submit("container", {"image": "tools:1"})
                    begun[each].claim = msgspec.structs.replace(begun[each].claim, run_id=run.id)
                await leave(scene, begun[each])
            await app.runs.cancel(begun["cancelled"].claim.run_id)
            leftovers = scene.registry.leftovers
            assert leftovers is not None
            parts = (await app.open(), leftovers, "worker", Settings(), SystemClock(), Random(1))
            await Sweeper(*parts).turn()
            await until(lambda: gone(server, begun["cancelled"]), 60)
            assert [len(pods_of(server, begun[each])) for each in ("due", "unknown")] == [1, 1]
            # The lease keeps a second worker from looking as often.
            assert await (await app.open()).holders("sweep:") != []
        for each in ("due", "unknown"):
            server.ask("DELETE", f"{JOBS}/{named(begun[each])}", {"propagationPolicy": "Background"})

    async def test_a_container_that_is_adopted_meanwhile_goes_on(self, scene: Scene, server: KubernetesServer) -> None:
        first, leftovers = shell("echo started; sleep 600"), scene.registry.leftovers
        assert leftovers is not None
        await leave(scene, first)
        [found] = [each for each in await leftovers.find() if each.run_id == first.claim.run_id]
        second = again(first, attempt=1, losses=1)
        adopting = scene.begin(second)
        await until(lambda: second.said() == ["started"], 60)
        assert not await leftovers.end(found)
        assert len(pods_of(server, first)) == 1
        await stop(adopting, second, "cancelled")
        assert not await leftovers.end(found)

    async def test_a_worker_ends_what_a_killed_one_left(
        self, settings: dict[str, Any], server: KubernetesServer, tmp_path: Path
    ) -> None:
        (tmp_path / "app.py").write_text("from mainspring import Mainspring\n\napp = Mainspring()\n")
        words = {"MAINSPRING_CONTAINERS": settings["containers"]}
        starts = tmp_path / "starts"
        async with Mainspring(f"sqlite:///{tmp_path / 'test.db'}") as app:
            script = f"echo x >>{starts}; exec sleep 600"
            run = await app.submit("container", {"image": "tools:1", "command": ["sh", "-c", script]})
            async with up(tmp_path, **words) as lost:
                await until(starts.exists, 60)
                lost.kill()
                await lost.wait()
            await app.runs.cancel(run.id)
            async with up(tmp_path, **words):
                path = f"{JOBS}/mainspring-{run.id}"
                await eventually(lambda: server.ask("GET", path).status_code == 404, 60)
            assert (await stored_run(app, run.id)).state == "cancelled"
        assert pods_named(server, f"mainspring-{run.id}") == []


def gone(server: KubernetesServer, attempt: Attempt) -> bool:
    return server.ask("GET", f"{JOBS}/{named(attempt)}").status_code == 404


def test_the_processes_of_pods_end_with_the_node_of_the_tests(tmp_path: Path) -> None:
    cluster, pid = make_cluster(tmp_path), tmp_path / "pid"
    try:
        server = cluster.start().server
        container = {"name": "main", "image": "tools:1", "command": ["sh", "-c", f"echo $$ >{pid}; sleep 600"]}
        pod = {"restartPolicy": "Never", "containers": [container]}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "long"},
            "spec": {"template": {"spec": pod}},
        }
        assert server.ask("POST", JOBS, body).status_code == 201
        asyncio.run(until(lambda: pid.exists() and pid.read_text().endswith("\n"), 60))
    finally:
        cluster.stop()
    asyncio.run(until(lambda: not is_alive(int(pid.read_text())), 10))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"image": "other/tools:1"}, "image other/tools:1 is not allowed on this worker (allowed: team/*)"),
        ({"namespace": "kube-system"}, "namespace kube-system is not allowed on this worker (allowed: default)"),
        ({"env": {"KEY": {"$secret": "key"}}}, "would be readable in the Job"),
    ],
)
async def test_what_a_worker_may_not_run_is_refused(settings: dict[str, Any], spec: Any, said: str) -> None:
    async with scene_of(**settings, container_images=("team/*",)) as scene:
        attempt = Attempt("container", {"image": "team/tools:1", **spec})
        outcome = await scene.execute(attempt)
    assert outcome.failure is not None
    assert said in outcome.failure.message
    assert (outcome.failure.type, outcome.final) == ("ContainerRefused", True)


def test_what_no_container_could_be_is_refused_when_it_is_submitted() -> None:
    for spec in ({}, {"image": "-rf"}, {"image": "a", "env": {"A=B": "c"}}, {"image": "a", "colour": "red"}):
        with pytest.raises(InvalidInput, match="container"):
            check_spec("container", spec)


PODMAN = """#!/bin/sh
echo "$@" >>{log}
case $1 in
  run) echo "to stdout $COLOUR"; echo "to stderr" >&2; {noted}; exit {code} ;;
  inspect) echo {told} ;;
esac
"""


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A program that notes its arguments. It shows their order; whether podman takes them, it does not."""
    log = tmp_path / "calls"

    def install(code: int = 0, noted: str = "true", told: str = "false") -> Path:
        program = tmp_path / "bin" / "podman"
        program.parent.mkdir()
        program.write_text(PODMAN.format(log=log, code=code, noted=noted, told=told))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return log

    return install


async def test_podman_gets_the_same_container_as_arguments(podman: Any) -> None:
    log = podman()
    attempt = shell(
        "work",
        args=["one"],
        env={"COLOUR": "red"},
        cwd="/srv",
        pull="IfNotPresent",
        resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}},
        namespace="reports",
    )
    async with scene_of(containers="podman") as scene:
        outcome = await scene.execute(attempt)
    name = named(attempt)
    known = [f"--env {each}" for each in ("MAINSPRING_RUN_ID", "MAINSPRING_ATTEMPT", "MAINSPRING_INDEX")]
    words = [
        f"run --name {name} --label mainspring=run {' '.join(known)} --env JOB_COMPLETION_INDEX --env COLOUR",
        "--workdir /srv --pull missing --cpus 1.5 --cpu-shares 512 --memory 2147483648b --memory-reservation",
        "1073741824b --entrypoint sh tools:1 -c work one",
    ]
    assert log.read_text().splitlines() == [f"rm --force {name}", " ".join(words), f"rm --force {name}"]
    assert outcome.kind == "succeeded"
    assert (attempt.said(), attempt.said("stderr")) == (["to stdout red"], ["to stderr"])
    assert attempt.said("log") == ["podman ignores namespace"]


@pytest.mark.parametrize(
    ("end", "kind", "said"),
    [
        ({"code": 3}, "ContainerFailed", "exited with code 3: to stderr"),
        ({"code": 125}, "ContainerNotRun", "podman: to stderr"),
        ({"code": 137}, "ContainerFailed", "exited with code 137: to stderr"),
        ({"code": 137, "told": "true"}, "ContainerOOMKilled", "OOMKilled"),
        ({"code": 137, "noted": "touch oom"}, "ContainerOOMKilled", "OOMKilled"),
        ({"code": 3, "noted": "touch oom"}, "ContainerFailed", "exited with code 3: to stderr"),
    ],
)
async def test_the_ends_of_podman(podman: Any, end: dict[str, Any], kind: str, said: str) -> None:
    podman(**end)
    async with scene_of(containers="podman") as scene:
        outcome = await scene.execute(shell("work"))
    assert outcome.failure is not None
    assert outcome.failure.type == kind
    assert said in outcome.failure.message
