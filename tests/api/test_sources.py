"""The journeys of docs/sources.md, line by line, with real curl against a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from door import Door, problem

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "sources.md").read_text()
RULES = ROOT / "deploy" / "prometheus" / "sources.rules.yml"
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STATUS = "\n%{http_code}"


def journey(block: str) -> list[tuple[str, int, Any]]:
    """The commands of a block, and what each is said to answer."""
    found = re.findall(r"^\$ (curl .*)\n(\d{3}) (.*)$", block, re.MULTILINE)
    assert len(found) == block.count("$ curl")
    return [(command, int(status), json.loads(answer)) for command, status, answer in found]


def compare(reported: Any, answer: Any, names: dict[str, str]) -> None:
    """Everything that is documented is there. `…` is some value, and `$name` is one that later lines use."""
    match reported:
        case dict():
            for key, value in reported.items():
                compare(value, answer[key], names)
        case list():
            assert len(reported) == len(answer), (reported, answer)
            for one, other in zip(reported, answer, strict=True):
                compare(one, other, names)
        case "…":
            assert answer is not None
        case str() if reported.startswith("$"):
            names[reported[1:]] = answer
        case _:
            assert reported == answer


@pytest.mark.parametrize("block", BLOCKS, ids=["journeys", "rest"])
def test_every_line_of_the_page_is_true(private_door: Door, block: str) -> None:
    assert shutil.which("curl")
    token = private_door.token("admin", "worker", subject="reader")
    names = {"SERVER": private_door.url, "TOKEN": token}
    for command, status, reported in journey(block):
        typed = re.sub(r"\$(\w+)", lambda name: names[name[1]], command)
        ran = subprocess.run(
            ["bash", "-c", f"{typed} -w '{STATUS}'"], capture_output=True, text=True, timeout=30, check=True
        )
        body, _, code = ran.stdout.rpartition("\n")
        assert int(code) == status, (typed, body)
        compare(reported, json.loads(body), names)


def test_a_report_without_a_name_or_token_is_refused_where_several_workers_share_a_subject(private_door: Door) -> None:
    admin, hand = private_door.client("admin"), private_door.client("worker", subject="hand")
    admin.post("/v1/jobs", json={"name": "report", "manual": True, "task": "work"})
    admin.post("/v1/jobs/report/trigger")
    worker, _ = (hand.post("/v1/workers", json={"tasks": ["work"]}).json()["worker_id"] for _ in range(2))
    assert hand.put(f"/v1/workers/{worker}/assign", json={"job_id": "report"}).json()["runs"]
    problem(hand.put("/v1/jobs/report/complete", json={"status": "success"}), 409, "stale-claim")
    done = hand.put("/v1/jobs/report/complete", json={"status": "success", "worker_id": worker})
    assert done.json()["state"] == "succeeded"


def test_words_of_both_sides_are_not_mixed(private_door: Door) -> None:
    client = private_door.client("admin")
    body: dict[str, object] = {
        "name": "x",
        "schedule": "* * * * *",
        "cronExpression": "* * * * *",
        "task": "a",
        "type": "b",
    }
    document = problem(client.post("/v1/jobs", json=body), 422, "invalid-input")
    assert {"cronExpression", "type"} <= {each["field"] for each in document["errors"]}
    body = {"name": "x", "after": ["a"], "dependencies": ["a"], "type": "b"}
    document = problem(client.post("/v1/jobs", json=body), 422, "invalid-input")
    assert [each["field"] for each in document["errors"]] == ["dependencies"]


def test_a_job_is_changed_in_others_words(private_door: Door) -> None:
    client = private_door.client("admin")
    for name in ("b", "c"):
        client.post("/v1/jobs", json={"name": name, "manual": True, "task": "work"})
    client.post("/v1/jobs", json={"name": "a", "dependencies": ["b"], "type": "work"})
    changed = client.patch("/v1/jobs/a", json={"dependencies": ["c"], "payload": {"n": 1}, "max_retries": 7}).json()
    assert (changed["trigger"]["after"], changed["args"], changed["retries"]) == (["c"], {"n": 1}, 7)
    timed = client.patch("/v1/jobs/a", json={"cronExpression": "0 2 * * *", "dependencies": ["b", "c"]}).json()
    assert (timed["trigger"]["kind"], timed["policy"]["dependencies"]) == ("cron", ["b", "c"])
    freed = client.patch("/v1/jobs/a", json={"dependencies": None}).json()
    assert freed["policy"]["dependencies"] == []


def test_events_are_asked_for_under_either_name(private_door: Door) -> None:
    client = private_door.client("admin")
    client.post("/v1/jobs", json={"name": "a", "manual": True, "task": "work"})
    client.post("/v1/jobs/a/trigger")
    private_door.ask(lambda store: store.number_events(100))
    query: dict[str, str | int] = {"kind": "job_created,job.scheduled", "after": -1}
    seen: list[str] = []
    with client.stream("GET", "/v1/events", params=query) as stream:
        for line in stream.iter_lines():
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
            if len(seen) == 2:
                break
    assert seen == ["job.created", "firing.fired"]


def test_the_rules_use_only_metrics_that_there_are(private_door: Door) -> None:
    text = private_door.client("admin").get("/metrics").text
    served = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    used = set(re.findall(r"\b(mainspring_\w+)", RULES.read_text()))
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert families <= served
    for name in re.findall(r"^\| `(\w+?)[`{]", PAGE.partition("## Metrics")[2], re.MULTILINE):
        assert re.search(rf"record: {name}", RULES.read_text()), name


def test_the_rules_are_good_to_prometheus(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    assert tool is not None, "promtool is not installed: make services"
    checked = subprocess.run([tool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    tests = tmp_path / "rules_test.yml"
    tests.write_text(PROMTOOL.replace("RULES", str(RULES)))
    played = subprocess.run([tool, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr


PROMTOOL = """
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'mainspring_runs_finished_total{state="succeeded", instance="a"}'
        values: '0+60x20'
      - series: 'mainspring_runs_finished_total{state="succeeded", instance="b"}'
        values: '0+30x20'
      - series: 'mainspring_runs_finished_total{state="failed", instance="a"}'
        values: '0+10x20'
      - series: 'mainspring_workers{namespace="default", state="alive", instance="a"}'
        values: '7x20'
      - series: 'mainspring_workers{namespace="default", state="alive", instance="b"}'
        values: '7x20'
      - series: 'mainspring_queue_depth{namespace="default", queue="mail", region="eu", priority="5", instance="a"}'
        values: '7x20'
      - series: 'mainspring_queue_depth{namespace="default", queue="mail", region="eu", priority="5", instance="b"}'
        values: '7x20'
      - series: 'mainspring_queue_depth{namespace="default", queue="video", region="eu", priority="5", instance="a"}'
        values: '5x20'
      - series: 'mainspring_retries_total{instance="a"}'
        values: '0+3x20'
      - series: 'mainspring_run_seconds_bucket{le="1", instance="a"}'
        values: '0+10x20'
      - series: 'mainspring_run_seconds_bucket{le="+Inf", instance="a"}'
        values: '0+10x20'
    promql_expr_test:
      - expr: rate(jobs_processed_total{status="completed"}[5m]) * 60
        eval_time: 15m
        exp_samples:
          - {labels: '{instance="a", status="completed"}', value: 60}
          - {labels: '{instance="b", status="completed"}', value: 30}
      - expr: sum(rate(jobs_processed_total{status="failed"}[5m])) / sum(rate(jobs_processed_total[5m]))
        eval_time: 15m
        exp_samples: [{labels: '{}', value: 0.1}]
      - expr: jobs_workers_active
        eval_time: 15m
        exp_samples: [{labels: 'jobs_workers_active{namespace="default"}', value: 7}]
      - expr: histogram_quantile(0.99, rate(jobs_duration_bucket[5m]))
        eval_time: 15m
        exp_samples: [{labels: '{instance="a"}', value: 0.99}]
      - expr: job_queue_depth
        eval_time: 15m
        exp_samples: [{labels: 'job_queue_depth{namespace="default"}', value: 12}]
      - expr: jobs_retried_total
        eval_time: 15m
        exp_samples: [{labels: 'jobs_retried_total{instance="a"}', value: 45}]
      - expr: job_lock_acquisition_total{success="false"}
        eval_time: 15m
        exp_samples: [{labels: 'job_lock_acquisition_total{success="false"}', value: 0}]
  # A process restarts at minute 11: its counter begins again, and no rate may take the others' counts for new ones.
  - interval: 1m
    input_series:
      - series: 'mainspring_runs_finished_total{state="succeeded", instance="a"}'
        values: '1000000+60x20'
      - series: 'mainspring_runs_finished_total{state="succeeded", instance="b"}'
        values: '5000+30x10 0+30x10'
    promql_expr_test:
      - expr: sum(rate(jobs_processed_total[5m])) * 60 < bool 95
        eval_time: 13m
        exp_samples: [{labels: '{}', value: 1}]
"""
