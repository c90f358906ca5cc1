"""Workers without a database: they take work over HTTP, and only what is theirs counts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from door import Door, open_door, problem, until

from mainspring.api.resources import workers
from mainspring.conformance.store.samples import a_worker
from mainspring.core.instants import MINUTE, parse_duration

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def admin(private_door: Door) -> httpx.Client:
    return private_door.client("admin", subject="root")


@pytest.fixture
def hand(private_door: Door) -> httpx.Client:
    return private_door.client("worker", subject="hand")


def register(client: httpx.Client, *tasks: str, **words: Any) -> str:
    answer = client.post("/v1/workers", json={"name": "box", "tasks": tasks or ["encode", "elsewhere"], **words})
    assert answer.status_code == 201, answer.text
    worker_id: str = answer.json()["worker_id"]
    return worker_id


def take(client: httpx.Client, worker: str, **words: Any) -> list[dict[str, Any]]:
    answer = client.put(f"/v1/workers/{worker}/assign", json=words)
    assert answer.status_code == 200, answer.text
    runs: list[dict[str, Any]] = answer.json()["runs"]
    return runs


def submit(admin: httpx.Client, **words: Any) -> str:
    answer = admin.post("/v1/runs", json={"task": "elsewhere", "args": {"n": 1}, **words})
    assert answer.status_code == 201, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def test_a_namespace_has_so_many_live_workers_and_no_more(
    private_door: Door, hand: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_WORKERS", 3)
    monkeypatch.setattr(private_door.server.context.worker_counts, "_fresh_s", 0.0)
    register(hand)
    register(hand, *(f"{number:0150}" for number in range(20)))  # It counts as two.
    refused = problem(hand.post("/v1/workers", json={"tasks": ["encode"]}), 503, "overloaded")
    assert "namespace default has 3 live workers already" in refused["detail"]
    other = private_door.client("worker", subject="other", namespace="elsewhere")
    register(other)


def test_what_a_worker_announces_has_a_size(hand: httpx.Client) -> None:
    names = [f"{number:0199}" for number in range(101)]
    refused = problem(hand.post("/v1/workers", json={"tasks": names}), 422, "invalid-input")
    assert refused["errors"][0]["field"] == "tasks"
    register(hand, *names[:100])


def test_a_worker_takes_a_run_and_completes_it(admin: httpx.Client, hand: httpx.Client) -> None:
    run_id, worker = submit(admin, timeout="1m"), register(hand)
    (claim,) = take(hand, worker)
    reported = {name: claim[name] for name in ("run_id", "task", "args", "attempt", "timeout")}
    assert reported == {"run_id": run_id, "task": "elsewhere", "args": {"n": 1}, "attempt": 1, "timeout": "1m"}
    url = f"/v1/runs/{run_id}"
    token = claim["token"]
    assert hand.put(f"{url}/progress", json={"token": token, "fraction": 0.5, "note": "half"}).status_code == 204
    assert hand.post(f"{url}/logs", json={"token": token, "lines": ["one", "two"]}).status_code == 204
    seen = admin.get(url).json()
    assert (seen["state"], seen["worker"], seen["progress"], seen["progress_note"]) == ("running", worker, 0.5, "half")
    done = hand.put(f"{url}/complete", json={"token": token, "result": {"frames": 240}})
    assert done.json() == {"run_id": run_id, "verdict": "accepted", "state": "succeeded"}
    assert hand.put(f"{url}/complete", json={"token": token, "result": {"frames": 240}}).json()["verdict"] == "repeated"
    ended = admin.get(url).json()
    assert (ended["state"], ended["result"]) == ("succeeded", {"frames": 240})
    assert [line["text"] for line in admin.get(f"{url}/logs").json()["items"]] == ["one", "two"]
    assert [line["text"] for line in admin.get(f"{url}/logs", params={"tail": 1}).json()["items"]] == ["two"]
    assert [each["outcome"] for each in admin.get(f"{url}/attempts").json()["items"]] == ["succeeded"]


def test_a_failure_is_retried_by_the_runs_own_policy_and_then_dead_lettered(
    private_door: Door, admin: httpx.Client, hand: httpx.Client
) -> None:
    run_id, worker = submit(admin, retry={"retries": 1, "delay": 0}, tags=["nightly"]), register(hand)
    url = f"/v1/runs/{run_id}"
    for state in ("pending", "failed"):
        (claim,) = until(lambda: take(hand, worker))
        error = {"type": "TimeoutError", "message": "no answer\nat all", "traceback": "Traceback …"}
        answer = hand.put(f"{url}/fail", json={"token": claim["token"], "error": error})
        assert answer.json()["state"] == state
    run = admin.get(url).json()
    assert run["error"] == {"type": "TimeoutError", "message": "no answer\nat all", "traceback": "Traceback …"}
    assert "TimeoutError: no answer" in run["reason"]
    assert [dead["run_id"] for dead in admin.get("/v1/dead-letters", params={"tag": "nightly"}).json()["items"]] == [
        run_id
    ]


def test_a_total_timeout_leaves_no_time_for_a_retry_and_the_claim_says_when_it_ends(
    admin: httpx.Client, hand: httpx.Client
) -> None:
    run_id = submit(admin, retry={"retries": 5, "delay": "2m"}, total_timeout="90s")
    worker, url = register(hand), f"/v1/runs/{run_id}"
    run = admin.get(url).json()
    assert (run["total_timeout"], run["timeout"]) == ("1m30s", None)
    (claim,) = until(lambda: take(hand, worker))
    left = datetime.fromisoformat(claim["give_up_at"]) - datetime.fromisoformat(run["due_at"])
    assert left.total_seconds() == 90
    answer = hand.put(f"{url}/fail", json={"token": claim["token"], "error": {"type": "OSError", "message": "no"}})
    assert answer.json()["state"] == "failed"
    assert admin.get(url).json()["reason"] == "OSError: no; its total timeout of 1m30s leaves no time for a retry"


def test_a_run_says_when_it_changed_how_long_it_took_and_what_became_of_each_attempt(
    admin: httpx.Client, hand: httpx.Client
) -> None:
    run_id, worker = submit(admin, retry={"retries": 1, "delay": 0}), register(hand)
    url = f"/v1/runs/{run_id}"
    new = admin.get(url).json()
    assert (new["updated_at"], new["duration"], new["finished_at"]) == (new["created_at"], None, None)
    (claim,) = take(hand, worker)
    taken = admin.get(url).json()
    assert taken["started_at"] == taken["updated_at"] > new["updated_at"]
    hand.put(f"{url}/fail", json={"token": claim["token"], "error": {"type": "TimeoutError", "message": "no answer"}})
    back = admin.get(url).json()
    assert (back["state"], back["updated_at"] > taken["updated_at"]) == ("pending", True)
    (claim,) = until(lambda: take(hand, worker))
    hand.put(f"{url}/complete", json={"token": claim["token"], "result": 1})

    ended = admin.get(url).json()

    assert (ended["state"], ended["attempt"], ended["retries"], ended["worker"]) == ("succeeded", 2, 1, worker)
    assert ended["created_at"] < ended["started_at"] < ended["finished_at"] == ended["updated_at"]
    took = datetime.fromisoformat(ended["finished_at"]) - datetime.fromisoformat(ended["started_at"])
    assert parse_duration(ended["duration"]) == took // timedelta(microseconds=1)
    first, second = admin.get(f"{url}/attempts").json()["items"]
    assert (first["outcome"], first["error"]["type"], first["worker"]) == ("failed", "TimeoutError", worker)
    assert (second["outcome"], second["error"], second["finished_at"]) == ("succeeded", None, ended["finished_at"])
    assert first["started_at"] < first["finished_at"] <= second["started_at"] == ended["started_at"]


def test_dead_letters_are_run_again_each_at_most_once(admin: httpx.Client, hand: httpx.Client) -> None:
    worker = register(hand)
    ids = [submit(admin, retry=0, tags=["x"]) for _ in range(3)]
    for claim in take(hand, worker, limit=3):
        hand.put(f"/v1/runs/{claim['run_id']}/fail", json={"token": claim["token"], "error": "boom", "final": True})
    dry = admin.post("/v1/dead-letters:rerun", json={"tag": "x", "dry_run": True}).json()
    assert (dry["count"], admin.get("/v1/runs", params={"state": "pending"}).json()["items"]) == (3, [])
    again = admin.post("/v1/dead-letters:rerun", json={"tag": "x"}).json()
    assert set(again["runs"]) == set(ids)
    assert again["runs"] == admin.post("/v1/dead-letters:rerun", json={"run_ids": ids}).json()["runs"]
    pending = admin.get("/v1/runs", params={"state": "pending"}).json()["items"]
    assert {run["retry_of"] for run in pending} == set(ids)
    assert len(pending) == 3
    refused = admin.post("/v1/dead-letters:rerun", json={"run_ids": [pending[0]["run_id"], "nothing"]}).json()
    assert (refused["count"], set(refused["refused"])) == (0, {pending[0]["run_id"], "nothing"})
    problem(admin.post("/v1/dead-letters:rerun", json={}), 422, "invalid-input")
    problem(admin.post("/v1/dead-letters:rerun", json={"run_ids": ids, "tag": "x"}), 422, "invalid-input")


def test_a_worker_waits_for_work_and_gets_it_as_soon_as_there_is_some(admin: httpx.Client, hand: httpx.Client) -> None:
    worker = register(hand)
    assert take(hand, worker) == []
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(take(hand, worker, limit=5, wait="15s")))
    waiting.start()
    run_id = submit(admin)
    waiting.join(20)
    assert [claim["run_id"] for claim in found] == [run_id]


def test_a_worker_gets_only_its_tasks_queues_and_regions(admin: httpx.Client, hand: httpx.Client) -> None:
    submit(admin, queue="films")
    submit(admin, region="mars")
    admin.post("/v1/runs", json={"task": "unknown"})
    plain, films = register(hand), register(hand, queues=["films"])
    assert take(hand, plain, limit=10) == []
    assert len(take(hand, films, limit=10)) == 1


def test_a_heartbeat_renews_claims_and_says_what_is_lost_or_to_be_cancelled(
    admin: httpx.Client, hand: httpx.Client
) -> None:
    worker = register(hand)
    run_id = submit(admin)
    (claim,) = take(hand, worker)
    held = {"run_id": run_id, "token": claim["token"]}
    other = {"run_id": "01m7h0vadjb0daq5qy6sgrcq8d", "token": 1}
    beat = hand.put(f"/v1/workers/{worker}/heartbeat", json={"claims": [held, other]}).json()
    assert beat == {"held": [run_id], "lost": [other["run_id"]], "cancel": {}, "state": "active"}
    admin.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough"})
    beat = hand.put(f"/v1/workers/{worker}/heartbeat", json={"claims": [held]}).json()
    assert beat["cancel"] == {run_id: "enough"}
    failed = hand.put(f"/v1/runs/{run_id}/fail", json={"token": claim["token"], "error": "stopped"})
    assert failed.json()["state"] == "cancelled"


def test_a_result_under_an_overtaken_claim_is_refused(
    private_door: Door, admin: httpx.Client, hand: httpx.Client
) -> None:
    worker = register(hand)
    run_id = submit(admin)
    (claim,) = take(hand, worker)
    private_door.ask(lambda store: store.hand_back([(run_id, claim["token"])]))
    (again,) = take(hand, worker)
    assert again["token"] > claim["token"]
    url = f"/v1/runs/{run_id}"
    for path, body in (("complete", {}), ("fail", {"error": "x"}), ("progress", {"fraction": 0.1})):
        answer = hand.put(f"{url}/{path}", json={"token": claim["token"], **body})
        problem(answer, 409, "stale-claim")
    problem(hand.post(f"{url}/logs", json={"token": claim["token"], "lines": ["x"]}), 409, "stale-claim")
    assert hand.put(f"{url}/complete", json={"token": again["token"]}).json()["verdict"] == "accepted"


def test_a_run_is_reported_by_the_subject_whose_worker_holds_it(
    private_door: Door, admin: httpx.Client, hand: httpx.Client
) -> None:
    other = private_door.client("worker", subject="other")
    worker = register(hand)
    run_id = submit(admin)
    (claim,) = take(hand, worker)
    body = {"token": claim["token"]}
    problem(other.put(f"/v1/runs/{run_id}/complete", json=body), 409, "stale-claim")
    problem(other.put(f"/v1/workers/{worker}/assign", json={}), 404, "not-found")
    problem(other.put(f"/v1/workers/{worker}/heartbeat", json={"claims": []}), 404, "not-found")
    problem(hand.put(f"/v1/runs/{run_id}/complete", json={}), 422, "invalid-input")
    assert hand.put(f"/v1/runs/{run_id}/complete", json=body).status_code == 200


def test_the_current_run_of_a_job_is_completed_or_failed_by_the_job(admin: httpx.Client, hand: httpx.Client) -> None:
    admin.post("/v1/jobs", json={"name": "report", "manual": True, "task": "elsewhere", "retry": 0})
    worker = register(hand)
    problem(hand.put("/v1/jobs/report/complete", json={}), 409, "conflict")
    for path, body, state in (("complete", {"result": 42}, "succeeded"), ("fail", {"error": "boom"}, "failed")):
        run_id = admin.post("/v1/jobs/report/trigger").json()["run_id"]
        (claim,) = take(hand, worker)
        assert claim["run_id"] == run_id
        answer = hand.put(f"/v1/jobs/report/{path}", json=body)
        assert answer.json() == {"run_id": run_id, "verdict": "accepted", "state": state}


def overtake(door: Door, hand: httpx.Client, run_id: str, successor: str) -> dict[str, Any]:
    """Let the claim of a run run out, and another worker take it."""
    until(lambda: door.ask(lambda store: store.recover(MINUTE, 10)).lost)
    (claim,) = until(lambda: take(hand, successor))
    assert claim["run_id"] == run_id
    return claim


@pytest.mark.parametrize("path", ["complete", "fail"])
def test_a_worker_that_was_overtaken_cannot_report_by_the_job(tmp_path: Path, path: str) -> None:
    with open_door(tmp_path, claim_ttl="300ms", claim_renew="100ms") as door:
        admin, hand = door.client("admin", subject="root"), door.client("worker", subject="hand")
        admin.post("/v1/jobs", json={"name": "report", "manual": True, "task": "elsewhere", "retry": 0})
        run_id = admin.post("/v1/jobs/report/trigger").json()["run_id"]
        late, holder = register(hand), register(hand)
        (lost,) = take(hand, late)
        claim = overtake(door, hand, run_id, holder)
        url, body = f"/v1/jobs/report/{path}", {"error": "x"} if path == "fail" else {"status": "success"}
        beat = {"claims": [{"run_id": run_id, "token": claim["token"]}]}
        hand.put(f"/v1/workers/{holder}/heartbeat", json=beat)
        for named in ({}, {"worker_id": late}, {"token": lost["token"]}, {"worker_id": late, "token": claim["token"]}):
            problem(hand.put(url, json={**body, **named}), 409, "stale-claim")
        done = hand.put(url, json={**body, "worker_id": holder})
        assert (done.status_code, done.json()["verdict"]) == (200, "accepted")


def test_a_run_that_its_only_worker_lost_and_took_again_needs_its_token(tmp_path: Path) -> None:
    with open_door(tmp_path, claim_ttl="300ms", claim_renew="100ms") as door:
        admin, hand = door.client("admin", subject="root"), door.client("worker", subject="hand")
        admin.post("/v1/jobs", json={"name": "report", "manual": True, "task": "elsewhere"})
        run_id = admin.post("/v1/jobs/report/trigger").json()["run_id"]
        worker = register(hand)
        take(hand, worker)
        claim = overtake(door, hand, run_id, worker)
        problem(hand.put("/v1/jobs/report/complete", json={}), 409, "stale-claim")
        assert hand.put("/v1/jobs/report/complete", json={"token": claim["token"]}).status_code == 200


def test_a_worker_is_assigned_the_job_that_it_names(admin: httpx.Client, hand: httpx.Client) -> None:
    jobs = [
        admin.post("/v1/jobs", json={"name": name, "manual": True, "task": "elsewhere"}).json()["job_id"]
        for name in ("first", "second", "idle")
    ]
    runs = {each: admin.post(f"/v1/jobs/{each}/trigger").json()["run_id"] for each in ("first", "second")}
    alone, later = submit(admin), submit(admin, delay="1h")
    worker = register(hand)
    assert [run["run_id"] for run in take(hand, worker, job_id=jobs[1], limit=5)] == [runs["second"]]
    assert take(hand, worker, job_id=jobs[2]) == []
    assert [run["run_id"] for run in take(hand, worker, job_id=alone)] == [alone]
    assert take(hand, worker, job_id=later) == []
    problem(hand.put(f"/v1/workers/{worker}/assign", json={"job_id": "none"}), 404, "not-found")
    assert [run["run_id"] for run in take(hand, worker, limit=5)] == [runs["first"]]


def test_a_success_is_reported_in_the_words_of_other_schedulers(admin: httpx.Client, hand: httpx.Client) -> None:
    worker = register(hand)
    run_id = submit(admin)
    assert len(take(hand, worker)) == 1
    url = f"/v1/jobs/{run_id}/complete"
    assert problem(hand.put(url, json={"status": "failed"}), 422, "invalid-input")["errors"][0]["field"] == "status"
    both = {"output": "a", "result": "b"}
    assert problem(hand.put(url, json=both), 422, "invalid-input")["errors"][0]["field"] == "output"
    assert hand.put(url, json={"status": "success", "output": "240 frames"}).json()["state"] == "succeeded"
    assert admin.get(f"/v1/runs/{run_id}").json()["result"] == "240 frames"


def test_the_lines_of_other_runs_do_not_count(
    private_door: Door, admin: httpx.Client, hand: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.api.resources.work.MOST_LINES", 10)
    worker = register(hand)
    submit(admin), submit(admin)
    loud, quiet = take(hand, worker, limit=2)

    def write(claim: dict[str, Any], count: int) -> int:
        body = {"token": claim["token"], "lines": ["text"] * count}
        return hand.post(f"/v1/runs/{claim['run_id']}/logs", json=body).status_code

    assert [write(loud, 10), write(loud, 1)] == [204, 413]
    assert [write(quiet, 5), write(quiet, 6), write(quiet, 5), write(quiet, 1)] == [204, 413, 204, 413]


def test_where_several_runs_of_a_job_are_current_only_their_own_address_will_do(
    private_door: Door, admin: httpx.Client, hand: httpx.Client
) -> None:
    admin.post("/v1/jobs", json={"name": "report", "manual": True, "task": "elsewhere", "completions": 2})
    worker = register(hand)
    admin.post("/v1/jobs/report/trigger")
    first, second = take(hand, worker, limit=2)
    problem(hand.put("/v1/jobs/report/complete", json={}), 409, "conflict")
    private_door.ask(lambda store: store.hand_back([(first["run_id"], first["token"])]))
    (again,) = take(hand, worker)
    done = hand.put("/v1/jobs/report/complete", json={"token": again["token"]}).json()
    assert (done["run_id"], done["state"]) == (first["run_id"], "succeeded")
    assert hand.put("/v1/jobs/report/complete", json={}).json()["run_id"] == second["run_id"]


def test_workers_are_listed_and_asked_to_stop(admin: httpx.Client, hand: httpx.Client) -> None:
    worker = register(hand, concurrency=3)
    (listed,) = admin.get("/v1/workers").json()["items"]
    assert (listed["worker"], listed["state"], listed["concurrency"]) == (worker, "active", 3)
    assert admin.get(f"/v1/workers/{worker}").json()["tasks"] == ["encode", "elsewhere"]
    assert admin.post(f"/v1/workers/{worker}/drain").json()["state"] == "draining"
    assert hand.put(f"/v1/workers/{worker}/heartbeat", json={}).json()["state"] == "draining"
    problem(hand.put(f"/v1/workers/{worker}/assign", json={}), 409, "conflict")
    problem(admin.get("/v1/workers/nobody"), 404, "not-found")


def test_a_worker_says_how_it_divides_its_places(private_door: Door, admin: httpx.Client) -> None:
    private_door.ask(lambda store: store.register(a_worker("divided", pools=((3, 2), (10, 6)))))
    private_door.ask(lambda store: store.register(a_worker("plain")))
    pools = {each["worker"]: each["pools"] for each in admin.get("/v1/workers").json()["items"]}
    assert pools == {"divided": {"3": 2, "10": 6}, "plain": {}}
    assert admin.get("/v1/workers/divided").json()["pools"] == {"3": 2, "10": 6}


def test_a_worker_on_the_store_is_asked_to_stop(private_door: Door, admin: httpx.Client) -> None:
    private_door.ask(lambda store: store.register(a_worker("on-the-store")))
    answer = admin.post("/v1/workers/on-the-store/drain", json={"reason": "new host"}).json()
    assert (answer["state"], answer["drain_requested_at"] is None) == ("active", False)
    (listed,) = admin.get("/v1/workers").json()["items"]
    assert listed["drain_requested_at"] == answer["drain_requested_at"]
    (noted,) = admin.get("/v1/audit", params={"target": "worker:on-the-store"}).json()["items"]
    assert (noted["action"], noted["after"]) == ("worker.drain", {"drain": True, "reason": "new host"})
    private_door.ask(lambda store: store.register(a_worker("on-the-store", state="stopped")))
    problem(admin.post("/v1/workers/on-the-store/drain"), 409, "conflict")


def test_a_worker_that_was_taken_for_dead_comes_back_with_its_next_heartbeat(
    private_door: Door, admin: httpx.Client, hand: httpx.Client
) -> None:
    worker = register(hand)
    private_door.ask(lambda store: store.recover(-MINUTE, 10))
    assert admin.get(f"/v1/workers/{worker}").json()["state"] == "dead"
    assert hand.put(f"/v1/workers/{worker}/heartbeat", json={}).json()["state"] == "active"
    assert admin.get(f"/v1/workers/{worker}").json()["state"] == "active"


def test_work_is_not_given_to_a_worker_that_has_left(
    private_door: Door, admin: httpx.Client, hand: httpx.Client
) -> None:
    worker = register(hand)
    token = private_door.token("worker", subject="hand")
    head = f"PUT /v1/workers/{worker}/assign HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    body = b'{"wait": "30s"}'
    capacity = private_door.server.context.capacity
    with private_door.connect() as connection:
        rest = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + rest.encode() + body)
        until(lambda: capacity.busy["waiting"] == 1)
    run_id = submit(admin)
    until(lambda: capacity.busy["waiting"] == 0)
    assert admin.get(f"/v1/runs/{run_id}").json()["state"] == "pending"


def test_the_worker_in_curl_of_the_documentation_works(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.fail("there is no curl here")
    page = (ROOT / "docs" / "api.md").read_text()
    script = page.split("```sh worker.sh\n")[1].split("```")[0]
    with open_door(tmp_path) as door:
        admin = door.client("admin")
        runs = [submit(admin, args={"n": n}) for n in range(3)]
        words = {"SERVER": door.url, "TOKEN": door.token("worker", subject="curl"), "PATH": "/usr/bin:/bin"}
        process = subprocess.Popen(
            ["sh", "-c", script], env=words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            until(lambda: len(admin.get("/v1/runs", params={"state": "succeeded"}).json()["items"]) == 3)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # With the curl that waits for more.
            process.communicate()
        assert {admin.get(f"/v1/runs/{run}").json()["result"] for run in runs} == {"done by curl"}
