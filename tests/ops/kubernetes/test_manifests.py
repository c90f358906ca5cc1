"""The manifests of deploy/kubernetes: the figures that they promise, and references that lead somewhere."""

import json
import subprocess
from functools import cache
from pathlib import Path

import click
import pytest
from manifests import ROOT, Manifest, kustomize, read

from mainspring.brokers.kafka import GROUP, PARTITIONS
from mainspring.cli.main import cli
from mainspring.cli.processes.live import LAST_RESORT_S
from mainspring.cli.session import Session
from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.load.scaling import ScalingPolicy
from mainspring.settings import unknown_variables

COMPONENT = "app.kubernetes.io/component"


@cache
def base() -> list[Manifest]:
    listed = read(ROOT / "base" / "kustomization.yaml")[0]["resources"]
    return [each for name in listed for each in read(ROOT / "base" / name)]


def overlay(name: str) -> list[Manifest]:
    return kustomize(f"overlays/{name}")


def one(objects: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def container_of(deployment: Manifest) -> Manifest:
    containers: list[Manifest] = deployment["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]


def test_the_figures_of_workers_are_those_of_the_sources() -> None:
    container = container_of(one(base(), "Deployment", "mainspring-worker"))
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"cpu": "4", "memory": "8Gi"},
    }
    assert {"name": "MAINSPRING_CONCURRENCY", "value": "10"} in container["env"]


def test_the_autoscaler_of_pods_has_the_policy_of_the_local_one() -> None:
    spec, policy = one(base(), "HorizontalPodAutoscaler", "mainspring-worker")["spec"], ScalingPolicy()
    assert (spec["minReplicas"], spec["maxReplicas"]) == (5, 100)
    cpu, memory, depth = spec["metrics"]
    assert (cpu["resource"]["name"], cpu["resource"]["target"]["averageUtilization"]) == ("cpu", 70)
    assert (memory["resource"]["name"], memory["resource"]["target"]["averageUtilization"]) == ("memory", 80)
    assert int(depth["external"]["target"]["averageValue"]) == policy.depth_per_worker == 1000
    keda = read(ROOT / "metrics" / "keda" / "scaledobject.yaml")[0]["spec"]
    assert keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == spec["behavior"]
    lag = read(ROOT / "metrics" / "keda" / "kafka-lag.yaml")[0]["spec"]
    assert lag["advanced"] == keda["advanced"]
    [trigger] = lag["triggers"]
    assert (trigger["metadata"]["consumerGroup"], lag["maxReplicaCount"]) == (GROUP, PARTITIONS)
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (5, 100)
    up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
    assert (up["stabilizationWindowSeconds"], down["stabilizationWindowSeconds"]) == (60, 300)
    assert (policy.up_window, policy.down_window) == (60 * SECOND, 300 * SECOND)
    assert up["policies"] == [{"type": "Percent", "value": policy.up_percent, "periodSeconds": 60}]
    assert down["policies"] == [{"type": "Pods", "value": policy.down_workers, "periodSeconds": 120}]
    assert (policy.up_period, policy.down_period) == (60 * SECOND, 120 * SECOND)


def test_the_metric_that_the_autoscaler_reads_is_served_under_that_name() -> None:
    wanted = one(base(), "HorizontalPodAutoscaler", "mainspring-worker")["spec"]["metrics"][2]["external"]["metric"]
    rule, _ = read(ROOT / "metrics" / "prometheus-adapter" / "values.yaml")[0]["rules"]["external"]
    assert rule["name"]["as"] == wanted["name"]
    source = (Path(__file__).parents[3] / "src" / "mainspring" / "api" / "prometheus.py").read_text()
    assert f'"{wanted["name"]}"' in source


def queries() -> dict[str, str]:
    """What Prometheus is asked by the adapter, for an autoscaler in the namespace `mainspring`, and by KEDA."""
    rule, _ = read(ROOT / "metrics" / "prometheus-adapter" / "values.yaml")[0]["rules"]["external"]
    [label] = rule["resources"]["overrides"]
    asked = rule["metricsQuery"].replace("<<.Series>>", rule["name"]["as"])
    keda = read(ROOT / "metrics" / "keda" / "scaledobject.yaml")[0]["spec"]["triggers"][2]["metadata"]
    return {"adapter": asked.replace("<<.LabelMatchers>>", f'{label}="mainspring"'), "keda": keda["query"]}


def scraped(namespace: str, job: str, pod: str, depth: int, **labels: str) -> dict[str, str]:
    """A series as the Prometheus operator labels it."""
    shown = {"namespace": namespace, "job": job, "pod": pod, "instance": pod, "container": job, **labels}
    words = ",".join(f'{name}="{value}"' for name, value in shown.items())
    return {"series": f"mainspring_queue_depth{{{words}}}", "values": f"{depth}x5"}


@pytest.mark.parametrize("asking", ["adapter", "keda"])
def test_the_depth_counts_once_however_many_pods_of_a_namespace_report_it(asking: str, tmp_path: Path) -> None:
    places = [{"queue": "video", "region": "eu", "priority": "5"}, {"queue": "mail", "region": "eu", "priority": "1"}]
    pods = [("mainspring-server", "server-1"), ("mainspring-server", "server-2"), ("mainspring-worker", "worker-1")]
    series = [
        scraped(namespace, job, pod, depth, **place)
        for namespace, share in (("mainspring", 1), ("staging", 7))
        for job, pod in pods
        for place, depth in zip(places, (4000 * share, 300 * share), strict=True)
    ]
    expected = [{"expr": queries()[asking], "eval_time": "2m", "exp_samples": [{"labels": "{}", "value": 4300}]}]
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": expected}]}))
    played = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr


def test_servers_are_three_apart_and_spread_over_zones() -> None:
    spec = one(base(), "Deployment", "mainspring-server")["spec"]
    pod = spec["template"]["spec"]
    [apart] = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert (spec["replicas"], apart["topologyKey"]) == (3, "kubernetes.io/hostname")
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    assert one(base(), "PodDisruptionBudget", "mainspring-server")["spec"]["minAvailable"] == 2


def test_a_draining_worker_has_the_time_that_it_takes() -> None:
    pod = one(base(), "Deployment", "mainspring-worker")["spec"]["template"]["spec"]
    hook_s = int(
        container_of(one(base(), "Deployment", "mainspring-worker"))["lifecycle"]["preStop"]["exec"]["command"][1]
    )
    drain_s = parse_duration(one(base(), "ConfigMap", "mainspring")["data"]["MAINSPRING_DRAIN_GRACE"]) / SECOND
    assert pod["terminationGracePeriodSeconds"] >= hook_s + drain_s + LAST_RESORT_S


def check_references(objects: list[Manifest], *, secret_is_outside: bool) -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    pods = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]
    components = {pod["metadata"]["labels"][COMPONENT] for pod in pods}
    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] == "Deployment":
            check_pod(spec, names, secret_is_outside=secret_is_outside)
        elif each["kind"] == "HorizontalPodAutoscaler":
            assert (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]) in names
        elif each["kind"] == "Service":
            assert spec["selector"][COMPONENT] in components
            [pod] = [pod for pod in pods if pod["metadata"]["labels"][COMPONENT] == spec["selector"][COMPONENT]]
            assert spec["ports"][0]["targetPort"] in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        elif each["kind"] == "NetworkPolicy":
            assert spec["podSelector"]["matchLabels"][COMPONENT] in components
        elif each["kind"] in ("PodDisruptionBudget", "ServiceMonitor", "PodMonitor"):
            assert spec["selector"]["matchLabels"][COMPONENT] in components
        elif each["kind"] == "RoleBinding":
            assert (each["roleRef"]["kind"], each["roleRef"]["name"]) in names
            assert [("ServiceAccount", subject["name"]) in names for subject in each["subjects"]] == [True]
        elif each["kind"] == "ConfigMap":
            assert list(unknown_variables(each["data"])) == []


def check_pod(spec: Manifest, names: set[tuple[str, str]], *, secret_is_outside: bool) -> None:
    pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    if "serviceAccountName" in pod:
        assert ("ServiceAccount", pod["serviceAccountName"]) in names
    assert pod["securityContext"]["runAsNonRoot"] is True
    volumes = {each["name"] for each in pod["volumes"]}
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        ports = {each["name"] for each in container["ports"]}
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports
        for source in container["envFrom"]:
            if "configMapRef" in source:
                assert ("ConfigMap", source["configMapRef"]["name"]) in names
            elif not secret_is_outside:
                assert ("Secret", source["secretRef"]["name"]) in names
        assert list(unknown_variables({each["name"]: each["value"] for each in container.get("env", [])})) == []


def test_every_reference_of_the_base_leads_somewhere() -> None:
    check_references(base(), secret_is_outside=True)
    assert read(ROOT / "base" / "secret.example.yaml")[0]["metadata"]["name"] == "mainspring"


@pytest.mark.parametrize("name", ["dev", "production"])
def test_every_reference_of_an_overlay_leads_somewhere(name: str) -> None:
    objects = overlay(name)
    check_references(objects, secret_is_outside=name == "production")
    [namespace] = [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"]
    assert {each["metadata"].get("namespace", namespace) for each in objects} == {namespace}
    [config] = [each for each in objects if each["kind"] == "ConfigMap"]
    assert config["data"]["MAINSPRING_LEASE"] == f"kubernetes://{namespace}/mainspring"
    bindings = [each for each in objects if each["kind"] == "RoleBinding"]
    assert {binding["subjects"][0]["namespace"] for binding in bindings} == {namespace}


def test_production_has_ten_workers_and_three_zones() -> None:
    objects = overlay("production")
    scaler = one(objects, "HorizontalPodAutoscaler", "mainspring-worker")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (10, 100)
    assert scaler["metrics"][2]["external"]["target"]["averageValue"] == "5000"
    pod = one(objects, "Deployment", "mainspring-server")["spec"]["template"]["spec"]
    assert pod["topologySpreadConstraints"][0]["minDomains"] == 3
    assert pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"


def test_the_commands_of_the_pods_are_commands_of_the_program() -> None:
    for name in ("server", "worker"):
        verb, *words = container_of(one(base(), "Deployment", f"mainspring-{name}"))["args"]
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        command.make_context(verb, list(words), obj=Session())
