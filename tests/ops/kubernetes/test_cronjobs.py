"""Jobs as CronJobs and back: nothing that both can say is lost, and what one cannot say is named."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import check_schema

from mainspring.cli.main import run
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import AtTrigger, CronTrigger, EveryTrigger
from mainspring.core.tasks.containers import ContainerSpec, Resources, SecretKey
from mainspring.errors import InvalidInput
from mainspring.ops.kubernetes.reading import SUSPENDED, read_cronjob
from mainspring.ops.kubernetes.writing import NO_COUNTERPART, kubernetes_retry, write_cronjob

NOW = 1_800_000_000 * SECOND
SOURCE = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: daily-report-job, namespace: production}
spec:
  schedule: "0 2 * * *"
  timeZone: "UTC"
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 1
  jobTemplate:
    spec:
      backoffLimit: 3
      activeDeadlineSeconds: 7200
      template:
        metadata: {labels: {app: daily-report, job-type: scheduled}}
        spec:
          restartPolicy: OnFailure
          containers:
          - name: report-generator
            image: mycompany/report-service:1.0.0
            imagePullPolicy: IfNotPresent
            command: ["java"]
            args: ["-jar", "/app/report-service.jar"]
            env:
            - {name: DB_HOST, valueFrom: {secretKeyRef: {name: db-credentials, key: host}}}
            resources: {requests: {memory: 512Mi, cpu: 500m}, limits: {memory: 1Gi, cpu: 1000m}}
            lifecycle: {preStop: {exec: {command: ["sleep", "30"]}}}
          serviceAccountName: report-service
"""

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
texts = st.text(min_size=0, max_size=20).filter(lambda text: "\0" not in text)
quantities = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "500m", "2Gi"]))
containers = st.builds(
    ContainerSpec,
    image=words,
    command=st.lists(texts, max_size=3),
    args=st.lists(texts, max_size=3),
    env=st.dictionaries(words, texts | st.builds(SecretKey, words, words), max_size=3),
    cwd=st.none() | words,
    resources=st.builds(Resources, quantities, quantities),
    pull=st.sampled_from([None, "Always", "IfNotPresent", "Never"]),
    service_account=st.none() | words,
    node_selector=st.dictionaries(words, words, max_size=2),
    namespace=st.none() | words,
    ttl_after_finished=st.none() | st.integers(0, 100_000),
)
crons = st.sampled_from(["0 2 * * *", "*/5 8-18 * * MON-FRI", "@daily", "15,45 0 1 JAN,jul 0", "0 0 1-7/2 * 6"])
triggers = st.builds(CronTrigger, crons, st.sampled_from(["UTC", "Europe/Berlin"])) | st.builds(
    lambda seconds: EveryTrigger(seconds * SECOND), st.integers(1, 1_000_000)
)
seconds = st.integers(1, 1_000_000).map(lambda count: count * SECOND)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    completions = draw(st.integers(1, 20))
    paused = draw(st.booleans())
    timeout = draw(st.none() | seconds)
    return Job(
        id="",
        name=draw(words | st.text("aZ_ ü.-", min_size=1, max_size=80)),
        task="container",
        trigger=draw(triggers),
        args=msgspec.json.encode(draw(containers)).decode(),
        policy=JobPolicy(
            overlap=draw(st.sampled_from(["allow", "forbid", "replace"])),
            start_deadline=draw(st.none() | seconds),
            keep_succeeded=draw(st.integers(0, 50)),
            keep_failed=draw(st.integers(0, 50)),
            completions=completions,
            parallelism=draw(st.none() | st.integers(1, completions - 1)) if completions > 1 else None,
        ),
        options=RunOptions(
            timeout=timeout,
            total_timeout=draw(st.none() | seconds.map(lambda more: (timeout or SECOND) + more - SECOND)),
            retry=kubernetes_retry(draw(st.integers(0, 10))),
            tags=tuple(f"{name}={value}" for name, value in draw(st.dictionaries(words, words, max_size=3)).items()),
        ),
        paused_at=NOW if paused else None,
        paused_why=SUSPENDED if paused else "",
        created_at=NOW,
        updated_at=NOW,
    )


@given(jobs())
def test_what_both_can_say_survives_the_way_there_and_back(job: Job) -> None:
    exported = write_cronjob(job)
    assert exported.lost == []
    imported = read_cronjob(json.loads(json.dumps(exported.manifest)), "default", NOW)
    assert imported.lost == []
    assert imported.job == job
    assert write_cronjob(imported.job).manifest == exported.manifest
    assert len(exported.manifest["metadata"]["name"]) <= 52


@given(jobs(), st.data())
def test_what_a_cronjob_cannot_say_is_named(job: Job, data: st.DataObject) -> None:
    strange: dict[str, dict[str, Any]] = {
        "jitter": {"jitter": SECOND},
        "calendars": {"calendars": ("bank",)},
        "regions": {"regions": ("eu",)},
        "misfire": {"misfire": "all"},
        "overlap": {"overlap": "queue"},
        "keep_failed": {"keep_failed": None},
        "start_deadline": {"start_deadline": SECOND + 1},
    }
    name = data.draw(st.sampled_from(sorted(strange)))
    changed = msgspec.structs.replace(job, policy=msgspec.structs.replace(job.policy, **strange[name]))
    assert [each.partition(":")[0] for each in write_cronjob(changed).lost] == [name]


def test_options_of_runs_without_a_counterpart_are_named() -> None:
    options = RunOptions(retry=Retry(3), soft_timeout=MINUTE, tags=("plain", "team=a", "team=b"), alert="mail")
    args = '{"image": "i"}'
    job = Job("", "j", "container", CronTrigger("@daily"), args=args, priority=1, key="k", limit=2, options=options)
    lost = {each.partition(":")[0] for each in write_cronjob(job).lost}
    assert lost == {
        "retry",
        "soft_timeout",
        "tags",
        "alert",
        "priority",
        "key",
        "limit",
        "keep_succeeded",
        "keep_failed",
    }


def test_the_waits_between_no_retries_are_no_loss() -> None:
    policy = JobPolicy(keep_succeeded=3, keep_failed=1)
    for retries, lost in ((0, []), (1, ["retry"])):
        options = RunOptions(retry=Retry(retries, delay="1m"))
        job = Job("", "j", "container", CronTrigger("@daily"), args='{"image": "i"}', policy=policy, options=options)
        assert [each.partition(":")[0] for each in write_cronjob(job).lost] == lost


def test_every_option_is_written_or_named() -> None:
    written = {
        "overlap", "start_deadline", "keep_succeeded", "keep_failed", "completions", "parallelism", "timeout",
        "total_timeout", "retry", "tags", "misfire",
    }  # fmt: skip
    of_runs = {"said", "give_up_at", "context", "unfit_since", "home_region", "moved_at", "moved_because"}
    options = {*JobPolicy.__struct_fields__, *RunOptions.__struct_fields__}
    assert options == written | of_runs | NO_COUNTERPART.keys()


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        (CronTrigger("*/5 * * * * *"), "has seconds"),
        (CronTrigger("0 0 L * *"), "uses more than"),
        (CronTrigger("0 0 * * 5#2"), "uses more than"),
        (CronTrigger("0 0 * * 7"), "has 7 for Sunday"),
        (CronTrigger("0 0 12 ? * MON"), "is written for Quartz"),
        (EveryTrigger(SECOND // 2), "fraction of a second"),
        (AtTrigger(NOW), "has no counterpart"),
    ],
)
def test_a_schedule_that_no_cronjob_can_have_is_refused(trigger: CronTrigger, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        write_cronjob(Job("", "j", "container", trigger, args='{"image": "i"}'))


def test_a_timeout_is_that_of_each_pod_and_a_total_timeout_that_of_the_job() -> None:
    options = RunOptions(timeout=MINUTE, retry=kubernetes_retry(2))
    for total, expected in ((None, None), (2 * MINUTE, 120), (MINUTE, 60)):
        given = msgspec.structs.replace(options, total_timeout=total)
        job = Job("", "j", "container", CronTrigger("@daily"), args='{"image": "i"}', options=given)
        work = write_cronjob(job).manifest["spec"]["jobTemplate"]["spec"]
        assert (work.get("activeDeadlineSeconds"), work["template"]["spec"]["activeDeadlineSeconds"]) == (expected, 60)


def test_the_deadline_of_a_pod_that_its_job_does_not_reach_is_that_of_its_job() -> None:
    options = RunOptions(timeout=MINUTE, total_timeout=MINUTE)
    job = Job("", "j", "container", CronTrigger("@daily"), args='{"image": "i"}', options=options)
    manifest = write_cronjob(job).manifest
    manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 61
    imported = read_cronjob(manifest, "default", NOW)
    assert (imported.job.options, imported.lost) == (
        msgspec.structs.replace(options, retry=kubernetes_retry(options.retry.retries)),
        [],
    )


def test_a_manifest_becomes_a_job_and_the_rest_is_named_by_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, file = ("--store", f"sqlite:///{tmp_path / 'a.db'}"), tmp_path / "report.yaml"
    file.write_text(SOURCE)
    assert run(["import", "kubernetes", str(file), "--dry-run", *store]) == 0
    assert run(["import", "kubernetes", str(file), *store]) == 0
    reported = capsys.readouterr()
    assert "Imported 1 job: daily-report-job." in reported.out
    pod = "spec.jobTemplate.spec.template"
    for path in (
        f"{pod}.spec.containers[0].lifecycle.preStop.exec.command[0]",
        f"{pod}.metadata.labels.app",
        f"{pod}.spec.restartPolicy",
    ):
        assert path in reported.err
    assert "activeDeadlineSeconds" not in reported.err
    assert run(["export", "--kubernetes", "daily-report-job", *store]) == 0
    manifest = json.loads(capsys.readouterr().out)
    check_schema(manifest)
    assert manifest["metadata"] == {"name": "daily-report-job", "namespace": "production"}
    spec = manifest["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"], spec["successfulJobsHistoryLimit"]) == (
        "0 2 * * *",
        "Forbid",
        3,
    )
    work = spec["jobTemplate"]["spec"]
    assert (work["backoffLimit"], work["activeDeadlineSeconds"]) == (3, 7200)
    container = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert container["env"][0]["valueFrom"] == {"secretKeyRef": {"name": "db-credentials", "key": "host"}}
    assert container["resources"]["limits"] == {"memory": "1Gi", "cpu": "1000m"}


@pytest.mark.parametrize("spelling", ["--kubernetes FILE", "FILE --kubernetes", "--dry-run --kubernetes FILE"])
def test_the_kind_of_an_import_may_be_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spelling: str
) -> None:
    store, file = ("--store", f"sqlite:///{tmp_path / 'a.db'}"), tmp_path / "report.yaml"
    file.write_text(SOURCE)
    words = [str(file) if word == "FILE" else word for word in spelling.split()]
    assert run(["import", *words, *store]) == 0
    verb = "Would import" if "--dry-run" in words else "Imported"
    assert f"{verb} 1 job: daily-report-job." in capsys.readouterr().out
    assert run(["import", "--mail", str(file), *store]) == 2
    assert "--mail" in capsys.readouterr().err


def test_a_suspended_cronjob_never_fires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, file = ("--store", f"sqlite:///{tmp_path / 'a.db'}"), tmp_path / "a.json"
    job = Job("", "j", "container", CronTrigger("@daily"), args='{"image": "i"}', paused_at=NOW)
    file.write_text(json.dumps({"kind": "List", "items": [write_cronjob(job).manifest]}))
    assert run(["import", "kubernetes", str(file), *store]) == 0
    capsys.readouterr()
    assert run(["job", "show", "j", "--json", *store]) == 0
    shown = json.loads(capsys.readouterr().out)
    text = json.dumps(shown)
    assert '"paused"' in text
    assert SUSPENDED in text


def test_commands_need_an_image_and_functions_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'a.db'}")
    assert run(["job", "add", "clean", "--cron", "0 3 * * *", "--command", "tidy --all", *store]) == 0
    assert run(["job", "add", "python", "--cron", "0 3 * * *", "--task", "report", *store]) == 0
    capsys.readouterr()
    assert run(["export", "--kubernetes", "clean", *store]) == 2
    assert "give --image IMAGE" in capsys.readouterr().err
    assert run(["export", "--kubernetes", "--image", "tools:1", "--strict", *store]) == 1
    reported = capsys.readouterr()
    assert "job 'python' is left out" in reported.err
    [manifest] = json.loads(reported.out)["items"]
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert (pod["containers"][0]["command"], pod["containers"][0]["image"]) == (["tidy", "--all"], "tools:1")
    assert run(["export", "--kubernetes", "python", *store]) == 2


def written(**spec: Any) -> dict[str, Any]:
    """The manifest of a simple CronJob, with other values in its `spec`."""
    manifest = write_cronjob(Job("", "j", "container", CronTrigger("@daily"), args='{"image": "i"}')).manifest
    manifest["spec"].update(spec)
    return manifest


def work_of(manifest: dict[str, Any]) -> dict[str, Any]:
    work: dict[str, Any] = manifest["spec"]["jobTemplate"]["spec"]
    return work


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = work_of(manifest)["template"]["spec"]
    return pod


POD = "spec.jobTemplate.spec.template.spec"
SIDECAR = {"name": "sidecar", "image": "j"}


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda each: pod_of(each)["containers"].append(SIDECAR), "containers: 'main, sidecar' are not one container"),
        (lambda each: pod_of(each).update(initContainers=[SIDECAR]), "initContainers: 'sidecar' runs before the"),
        (lambda each: pod_of(each)["containers"][0].update(env=[{"name": "A", "value": 5}]), "env[0].value`"),
        (lambda each: pod_of(each).update(restartPolicy="Always"), f"`$.{POD}.restartPolicy`"),
        (lambda each: work_of(each).update(parallelism=0), "parallelism: 0 lets no pod start"),
        (lambda each: work_of(each).update(completions=0), "`$.spec.jobTemplate.spec.completions`"),
        (lambda each: work_of(each).update(backoffLimit="3"), "`$.spec.jobTemplate.spec.backoffLimit`"),
        (lambda each: each["spec"].update(startingDeadlineSeconds="100"), "`$.spec.startingDeadlineSeconds`"),
        (lambda each: each["spec"].update(concurrencyPolicy="forbid"), "'forbid' - at `$.spec.concurrencyPolicy`"),
        (lambda each: each["spec"].update(schedule="0 0 12 * * ?"), "has seconds, which a CronJob cannot have"),
        (lambda each: each["spec"].update(schedule="TZ=UTC @daily", timeZone="UTC"), "beside that of spec.timeZone"),
        (lambda each: each["spec"].pop("jobTemplate"), "missing required field `jobTemplate` - at `$.spec`"),
        (lambda each: each["metadata"].pop("name"), "missing required field `name` - at `$.metadata`"),
        (lambda each: each.update(apiVersion="apps/v1"), "'apps/v1' - at `$.apiVersion`"),
        (lambda each: each.update(metadata="j"), "is not a CronJob"),
    ],
)
def test_what_no_run_can_do_is_refused_with_its_path(spoil: Callable[[dict[str, Any]], Any], problem: str) -> None:
    manifest = written()
    assert read_cronjob(manifest, "default", NOW).lost == []
    spoil(manifest)
    with pytest.raises(InvalidInput, match=re.escape(problem)):
        read_cronjob(manifest, "default", NOW)


def test_variables_and_quantities_are_read_as_kubernetes_reads_them() -> None:
    manifest = written(concurrencyPolicy=None, suspend=None)
    pod_of(manifest)["nodeSelector"] = None
    pod_of(manifest)["serviceAccount"] = "reports"
    pod_of(manifest)["containers"][0] |= {
        "args": None,
        "resources": {"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 0.5}, "claims": [{"name": "gpu"}]},
        "env": [
            {"name": "PLAIN", "value": "1"},
            {"name": "EMPTY"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
        "envFrom": [{"configMapRef": {"name": "c"}}],
    }
    imported = read_cronjob(manifest, "default", NOW)
    spec = msgspec.json.decode(imported.job.args, type=ContainerSpec)
    assert spec.env == {"PLAIN": "1", "EMPTY": "", "KEY": SecretKey("s", "k")}
    assert spec.resources == Resources({"cpu": "0.5"}, {"cpu": "2", "memory": "1Gi"})
    assert spec.service_account == "reports"
    container = f"{POD}.containers[0]"
    assert [each.partition(": ")[0] for each in imported.lost] == [
        f"{container}.resources.claims[0].name",
        f"{container}.env[2].valueFrom.fieldRef.fieldPath",
        f"{container}.env[3].valueFrom.secretKeyRef.optional",
        f"{container}.envFrom[0].configMapRef.name",
    ]


@pytest.mark.parametrize(
    ("schedule", "zone", "expected"),
    [
        ("TZ=Europe/Berlin 0 2 * * *", None, CronTrigger("0 2 * * *", "Europe/Berlin")),
        ("CRON_TZ=Asia/Tokyo @daily", None, CronTrigger("@daily", "Asia/Tokyo")),
        ("0 2 ? * MON-FRI", "Europe/Berlin", CronTrigger("0 2 * * MON-FRI", "Europe/Berlin")),
        ("@Midnight", None, CronTrigger("@midnight", "UTC")),
        ("@every 1h30m", None, EveryTrigger(90 * MINUTE)),
    ],
)
def test_a_schedule_has_the_zone_and_spelling_of_its_controller(
    schedule: str, zone: str | None, expected: CronTrigger | EveryTrigger
) -> None:
    assert read_cronjob(written(schedule=schedule, timeZone=zone), "default", NOW).job.trigger == expected


def test_a_file_is_read_object_by_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, file = ("--store", f"sqlite:///{tmp_path / 'a.db'}"), tmp_path / "all.yaml"
    elsewhere = SOURCE.replace("namespace: production", "namespace: staging")
    other = "kind: ConfigMap\nmetadata: {name: colours}\n"
    file.write_text(f"---\n{SOURCE}---\n{other}---\n---\n{elsewhere}")
    for dry_run in (["--dry-run"], []):
        assert run(["import", "kubernetes", str(file), *dry_run, *store]) == 0
        reported = capsys.readouterr()
        assert "port 1 job: daily-report-job." in reported.out.replace("Imported", "Would import")
        assert "ConfigMap colours (colours) is left out: it is not a CronJob" in reported.err
        assert "CronJob daily-report-job (daily-report-job) is left out: another of this name" in reported.err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"kind": "Pod"}', "has no CronJob"),
        (b"kind: List\nitems:\n", "has no CronJob"),
        (b"", "has no CronJob"),
        (b"- 1\n- 2\n", "has no CronJob"),
        (b"kind: [CronJob\nspec: }", "is neither JSON nor YAML: line 2, column 5: "),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_a_file_without_a_cronjob_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    file = tmp_path / "none.yaml"
    file.write_bytes(content)
    assert run(["import", "kubernetes", str(file), "--store", f"sqlite:///{tmp_path / 'a.db'}"]) == 2
    reported = capsys.readouterr().err
    assert problem in reported
    assert len(reported.splitlines()) <= 3
