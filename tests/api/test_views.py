"""What pages ask for: queues and their pause, actions on many runs and jobs, relations, stored events, tallies, errors,
the load ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
import pytest
from door import SECRET, Door, fields, open_door, problem
from hypothesis import given
from hypothesis import strategies as st

from mainspring.client.client import Client
from mainspring.client.errors import problem_of, to_error
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, MINUTE
from mainspring.core.model import AttemptOutcome, NewRun, Node, Report, Worker
from mainspring.core.runs.tallies import Tally, TallyKey, period_of
from mainspring.core.states import FAILED, SUCCEEDED, State
from mainspring.errors import RunGone
from mainspring.operations.planning.load import LoadAhead
from mainspring.operations.views import history
from mainspring.services.chores.tally_keeper import TallyKeeper
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.stores.rows.views import StoredViews
from mainspring.testing.clock import ManualClock
from mainspring.version import VERSION

WORK = {"task": "encode", "args": {"video": "v1"}}
SECOND = 1_000_000


@pytest.fixture
def client(private_door: Door) -> httpx.Client:
    return private_door.client("admin")


def make(client: httpx.Client, name: str, **words: Any) -> str:
    answer = client.post("/v1/jobs", json={"name": name, **WORK, **words})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


def submit(client: httpx.Client, **words: Any) -> str:
    answer = client.post("/v1/runs", json={**WORK, **words})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


def ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


def invalid(answer: httpx.Response) -> list[str]:
    return fields(problem(answer, 422, "invalid-input"))


def end_all(door: Door, error: str | None = None, queues: tuple[str, ...] = ("default",)) -> list[str]:
    """Claim what is due and end it: with an error, or well."""

    async def work(store: Store) -> list[str]:
        worker = Worker(id="w", queues=queues, tasks=("encode",), concurrency=100)
        claims = await store.claim(worker, 1_000, 60 * SECOND, "strict")
        for number, claim in enumerate(claims):
            failure = None
            if error is not None:
                reported = {
                    "type": error,
                    "message": f"no. {number}",
                    "traceback": 'File "/a/b/c.py", line 3, in fetch\n',
                }
                failure = msgspec.json.encode(reported).decode()
            state: State = SUCCEEDED if failure is None else FAILED
            kind: AttemptOutcome = "succeeded" if failure is None else "failed"
            now = store.now()
            await store.report([Report(claim.run_id, claim.token, kind, state, reason=error or "", error=failure,
                                       started_at=now - SECOND, finished_at=now)])  # fmt: skip
        return [claim.run_id for claim in claims]

    ended: list[str] = door.ask(work)
    return ended


def count_events(door: Door) -> None:
    """Do what the relay and the keeper of tallies do."""

    door.ask(count)


async def count(store: Store) -> None:
    while await store.number_events(1_000):
        pass
    levels = dict(Settings().service_levels)
    await TallyKeeper(store, lambda: True, ManualClock(store.now()), Random(1), levels).finish()


def test_a_paused_queue_keeps_its_runs_and_says_so(private_door: Door, client: httpx.Client) -> None:
    held, free = submit(client, queue="gpu"), submit(client)
    shown = ok(client.post("/v1/queues/gpu/pause", json={"reason": "repair"}))
    assert (shown["queue"], shown["due"], shown["paused_why"]) == ("gpu", 1, "repair")
    assert end_all(private_door, queues=("gpu", "default")) == [free]
    causes = ok(client.get(f"/v1/runs/{held}"))["causes"]
    assert causes[0]["kind"] == "queue-paused"
    assert "repair" in causes[0]["text"]
    queues = {each["queue"]: each for each in ok(client.get("/v1/queues"))["items"]}
    assert queues["gpu"]["paused_at"] is not None
    assert queues["gpu"]["priorities"] == {"5": 1}
    assert ok(client.post("/v1/queues/gpu/resume"))["paused_at"] is None
    assert end_all(private_door, queues=("gpu",)) == [held]
    assert [each["action"] for each in ok(client.get("/v1/audit"))["items"]][:2] == ["queue.resume", "queue.pause"]
    viewer = private_door.client("viewer")
    assert viewer.post("/v1/queues/gpu/pause").status_code == 403
    assert viewer.get("/v1/queues").is_success


def test_many_runs_are_cancelled_or_retried_once_by_filter_or_by_name(private_door: Door, client: httpx.Client) -> None:
    waiting = [submit(client, queue="slow") for _ in range(5)]
    asked = ok(client.post("/v1/runs:act", json={"action": "cancel", "queue": "slow", "dry_run": True}))
    assert (asked["matched"], asked["done"], set(asked["runs"])) == (5, 0, set(waiting))
    first = ok(client.post("/v1/runs:act", json={"action": "cancel", "queue": "slow", "limit": 2, "reason": "no"}))
    assert (first["done"], first["next"]) == (2, sorted(waiting)[-2])
    rest = {"action": "cancel", "queue": "slow", "cursor": first["next"]}
    assert ok(client.post("/v1/runs:act", json=rest))["done"] == 3
    named = ok(client.post("/v1/runs:act", json={"action": "cancel", "run_ids": [waiting[0], "nothing"]}))
    assert (named["done"], set(named["refused"])) == (0, {waiting[0], "nothing"})
    for _ in range(3):
        submit(client)
    failed = end_all(private_door, "ValueError")
    retried = ok(client.post("/v1/runs:act", json={"action": "retry", "task": "encode"}))
    assert set(retried["runs"]) == set(failed)
    again = ok(client.post("/v1/runs:act", json={"action": "retry", "task": "encode"}))
    assert again["runs"] == retried["runs"]
    assert ok(client.get("/v1/runs:count", params={"state": "pending"}))["count"] == 3
    related = ok(client.get(f"/v1/runs/{failed[0]}/relations"))
    assert [run["run_id"] for run in related["retries"]] == [retried["runs"][failed[0]]]
    actions = [each["action"] for each in ok(client.get("/v1/audit"))["items"]]
    assert actions.count("run.cancel_many") == 3
    assert actions.count("run.retry_many") == 2
    assert invalid(client.post("/v1/runs:act", json={"action": "cancel"})) == ["run_ids"]
    assert private_door.client("submitter").post("/v1/runs:act", json=rest).status_code == 403


def test_many_jobs_are_paused_resumed_and_triggered(client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        make(client, name, manual=True, tags=["nightly"] if name != "c" else [])
    by_tag = {"action": "pause", "tag": "nightly", "reason": "repair"}
    assert ok(client.post("/v1/jobs:act", json={**by_tag, "dry_run": True}))["jobs"] == ["a", "b"]
    assert ok(client.post("/v1/jobs:act", json=by_tag))["done"] == 2
    assert [job["name"] for job in ok(client.get("/v1/jobs", params={"state": "paused"}))["items"]] == ["a", "b"]
    assert ok(client.post("/v1/jobs:act", json={"action": "resume", "jobs": ["a", "b", "zz"]}))["refused"].keys() == {
        "zz"
    }
    fired = ok(client.post("/v1/jobs:act", json={"action": "trigger", "jobs": ["a", "c"], "limit": 1}))
    assert (fired["jobs"], fired["next"]) == (["a"], "a")
    more = {"action": "trigger", "jobs": ["a", "c"], "cursor": "a"}
    assert ok(client.post("/v1/jobs:act", json=more))["jobs"] == ["c"]
    assert invalid(client.post("/v1/jobs:act", json={"action": "pause"})) == ["jobs"]


def test_relations_gates_and_stored_events(private_door: Door, client: httpx.Client) -> None:
    first = submit(client, key="v1")
    behind = submit(client, key="v1")
    waits = submit(client, after=[first])
    seen = ok(client.get(f"/v1/runs/{first}/relations"))
    assert [run["run_id"] for run in seen["downstream"]] == [waits]
    assert "args" not in seen["downstream"][0]
    assert [run["run_id"] for run in ok(client.get(f"/v1/runs/{waits}/relations"))["upstream"]] == [first]
    assert ok(client.get(f"/v1/runs/{behind}/relations"))["lines"][0]["before"] == 1
    (line,) = ok(client.get("/v1/gates"))["lines"]
    assert (line["length"], line["head"]) == (2, first)
    make(client, "up", manual=True)
    make(client, "down", after=["up"])
    assert ok(client.get("/v1/jobs/up/relations")) == {
        "upstream": [], "downstream": [{"name": "down", "how": "after", "latest_at": None, "latest_outcome": None}],
    }  # fmt: skip
    assert ok(client.get("/v1/jobs/down/relations"))["upstream"][0]["name"] == "up"
    end_all(private_door)
    count_events(private_door)
    reported = ok(client.get(f"/v1/runs/{first}/events"))
    assert [event["kind"] for event in reported["items"]] == ["run.submitted", "run.running", "run.succeeded"]
    page = ok(client.get("/v1/events:page", params={"kind": "run.submitted", "limit": 2}))
    assert len(page["items"]) == 2
    beyond = ok(client.get("/v1/events:page", params={"kind": "run.submitted", "after": page["next"]}))
    assert [event["run_id"] for event in beyond["items"]] == [waits]
    spans = ok(client.get("/v1/timeline"))["items"]
    assert {(span["run_id"], span["state"], span["worker"]) for span in spans} >= {(first, "succeeded", "w")}
    assert ok(client.get("/v1/workers/w/spans"))["items"] == spans
    assert ok(client.get("/v1/workers/other/spans"))["items"] == []
    spent = ok(client.get(f"/v1/runs/{first}"))["spent"]
    assert [part["kind"] for part in spent][-1] == "attempt"
    assert sum(part["share"] for part in spent) == pytest.approx(1, abs=0.001)


def test_related_jobs_are_listed_with_what_became_of_them_last(private_door: Door, client: httpx.Client) -> None:
    make(client, "up", manual=True)
    make(client, "nightly", schedule="0 2 * * *", dependencies=["up"])
    (before,) = ok(client.get("/v1/jobs/nightly/relations"))["upstream"]
    assert (before["name"], before["how"], before["latest_outcome"]) == ("up", "dependency", None)
    ok(client.post("/v1/jobs/up/trigger", json={}))
    end_all(private_door)
    (after,) = ok(client.get("/v1/jobs/nightly/relations"))["upstream"]
    assert after["latest_outcome"] == "succeeded"
    assert after["latest_at"] is not None


def test_a_claim_that_is_handed_back_ends_in_the_timeline(private_door: Door, client: httpx.Client) -> None:
    run_id = submit(client)

    async def hand_back(store: Store) -> None:
        (claim,) = await store.claim(Worker(id="w", tasks=("encode",)), 1, 60 * SECOND, "strict")
        await store.hand_back([(claim.run_id, claim.token)])

    private_door.ask(hand_back)
    count_events(private_door)
    (span,) = ok(client.get("/v1/workers/w/spans"))["items"]
    assert (span["run_id"], span["state"]) == (run_id, "handed_back")
    assert span["ended_at"] is not None


def test_a_timeline_has_the_queues_and_tags_of_jobs_where_asked(private_door: Door, client: httpx.Client) -> None:
    make(client, "a", manual=True, tags=["nightly"])
    ok(client.post("/v1/jobs/a/trigger", json={}))
    submit(client)
    end_all(private_door)
    count_events(private_door)
    plain, whole = (ok(client.get("/v1/timeline", params=words))["items"] for words in ({}, {"jobs": True}))
    assert {(each["queue"], *each["tags"]) for each in plain} == {(None,)}
    assert {(each["name"], each["queue"], *each["tags"]) for each in whole} == {
        ("a", "default", "nightly"),
        ("encode", None),
    }


def test_a_long_timeline_is_sampled_evenly_and_keeps_its_failures(
    private_door: Door, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_READ", 40)
    monkeypatch.setattr(history, "SAMPLES", 4)
    monkeypatch.setattr(history, "SOME_BATCHES", 2)
    submitted = []
    for number in range(12):
        submitted += [submit(client) for _ in range(5)]
        end_all(private_door, "ValueError" if number == 5 else None)
    held = submit(client)
    private_door.ask(lambda store: store.claim(Worker(id="w", tasks=("encode",)), 1, 60 * SECOND, "strict"))
    count_events(private_door)
    found = ok(client.get("/v1/timeline"))
    assert (found["partial"], found["left_out"]) == (True, found["events"] - 40)
    states = {span["run_id"]: span["state"] for span in found["items"]}
    assert len(states) == len(found["items"])
    assert [run for run, state in states.items() if state == "running"] == [held]
    assert {run for run, state in states.items() if state == "failed"} == set(submitted[25:30])
    parts = [submitted[first : first + 20] for first in (0, 20, 40)]
    assert all(any(states.get(run) == "succeeded" for run in part) for part in parts)
    assert [span["began_at"] for span in found["items"]] == sorted(span["began_at"] for span in found["items"])


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_samples_are_within_the_span_do_not_overlap_and_end_with_it(begin: int, count: int) -> None:
    parts = history.samples(begin, begin + count)
    places = [place for part in parts for place in part]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (begin, begin + count)
    assert sum(stop - start for start, stop in parts) == min(count, history.MOST_READ)


def test_service_levels_say_how_many_starts_were_in_time(private_door: Door, client: httpx.Client) -> None:
    for priority in (1, 1, 7):
        submit(client, priority=priority)

    async def arrive_late(store: Store) -> None:
        now, due_at = encode_time(store.now()), store.now() - 3 * MINUTE
        await store.submit([NewRun(f"{now}{n:016}", "encode", due_at, due_at, priority=n) for n in (1, 2)])

    private_door.ask(arrive_late)
    assert len(end_all(private_door)) == 5
    count_events(private_door)
    found = ok(client.get("/v1/service-levels"))
    shown = {each["priority"]: (each["within"], each["starts"], each["late"], each["met"]) for each in found["items"]}
    assert shown == {
        1: ("1m", 3, 1, pytest.approx(2 / 3)),
        2: ("5m", 1, 0, 1.0),
        3: ("30m", 0, 0, None),
        7: (None, 1, 0, None),
    }
    assert found["items"][1]["late_p99"] > 180
    ahead = {"since": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    assert all(each["starts"] == 0 for each in ok(client.get("/v1/service-levels", params=ahead))["items"])
    assert invalid(client.get("/v1/service-levels", params={"since": "soon"})) == ["since"]


def test_tallies_of_queues_say_what_came_in_and_what_ended(private_door: Door, client: httpx.Client) -> None:
    for queue in ("gpu", "gpu", "default"):
        submit(client, queue=queue)
    end_all(private_door, queues=("default",))
    client.post(f"/v1/runs/{submit(client, queue='gpu')}/cancel").raise_for_status()
    count_events(private_door)
    found = ok(client.get("/v1/tallies", params={"by": "queue", "bucket": "24h"}))["items"]
    assert {each["name"]: (each["accepted"], each["succeeded"], each["cancelled"]) for each in found} == {
        "default": (1, 1, 0),
        "gpu": (3, 0, 1),
    }
    of_gpu = ok(client.get("/v1/tallies", params={"queue": "gpu"}))
    assert of_gpu["total"]["accepted"] == 3
    assert ok(client.get("/v1/tallies"))["total"]["accepted"] is None
    rates = {each["queue"]: each for each in ok(client.get("/v1/queues"))["items"]}["gpu"]
    assert rates["accepted_per_minute"] > rates["ended_per_minute"] > 0


def test_a_run_that_was_removed_is_answered_with_its_firing(private_door: Door, client: httpx.Client) -> None:
    make(client, "nightly", manual=True)
    fired = ok(client.post("/v1/jobs/nightly/trigger", json={}))
    end_all(private_door, "ValueError")
    private_door.ask(lambda store: store.clean(0, 100 * DAY, DAY, 1_000))
    answer = client.get(f"/v1/runs/{fired['run_id']}")
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("not-found")
    expected = {"job": "nightly", "fire_at": fired["fire_at"], "outcome": "failed", "reason": "ValueError"}
    assert answer.json()["firing"] == expected
    document = problem_of(answer)
    assert document is not None
    error = to_error(document, {})
    assert isinstance(error, RunGone)
    assert (error.job, error.outcome, error.fire_at) == ("nightly", "failed", datetime.fromisoformat(fired["fire_at"]))
    assert "no longer kept: the firing of job nightly" in answer.json()["detail"]
    unknown = client.get(f"/v1/runs/{fired['run_id'][:-1]}~")
    assert (unknown.status_code, "firing" in unknown.json()) == (404, False)


def test_tallies_and_errors_say_up_to_when_events_are_counted(private_door: Door, client: httpx.Client) -> None:
    count_events(private_door)
    paths = ("/v1/tallies", "/v1/service-levels", "/v1/errors")
    assert [ok(client.get(path))["counted_until"] for path in paths] == [None] * 3
    before = datetime.now(UTC)
    submit(client)
    end_all(private_door, "ValueError")
    for path in paths:
        until = datetime.fromisoformat(ok(client.get(path))["counted_until"])
        assert before - timedelta(seconds=5) < until <= datetime.now(UTC)
    assert ok(client.get("/v1/errors"))["items"] == []  # It has failed, and is not counted yet.
    count_events(private_door)
    counted = ok(client.get("/v1/errors"))
    assert (len(counted["items"]), counted["counted_until"]) == (1, None)


def test_what_is_counted_while_an_answer_is_made_is_not_called_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_behind(name: str) -> None:
        read = getattr(StoredViews, name)

        async def late(store: Any, *where: Any, **words: Any) -> Any:
            found = await read(store, *where, **words)
            await count(store)
            return found

        monkeypatch.setattr(StoredViews, name, late)

    for name in ("list_tallies", "list_errors"):
        count_behind(name)
    with open_door(tmp_path) as door:
        client = door.client("admin")
        for path in ("/v1/tallies", "/v1/service-levels", "/v1/errors"):
            submit(client)
            end_all(door, "ValueError")
            early, late = ok(client.get(path)), ok(client.get(path))
            assert (early["counted_until"] is None, late["counted_until"]) == (False, None)


def test_tallies_and_errors_say_what_the_history_says(private_door: Door, client: httpx.Client) -> None:
    make(client, "good", manual=True)
    make(client, "bad", manual=True)
    for _ in range(3):
        ok(client.post("/v1/jobs/good/trigger", json={}))
    end_all(private_door)
    for _ in range(2):
        ok(client.post("/v1/jobs/bad/trigger", json={}))
    failed = end_all(private_door, "ValueError")
    submit(client)
    lone = end_all(private_door, "KeyError")
    count_events(private_door)
    (whole,) = _sums(ok(client.get("/v1/tallies", params={"bucket": "24h"}))["items"])
    assert whole == ("", 3, 3)
    by_job = _sums(ok(client.get("/v1/tallies", params={"by": "job"}))["items"])
    assert sorted(by_job) == [("bad", 0, 2), ("good", 3, 0)]
    of_bad = ok(client.get("/v1/tallies", params={"job": "bad"}))["items"]
    assert of_bad[0]["took_p50"] is not None
    assert of_bad[0]["late_p99"] is not None
    count_events(private_door)
    assert _sums(ok(client.get("/v1/tallies", params={"by": "job"}))["items"]) == by_job
    hours = ok(client.get("/v1/tallies", params={"bucket": "1h", "whole": "true"}))
    assert len(hours["items"]) in (24, 25)
    assert sum(each["succeeded"] + each["failed"] for each in hours["items"]) == 6
    assert _sums([hours["total"]]) == [("", 3, 3)]
    assert hours["total"]["late_p99"] is not None
    assert ok(client.get("/v1/tallies", params={"by": "job"}))["total"] is None
    assert invalid(client.get("/v1/tallies", params={"by": "job", "queue": "gpu"})) == ["by"]
    assert invalid(client.get("/v1/tallies", params={"bucket": "5m", "since": "2026-01-01T00:00:00Z",
                                                     "whole": "true"})) == ["bucket"]  # fmt: skip
    groups = ok(client.get("/v1/errors"))["items"]
    assert [(each["type"], each["message"], each["place"], each["count"], sum(each["trend"])) for each in groups] == [
        ("KeyError", "no. *", "b/c.py fetch", 1, 1), ("ValueError", "no. *", "b/c.py fetch", 2, 2),
    ]  # fmt: skip
    one = ok(client.get(f"/v1/errors/{groups[1]['error']}"))
    assert (one["jobs"], one["sample"]["type"]) == (["bad"], "ValueError")
    listed = ok(client.get("/v1/runs", params={"error": groups[1]["error"]}))["items"]
    assert {run["run_id"] for run in listed} == set(failed)
    first = ok(client.get("/v1/errors", params={"limit": 1}))
    assert [each["type"] for each in ok(client.get("/v1/errors", params={"cursor": first["next"]}))["items"]] == [
        "ValueError"
    ]
    retried = ok(client.post("/v1/runs:act", json={"action": "retry", "error": groups[0]["error"]}))
    assert set(retried["runs"]) == set(lone)
    assert client.get("/v1/errors/0000000000000000").status_code == 404
    assert invalid(client.get("/v1/tallies", params={"bucket": "7m"})) == ["bucket"]
    assert invalid(client.get("/v1/errors", params={"cursor": "Nw"})) == ["cursor"]
    (row,) = [each for each in ok(client.get("/v1/ledger"))["items"] if each["job"] == "bad"]
    assert list(row["cells"].values()) == [{"failed": 2}]


def test_the_trend_of_an_error_reaches_back_as_far_as_its_list(private_door: Door, client: httpx.Client) -> None:
    submit(client)
    end_all(private_door, "KeyError")
    count_events(private_door)
    (group,) = ok(client.get("/v1/errors"))["items"]

    async def fail_earlier(store: Store) -> None:
        position = await store.tallied()
        assert position is not None
        for days, count in ((3, 5), (20, 7)):
            key = TallyKey("default", "error", period_of("error", store.now() - days * DAY), group["error"])
            assert await store.add_tallies(position, position, {key: Tally({"failed": count}, {}, {})}, [])

    private_door.ask(fail_earlier)
    now = datetime.now(UTC)
    trends = [
        ok(client.get("/v1/errors", params={"since": (now - timedelta(days=days)).isoformat()}))["items"][0]["trend"]
        for days in (0.5, 7, 30, 300)
    ]
    assert [(len(each), sum(each)) for each in trends] == [(24, 1), (24, 6), (24, 13), (24, 13)]
    assert ([each for each in trends[1] if each], trends[1][-1]) == ([5, 1], 1)


def _sums(buckets: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(each["name"], each["succeeded"], each["failed"]) for each in buckets]


def test_kinds_of_failure_of_one_job_or_task_and_how_many_jobs_have_each(
    private_door: Door, client: httpx.Client
) -> None:
    for name in ("a", "b"):
        make(client, name, manual=True)
    for name, error in (("a", "KeyError"), ("b", "KeyError"), ("b", "OSError")):
        ok(client.post(f"/v1/jobs/{name}/trigger", json={}))
        end_all(private_door, error)
    submit(client)
    end_all(private_door, "KeyError")
    count_events(private_door)

    def found(**words: str) -> dict[str, tuple[int, int]]:
        groups = ok(client.get("/v1/errors", params=words))["items"]
        return {each["type"]: (each["count"], each["job_count"]) for each in groups}

    assert found() == {"KeyError": (3, 2), "OSError": (1, 1)}
    assert found(job="a") == {"KeyError": (1, 1)}
    assert found(job="b") == {"OSError": (1, 1), "KeyError": (1, 1)}
    assert found(task="encode") == {"KeyError": (3, 2), "OSError": (1, 1)}
    assert found(task="other") == {}
    assert found(job="a", since="2100-01-01T00:00:00Z") == {}


def test_jobs_are_counted_and_listed_with_how_long_they_take(private_door: Door, client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        make(client, name, manual=True)
    assert client.post("/v1/jobs/b/pause", json={}).is_success
    assert client.get("/v1/jobs:count").json() == {"jobs": 3, "active": 2, "paused": 1, "at_least": False}
    for _ in range(3):
        ok(client.post("/v1/jobs/a/trigger", json={}))
        end_all(private_door)
    count_events(private_door)
    listed = ok(client.get("/v1/jobs", params={"times": True, "fields": "row"}))["items"]
    assert [(job["name"], job["took_p50"], job["late_p50"] is not None) for job in listed] == [
        ("a", 1.024, True),  # A second, to the next half power of two of a millisecond.
        ("b", None, False),
        ("c", None, False),
    ]
    assert "took_p50" not in ok(client.get("/v1/jobs"))["items"][0]


def test_the_ledger_of_a_job_over_a_span(private_door: Door, client: httpx.Client) -> None:
    make(client, "nightly", schedule="30 2 * * *", timezone="Europe/Berlin")
    ok(client.post("/v1/jobs/nightly/trigger", json={}))
    end_all(private_door)
    until = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    cells = ok(client.get("/v1/jobs/nightly/ledger", params={"until": until}))["items"]
    assert [cell["outcome"] for cell in cells] == ["planned", "planned", "planned", "succeeded"]
    assert cells[-1]["took_s"] == pytest.approx(1, abs=0.1)
    assert cells[-1]["late_s"] is not None
    (bucket,) = ok(client.get("/v1/jobs/nightly/ledger", params={"bucket": "1d"}))["buckets"]
    assert bucket["counts"] == {"succeeded": 1}
    only = ok(client.get("/v1/jobs/nightly/ledger", params={"outcome": "failed", "until": until}))
    assert only["items"] == []
    assert client.get("/v1/jobs/none/ledger").status_code == 404


def test_the_load_ahead_has_its_peak_where_jobs_meet(private_door: Door, client: httpx.Client) -> None:
    hour = (datetime.now(UTC) + timedelta(hours=2)).hour  # It is whole within the next day.
    for number in range(20):
        make(client, f"sharp-{number}", schedule=f"0 {hour} * * *", tags=["pinned"] if number == 0 else [])
    make(client, "often", every="10m")
    load = ok(client.get("/v1/load", params={"bucket": "1h"}))
    assert load["jobs"] == 21
    assert load["peak"]["starts"] == 26
    assert load["peak"]["at"].endswith(f"T{hour:02}:00:00Z")
    only = ok(client.get("/v1/load", params={"bucket": "1h", "tag": "pinned"}))
    assert sum(each["starts"] for each in only["quiet"]) == 0
    assert [(each["at"], each["until"]) for each in only["quiet"]] == stretches_without_starts(only["items"])
    assert sum(each["starts"] for each in load["items"]) in (20 + 143, 20 + 144, 20 + 145, 20 + 150)
    begin = datetime.fromisoformat(load["peak"]["at"])
    span = {"from": begin.isoformat(), "to": (begin + timedelta(minutes=5)).isoformat()}
    inside = ok(client.get("/v1/load/at", params=span))
    assert inside["starts"] in (20, 21)
    movable = {each["name"]: each["movable"] for each in inside["items"]}
    assert (movable["sharp-0"], movable["sharp-1"]) == (False, True)
    assert invalid(client.get("/v1/load", params={"bucket": "1s"})) == ["bucket"]


def stretches_without_starts(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Where nothing starts for at least six hours: the longest first."""
    peak = next(number for number, each in enumerate(items) if each["starts"])
    end = (datetime.fromisoformat(items[-1]["at"]) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    sides = [(items[0]["at"], items[peak]["at"], peak)]
    if peak + 1 < len(items):
        sides.append((items[peak + 1]["at"], end, len(items) - peak - 1))
    sides.sort(key=lambda side: -side[2])
    return [(begin, until) for begin, until, hours in sides if hours >= 6]


def test_the_load_ahead_is_kept_until_a_job_changes(
    private_door: Door, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    show = LoadAhead.show

    async def counted(self: LoadAhead, **words: Any) -> Any:
        computed.append(self._context.namespace)
        return await show(self, **words)

    monkeypatch.setattr(LoadAhead, "show", counted)
    monkeypatch.setattr(private_door.server.context.loads, "_fresh_s", 1_000.0)
    make(client, "one", schedule="0 * * * *")
    assert [ok(client.get("/v1/load"))["jobs"] for _ in range(3)] == [1, 1, 1]
    assert computed == ["default"]
    make(client, "two", schedule="0 * * * *")
    assert ok(client.get("/v1/load"))["jobs"] == 2
    ok(client.post("/v1/jobs/one/pause", json={}))
    assert ok(client.get("/v1/load"))["jobs"] == 1
    assert ok(client.get("/v1/load", params={"queue": "gpu"}))["jobs"] == 0
    assert ok(private_door.client("viewer", namespace="other").get("/v1/load"))["jobs"] == 0
    assert computed == [*["default"] * 4, "other"]


async def test_the_client_has_them_all(private_door: Door) -> None:
    async with Client(private_door.url, private_door.token("admin")) as client:
        run = await client.runs.submit("encode", {"video": "v"}, queue="gpu")
        paused = await client.queues.pause("gpu", "repair")
        assert paused.paused_why == "repair"
        assert [each.queue for each in (await client.queues.list()).items] == ["gpu"]
        assert (await client.queues.resume("gpu")).paused_at is None
        assert (await client.queues.gates()).gates == []
        acted = await client.actions.runs("cancel", queue="gpu", reason="done")
        assert acted.runs == {run.run_id: "cancelled"}
        assert (await client.insight.run_relations(run.run_id)).downstream == []
        assert (await client.actions.jobs("pause", q="nothing")).jobs == []
        assert (await client.insight.tallies()).items == []
        assert [each.priority for each in (await client.insight.service_levels()).items] == [1, 2, 3]
        assert [each async for each in client.insight.errors()] == []
        assert (await client.insight.load()).jobs == 0
        assert (await client.insight.facets("queue")).items == []
        assert (await client.insight.tasks()).items == []
        assert (await client.insight.terms()) == []
        assert (await client.insight.run_events(run.run_id)).items == []
        assert (await client.insight.timeline()).partial is False
        assert [each async for each in client.insight.ledgers(bucket="1d")] == []
        me = await client.me()
        assert (me.home, "runs:submit" in me.permissions[me.home]) == ("default", True)


def test_a_calendar_is_removed_when_no_job_uses_it_and_the_trail_says_so(client: httpx.Client) -> None:
    rules = {"rules": [{"kind": "weekdays", "days": ["sat", "sun"]}]}
    assert client.put("/v1/calendars/off", json=rules).status_code == 201
    make(client, "report", schedule="0 9 * * *", calendars=["off"])
    refusal = problem(client.delete("/v1/calendars/off"), 409, "conflict")
    assert "job report" in refusal["detail"]
    ok(client.patch("/v1/jobs/report", json={"calendars": []}))
    assert client.delete("/v1/calendars/off", params={"reason": "done"}).status_code == 204
    assert client.delete("/v1/calendars/off").status_code == 404
    hour = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    (change,) = ok(client.get("/v1/audit", params={"action": "calendar.delete", "since": hour}))["items"]
    assert (change["target"], change["before"]["name"], change["after"]) == ("calendar:off", "off", {"reason": "done"})
    assert ok(client.get("/v1/audit", params={"until": hour}))["items"] == []
    assert invalid(client.get("/v1/audit", params={"since": "yesterday"})) == ["since"]


def test_an_edit_of_a_calendar_names_the_firings_that_move_before_it_is_saved(
    private_door: Door, client: httpx.Client
) -> None:
    empty: dict[str, Any] = {"rules": []}
    ok(client.put("/v1/calendars/holidays", json=empty))
    ok(client.put("/v1/calendars/outer", json={"rules": [{"kind": "calendar", "calendar": "holidays"}]}))
    make(client, "moves", schedule="0 9 * * *", calendars=["outer"], on_excluded="next_day")
    make(client, "weekly", schedule="0 9 * * fri", calendars=["holidays"], on_excluded="next_day")
    make(client, "skips", schedule="30 * * * *", calendars=["holidays"])
    make(client, "paused", schedule="0 9 * * *", calendars=["holidays"])
    make(client, "other", schedule="0 9 * * *")
    ok(client.post("/v1/jobs/paused/pause"))
    friday = datetime.now(UTC).date() + timedelta(days=1)
    friday += timedelta(days=(4 - friday.weekday()) % 7)
    wanted = {"rules": [{"kind": "dates", "dates": [friday.isoformat()]}]}
    viewer = private_door.client("viewer")
    found = ok(viewer.post("/v1/calendars/holidays/preview?days=10", json=wanted))
    assert (found["jobs"], found["moved"], found["dropped"], found["added"]) == (3, 1, 25, 0)
    moved = next(each for each in found["items"] if each["effect"] == "moved")
    later = friday + timedelta(days=1)
    assert (moved["job"], moved["at"], moved["to"]) == ("weekly", f"{friday}T09:00:00Z", f"{later}T09:00:00Z")
    assert moved["reason"] == f"calendar holidays excludes {friday}"
    assert {each["job"] for each in found["items"] if each["effect"] == "dropped"} == {"moves", "skips"}
    before = {name: ok(client.get(f"/v1/jobs/{name}/next?count=400")) for name in ("moves", "weekly", "skips")}
    ok(client.put("/v1/calendars/holidays", json=wanted))
    after = {name: ok(client.get(f"/v1/jobs/{name}/next?count=400")) for name in before}
    reported = {name: {each["at"] for each in found["items"] if each["job"] == name and each["at"]} for name in before}
    for name, items in before.items():
        now_planned = {each["fire_at"] for each in after[name]["items"]}
        assert {each["fire_at"] for each in items["items"][:200]} - now_planned == reported[name], name
    days = ok(viewer.get("/v1/calendars/holidays/days"))
    assert days["items"] == [{"day": friday.isoformat(), "whole": True, "reason": friday.isoformat()}]
    assert (days["used_by"], days["calendars"]) == (["moves", "paused", "skips", "weekly"], ["outer"])
    added = ok(viewer.post("/v1/calendars/holidays/preview?days=10", json=empty))
    assert (added["moved"], added["dropped"], added["added"]) == (1, 0, 25)
    assert invalid(client.post("/v1/calendars/holidays/preview", json={"rules": [], "timezone": "Mars"})) == [
        "timezone"
    ]
    assert invalid(client.get("/v1/calendars/holidays/days?from=2026-01-01&to=2027-06-01")) == ["to"]
    assert private_door.client("worker").post("/v1/calendars/holidays/preview", json=empty).status_code == 403


def test_a_changed_job_is_simulated_over_the_past_and_the_time_ahead(private_door: Door, client: httpx.Client) -> None:
    make(client, "etl", schedule="0 2 * * *", timezone="Europe/Berlin")
    make(client, "other", schedule="0 2 * * *", timezone="Europe/Berlin")
    viewer = private_door.client("viewer")
    week = {"from": "2026-03-23T00:00:00Z", "to": "2026-03-30T00:00:00Z"}
    long = {"job": "etl", "change": {"overlap": "forbid"}, "took": "26h", **week}
    found = ok(viewer.post("/v1/jobs:simulate", json=long))
    assert found["counts"] == {"succeeded": 4, "skipped": 3}
    skipped = [each for each in found["items"] if each["outcome"] == "skipped"]
    assert all(each["reason"].startswith("overlap=forbid: run ") for each in skipped)
    assert (found["took"], found["took_s"], found["load"], found["most_at_once"]) == ("given", 93_600, None, 1)
    down = [{"from": "2026-03-24T00:00:00Z", "to": "2026-03-26T12:00:00Z"}]
    once = ok(viewer.post("/v1/jobs:simulate", json={"job": "etl", **week, "outages": down}))
    assert once["counts"] == {"succeeded": 5, "missed": 2}
    assert {each["reason"] for each in once["items"] if each["outcome"] == "missed"} == {
        "misfire=once: a later instant stands for it"
    }
    assert (once["took"], once["took_s"]) == ("unknown", None)
    ahead = datetime.now(UTC) + timedelta(minutes=1)
    span = {"from": ahead.isoformat(), "to": (ahead + timedelta(days=3)).isoformat()}
    load = ok(viewer.post("/v1/jobs:simulate", json={"job": "etl", **span}))["load"]
    assert (load["others"], load["starts"]) == (1, 2)
    draft = ok(viewer.post("/v1/jobs:simulate", json={"change": {"every": "1d", "command": "rm -rf /"}}))
    assert draft["counts"] == {"succeeded": 7}
    assert ok(client.get("/v1/jobs/etl"))["version"] == 1
    bad = {"job": "etl", "change": {"schedule": "61 * * * *"}}
    assert invalid(viewer.post("/v1/jobs:simulate", json=bad)) == ["change.schedule"]
    assert invalid(viewer.post("/v1/jobs:simulate", json={"job": "etl", "from": "noon", "took": "soon"})) == [
        "from",
        "took",
    ]
    assert invalid(viewer.post("/v1/jobs:simulate", json={"job": "etl", **week, "outages": [span]})) == ["outages[0]"]
    assert viewer.post("/v1/jobs:simulate", json={"job": "nothing"}).status_code == 404


def test_a_simulation_of_a_stored_job_takes_as_long_as_its_runs_did(private_door: Door, client: httpx.Client) -> None:
    make(client, "quick", every="1s", misfire="all")
    ok(client.post("/v1/jobs/quick/trigger"))
    assert len(end_all(private_door)) == 1
    ahead = datetime.now(UTC) + timedelta(minutes=1)
    span = {"from": ahead.isoformat(), "to": (ahead + timedelta(seconds=30)).isoformat()}
    found = ok(client.post("/v1/jobs:simulate", json={"job": "quick", "change": {"every": "500ms"}, **span}))
    assert (found["took"], found["took_s"], found["counts"], found["most_at_once"]) == (
        "history", 1.0, {"succeeded": 60}, 2,
    )  # fmt: skip


def test_proposals_that_are_applied_lower_the_peak_to_what_they_said(private_door: Door, client: httpx.Client) -> None:
    for number in range(62):
        tags = ["pinned"] if number == 0 else []
        make(client, f"report-{number:02}", schedule="0 3 * * *", tags=tags)
    make(client, "often", every="1h", anchor="2026-01-01T03:00:00Z")
    make(client, "minutes", schedule="*/5 3 * * *")
    viewer = private_door.client("viewer")
    found = ok(viewer.post("/v1/load:spread", json={"within": "15m"}))
    assert found["before"]["starts"] == 64
    assert 2 <= found["after"]["starts"] <= 4
    assert not {"report-00", "minutes"} & {each["job"] for each in found["edits"]}
    assert all(abs(each["minutes"]) <= 15 and "other runs start" in each["reason"] for each in found["edits"])
    assert all(each["reason"] for each in found["staying"])
    assert max(each["starts"] for each in ok(client.get("/v1/load?bucket=1m"))["items"]) == 64
    for each in found["edits"]:
        moved = client.patch(
            f"/v1/jobs/{each['job']}", json=each["change"], headers={"If-Match": f'"{each["version"]}"'}
        )
        assert moved.status_code == 200, moved.text
    assert ok(viewer.post("/v1/load:spread"))["before"]["starts"] == found["after"]["starts"]
    assert invalid(viewer.post("/v1/load:spread", json={"within": "2h"})) == ["within"]


def test_nodes_tell_the_skew_of_their_clocks_and_what_is_wrong_with_their_loops(
    private_door: Door, client: httpx.Client
) -> None:
    ill = {"planner": "has not turned for 12 s", "relay": ""}
    private_door.ask(lambda store: store.check_in(Node("node-a", "store", SECOND, skew=-1_500_000, loops=ill)))
    private_door.ask(lambda store: store.check_in(Node("node-b", "store", SECOND)))
    nodes = {each["node"]: (each["skew_s"], each["loops"]) for each in ok(client.get("/v1/cluster"))["nodes"]}
    assert nodes == {"node-a": (-1.5, ill), "node-b": (0.0, {})}
    private_door.ask(lambda store: store.check_in(Node("node-a", "store", SECOND, skew=2_000, loops={"planner": ""})))
    (mended, _) = sorted(ok(client.get("/v1/cluster"))["nodes"], key=lambda each: each["node"])
    assert (mended["skew_s"], mended["loops"]) == (0.002, {"planner": ""})


def test_versions_of_jobs_and_processes_and_settings_without_secrets(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/api.db"
    words = {"broker": "redis://ann:hunter2@127.0.0.1:1/0", "token": "tok-en-1", "firing_rate": 777}
    with open_door(tmp_path, **words) as door:
        admin, viewer = door.client("admin"), door.client("viewer")
        make(admin, "etl", schedule="0 2 * * *")
        ok(admin.patch("/v1/jobs/etl", json={"priority": 2}))
        changes = ok(viewer.get("/v1/jobs/etl/versions"))["items"]
        assert [each["action"] for each in changes] == ["job.update", "job.create"]
        assert [changes[0]["before"]["priority"], changes[0]["after"]["priority"]] == [5, 2]
        assert ok(viewer.get("/v1/jobs/etl/versions?limit=1"))["next"] is not None
        assert viewer.get("/v1/jobs/nothing/versions").status_code == 404

        async def start(store: Store) -> None:
            await store.register(Worker(id="w", tasks=("encode",), version="9.9.9", started_at=store.now()))

        door.ask(start)
        versions = ok(viewer.get("/v1/versions"))
        assert versions["version"] == VERSION
        assert versions["schema"] == versions["newest_schema"] > 0
        assert [each["version"] for each in versions["processes"]] == [VERSION, "9.9.9"]
        assert ok(viewer.get("/v1/workers/w"))["version"] == "9.9.9"
        answer = admin.get("/v1/settings")
        settings = {each["name"]: each for each in ok(answer)["items"]}
        assert settings["store"]["value"] == url
        assert settings["broker"]["value"] == "redis://ann:***@127.0.0.1:1/0"
        assert (settings["secret"]["value"], settings["token"]["value"]) == ("***", "***")
        assert (settings["firing_rate"]["value"], settings["firing_rate"]["is_default"]) == ("777", False)
        assert settings["claim_ttl"]["is_default"]
        assert not any(each in answer.text for each in ("hunter2", "tok-en-1", SECRET))
        assert door.client("operator").get("/v1/settings").status_code == 403
        assert door.client("admin", namespace="rival").get("/v1/settings").status_code == 403
