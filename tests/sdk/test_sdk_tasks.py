"""Tasks: declared, called as before, their arguments and results, and what they know while they run."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring import Mainspring, Retry, current_run, every
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.model import Claim, KeptOptions, RunOptions
from mainspring.errors import (
    InvalidInput,
    MainspringError,
    NotSerialisable,
    PayloadTooLarge,
)
from mainspring.executor import CURRENT, RunContext
from mainspring.operations.submission import marked
from mainspring.sdk.task import Task
from mainspring.store import RunFilter
from sdk_work import stored


@dataclass
class Size:
    width: int
    height: int


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mainspring]:
    monkeypatch.chdir(tmp_path)
    async with Mainspring(f"sqlite:///{tmp_path}/store.db", durable=False) as app:
        yield app


class TestTasks:
    def test_a_decorated_function_is_called_as_before(self, app: Mainspring) -> None:
        @app.task
        def double(number: int) -> int:
            """Twice the number."""
            return 2 * number

        assert double(4) == double(number=4) == 8
        assert (double.name, double.is_async, double.__doc__) == ("double", False, "Twice the number.")
        assert app.tasks == {"double": double}

    async def test_so_is_an_async_one(self, app: Mainspring) -> None:
        @app.task(name="films.double")
        async def double(number: int) -> int:
            return 2 * number

        assert await double(4) == 8
        assert (double.name, double.is_async) == ("films.double", True)

    def test_options_become_the_defaults_of_its_runs(self, app: Mainspring) -> None:
        @app.task(priority=1, timeout="10m", retry=Retry(5), queue="films", limit=3, tags=["a"], max_losses=1)
        def encode() -> None: ...

        defaults = encode.defaults
        assert (defaults.priority, defaults.queue, defaults.limit) == (1, "films", 3)
        assert defaults.options == RunOptions(timeout=10 * MINUTE, retry=Retry(5), max_losses=1, tags=("a",))

    def test_two_tasks_of_one_name_are_refused_with_both_places(self, app: Mainspring) -> None:
        @app.task
        def send() -> None: ...

        def another() -> None: ...

        with pytest.raises(
            InvalidInput,
            match=r"'send' names two tasks: .*_tasks\.py:\d+ and .*_tasks\.py:\d+; give one of them another name=",
        ):
            app.task(name="send")(another)

    def test_jobs_of_one_function_name_are_refused_with_a_remedy_that_helps(self, app: Mainspring) -> None:
        def send() -> None: ...

        def other() -> None: ...

        other.__name__ = "send"
        app.job(every("1s"), name="a")(send)

        with pytest.raises(InvalidInput, match=r"'send' names two tasks: .*; rename one of the functions, or put @app"):
            app.job(every("2s"), name="b")(other)
        with pytest.raises(
            InvalidInput, match=r"is a task already, of .*_tasks\.py:\d+; write @app.task once, and put"
        ):
            app.job(every("2s"), name="b")(send)

        app.job(every("2s"), name="b")(app.task(name="another")(other))
        assert [(job.name, job.task) for job in app.declared_jobs(0)] == [("a", "send"), ("b", "another")]

    @pytest.mark.parametrize("name", ["command", "http", "container", "", " x", "a\nb", "x" * 201])
    def test_some_names_are_not_for_tasks(self, app: Mainspring, name: str) -> None:
        with pytest.raises(InvalidInput, match="name: "):
            app.task(name=name)(lambda: None)

    def test_a_function_without_a_name_needs_one(self, app: Mainspring) -> None:
        with pytest.raises(InvalidInput, match="give it one"):
            app.task(lambda: None)
        assert app.task(name="nothing")(lambda: None)() is None

    def test_parameters_that_cannot_be_stored_by_name_are_refused(self, app: Mainspring) -> None:
        def positional(size: int, /) -> None: ...
        def anything(*sizes: int) -> None: ...

        with pytest.raises(InvalidInput, match="positional-only"):
            app.task(positional)
        with pytest.raises(InvalidInput, match="'sizes' takes values without names"):
            app.task(anything)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("priority", 0),
            ("priority", "high"),
            ("timeout", "soon"),
            ("timeout", 0),
            ("retry", 3),
            ("queue", ""),
            ("limit", 0),
            ("tags", "urgent"),
            ("tags", [""]),
            ("max_losses", -1),
            ("on_key_failure", "shrug"),
        ],
    )
    def test_a_wrong_option_is_refused_by_name(self, app: Mainspring, option: str, value: Any) -> None:
        words: Any = {option: value}
        with pytest.raises(InvalidInput) as refusal:
            app.task(**words)
        assert refusal.value.field.startswith(option)
        assert refusal.value.remedy

    def test_an_unknown_option_is_refused_with_the_nearest_known_one(self, app: Mainspring) -> None:
        words: Any = {"prio": 1}
        with pytest.raises(InvalidInput, match=r"prio: 1 is not an option of @app\.task; did you mean priority\?"):
            app.task(**words)


class TestArguments:
    @pytest.fixture
    def encode(self, app: Mainspring) -> Task[..., str]:
        @app.task
        def encode(video: str, size: Size, *, at: datetime | None = None, extra: Any = None) -> str:
            return f"{video}: {size.width}x{size.height}"

        return encode

    async def test_they_come_back_with_the_types_that_the_function_declares(self, encode: Task[..., str]) -> None:
        moment = datetime(2026, 3, 1, 9, tzinfo=UTC)
        run = await stored(encode.app, await encode.submit("v1", Size(3, 2), at=moment))
        assert run.args == '{"video":"v1","size":{"width":3,"height":2},"at":"2026-03-01T09:00:00Z"}'
        assert encode.decode_args(run.args) == {"video": "v1", "size": Size(3, 2), "at": moment}

    async def test_the_same_call_is_stored_the_same_however_it_is_written(self, encode: Task[..., str]) -> None:
        calls = [
            await encode.submit("v1", Size(3, 2)),
            await encode.submit(size=Size(3, 2), video="v1"),
            *await encode.submit_many([{"size": {"width": 3, "height": 2}, "video": "v1"}]),
        ]
        assert len({(await stored(encode.app, call)).args for call in calls}) == 1

    @pytest.mark.parametrize(
        ("args", "kwargs", "field", "problem"),
        [
            (("v",), {}, "size", r"lacks this argument of encode\(video: str, size: Size"),
            (("v", 1, 2), {}, "args", "too many values"),
            (("v",), {"video": "w"}, "video", "given twice"),
            (("v",), {"size": Size(1, 2), "vidoe": 1}, "vidoe", "not an argument"),
            ((7, Size(1, 2)), {}, "video", "Expected `str`, got `int`"),
            (("v", {"width": 1}), {}, "size", "missing required field `height`"),
            (("v", None), {}, "size", "got `null`"),
        ],
    )
    async def test_what_does_not_fit_the_signature_is_refused_by_name(
        self, encode: Task[..., str], args: tuple[object, ...], kwargs: dict[str, object], field: str, problem: str
    ) -> None:
        with pytest.raises(InvalidInput, match=problem) as refusal:
            await encode.submit(*args, **kwargs)
        assert refusal.value.field == field

    @pytest.mark.parametrize(
        "value", [object(), {1, object()}, "\ud800", float("nan"), [1.0, {"x": float("inf")}], {(1, 2): 3}, 1j]
    )
    async def test_what_json_cannot_carry_is_refused_by_name(self, encode: Task[..., str], value: object) -> None:
        with pytest.raises(NotSerialisable) as refusal:
            await encode.submit("v1", Size(3, 2), extra=value)
        assert refusal.value.field == "extra"

    async def test_what_contains_itself_is_refused(self, encode: Task[..., str]) -> None:
        endless: list[object] = []
        endless.append(endless)
        with pytest.raises(NotSerialisable, match="contains itself"):
            await encode.submit("v1", Size(3, 2), extra=endless)

    async def test_what_is_too_large_is_refused_with_its_size_and_the_setting(self, encode: Task[..., str]) -> None:
        with pytest.raises(PayloadTooLarge, match=r"10486\d\d bytes are more than the 1048576 of payload_limit"):
            await encode.submit("v" * (1 << 20), Size(3, 2))

    async def test_of_many_one_wrong_call_is_named_and_none_is_stored(self, encode: Task[..., str]) -> None:
        good = {"video": "v1", "size": Size(3, 2)}
        with pytest.raises(InvalidInput, match=r"\[1\]\.video"):
            await encode.submit_many([good, {**good, "video": 5}])
        calls: Any = ["v1"]
        with pytest.raises(InvalidInput, match="is not a dict"):
            await encode.submit_many(calls)
        assert await (await encode.app.open()).list_runs(RunFilter()) == []

    def test_an_annotation_that_only_a_type_checker_can_see_does_not_spoil_the_others(self, app: Mainspring) -> None:
        def watch(film: object, times: int) -> None: ...

        watch.__annotations__["film"] = "Film"
        task = app.task(watch)
        assert task.decode_args('{"film": {"id": 1}, "times": 2}') == {"film": {"id": 1}, "times": 2}
        with pytest.raises(InvalidInput, match="times"):
            task.decode_args('{"film": 1, "times": "2"}')

    def test_stored_arguments_that_the_task_no_longer_takes_are_refused(self, encode: Task[..., str]) -> None:
        with pytest.raises(InvalidInput, match=r"unknown field `colour`.*submit the run anew"):
            encode.decode_args('{"video":"v1","size":{"width":3,"height":2},"colour":"red"}')

    def test_a_task_may_take_arguments_of_any_name(self, app: Mainspring) -> None:
        @app.task
        def tag(film: str, **tags: int) -> None: ...

        assert tag.encode_args({"year": 1927, "film": "Metropolis"}) == '{"film":"Metropolis","year":1927}'
        assert tag.decode_args('{"year":1927,"film":"M"}') == {"film": "M", "year": 1927}
        with pytest.raises(InvalidInput, match="year"):
            tag.encode_args({"film": "M", "year": "long ago"})

    def test_results_are_checked_as_arguments_are(self, app: Mainspring) -> None:
        @app.task
        def measure() -> Size:
            return Size(0, 0)

        assert measure.decode_result(measure.encode_result(Size(3, 2))) == Size(3, 2)
        for value in (object(), float("inf")):
            with pytest.raises(NotSerialisable, match="result"):
                measure.encode_result(value)
        with pytest.raises(PayloadTooLarge, match="result"):
            measure.encode_result("x" * (1 << 20))
        with pytest.raises(InvalidInput, match="measure"):
            measure.decode_result('"large"')


class TestTheRunningTask:
    def context(self, **changes: Any) -> tuple[RunContext, list[tuple[object, ...]]]:
        reported: list[tuple[object, ...]] = []
        claimed = Claim("r1", 3, "encode", "{}", "{}", 1, 0, 5, 0, "default", "nightly", 0, 2, 0)
        claimed = msgspec.structs.replace(claimed, **changes)
        deadline = 90 * SECOND
        return RunContext(
            claimed, deadline, lambda *line: reported.append(line), lambda *mark: reported.append(mark)
        ), reported

    def test_it_knows_its_run(self) -> None:
        context, _ = self.context()
        token = CURRENT.set(context)
        run = current_run()
        CURRENT.reset(token)
        assert (run.id, run.task, run.job, run.attempt, run.idx, run.namespace) == (
            *("r1", "encode", "nightly", 2, 2, "default"),
        )
        assert run.fire_at == datetime(1970, 1, 1, tzinfo=UTC)
        assert run.deadline == datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC)
        assert self.context(fire_at=None)[0].fire_at is None

    def test_it_says_how_far_it_has_come(self) -> None:
        context, reported = self.context()
        context.progress(0.5, "halfway")
        context.progress(1)
        context.log("done")
        assert reported == [(0.5, "halfway"), (1.0, ""), ("log", "done")]
        for fraction in (-0.1, 1.1, float("nan"), True):
            with pytest.raises(InvalidInput, match="from 0 to 1"):
                context.progress(fraction)

    def test_it_sees_that_it_should_stop(self) -> None:
        context, _ = self.context()
        assert not context.cancelled
        context.cancel()
        assert context.cancelled

    async def test_outside_of_a_run_there_is_none(self) -> None:
        with pytest.raises(MainspringError, match="outside of a run"):
            await asyncio.to_thread(current_run)
        with pytest.raises(MainspringError, match="outside of a run"):
            current_run()


TYPED = """
from typing import assert_type
from mainspring import Graph, Mainspring, Run, RunHandle, cron, every
from mainspring.operations.records import RunStory

app = Mainspring()

@app.task
def encode(video: str, size: int = 3) -> str: ...

@app.task(priority=1)
async def upload(video: str) -> bytes: ...

@app.job(cron("0 2 * * *"), overlap="forbid")
async def report() -> int: ...

@app.job(every("1h"), args={"video": "v1"})
@app.task(timeout="10m")
def tidy(video: str) -> None: ...

async def use() -> None:
    assert_type(encode("v1"), str)
    assert_type(await upload("v1"), bytes)
    assert_type(await encode.submit("v1", size=4), RunHandle[str])
    assert_type(await (await upload.options(key="v1").submit(video="v1")).result(timeout=30), bytes)
    assert_type(await report.submit_many([{}]), list[RunHandle[int]])
    assert_type(app.sync(app.sync(encode.submit, "v1").result), str)
    for run in app.sync(app.runs.list, limit=3):
        assert_type(run, Run)
    with app.sync(app.lock, "payroll", ttl=4) as lock:
        assert_type(lock.token, int)
    assert_type(await app.runs.handle("x", encode).result(), str)
    assert_type(await app.runs.get("x"), RunStory)
    assert_type(await app.submit(upload, {"video": "v1"}), RunHandle[bytes])
    assert_type(await (await app.chain(encode.call("v1"), upload.call("v1")).submit()).results(), list[bytes])
    assert_type(app.group(encode.call("v1"), encode.call("v2")).then(report.call()), Graph[int])
    assert_type(await (await encode.map([{"video": "v1"}], limit=2).submit()).results(), list[str])
    assert_type(await app.upstream(encode), list[str])
    tidy("v1")

async def misuse() -> None:
    encode(1)
    await encode.submit()
    await upload.submit("v1", priority=2)
    encode.options(prio=2)
    app.sync(encode.submit, video=5)
    app.job(every("1h"), overlap="sometimes")
    app.task(priority="high")
"""


def test_types_are_kept_and_misuse_is_seen_by_a_type_checker(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--strict", "--disable-error-code=empty-body", str(file)]
    reported = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    first = TYPED.splitlines().index("async def misuse() -> None:") + 2
    wrong = sorted(set(map(int, re.findall(r"typed\.py:(\d+): error", reported))))
    assert wrong == list(range(first, first + 7)), reported


def test_a_run_that_is_retried_waits_anew_for_code_that_fits_it() -> None:
    failed = msgspec.json.encode(RunOptions(unfit_since=1, timeout=2)).decode()
    assert msgspec.json.decode(marked(failed, "ada"), type=KeptOptions) == KeptOptions(timeout=2, submitted_by="ada")
