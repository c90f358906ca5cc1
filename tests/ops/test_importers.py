"""Schedules of other systems as jobs: made by the real libraries where there are such, and compared by fire times."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Mainspring
from mainspring.cli.main import run
from mainspring.core.instants import Instant, load_zone, parse_instant, to_datetime
from mainspring.core.model import Job
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger
from mainspring.errors import InvalidInput
from mainspring.ops.migrate.airflow import read_dags
from mainspring.ops.migrate.apscheduler_store import PAUSED, read_apscheduler
from mainspring.ops.migrate.celery_beat import read_beat
from mainspring.ops.migrate.cronjobs import read_cronjobs
from mainspring.ops.migrate.crontab import read_crontab
from mainspring.ops.migrate.found import Comparison, Found, compare, our_fires
from mainspring.ops.migrate.their_cron import Rules, read_their_cron

NOW = parse_instant("2026-03-27T12:00:00Z")
"""A Friday; clocks go forward in Berlin on Sunday at 02:00."""
AUTUMN = parse_instant("2026-10-24T12:00:00Z")
"""A Saturday; clocks go back in Berlin on Sunday at 03:00."""
BERLIN = "Europe/Berlin"


def by_name(found: Sequence[Found]) -> dict[str, Found]:
    return {each.name: each for each in found}


def job_of(found: Found) -> Job:
    assert found.job is not None, found.why_not
    return found.job


def walls(instants: Sequence[Instant], zone: str = BERLIN) -> list[str]:
    return [to_datetime(each).astimezone(load_zone(zone)).strftime("%d %H:%M%z") for each in instants]


def agree(found: Found, now: Instant = NOW) -> Comparison:
    seen = compare(found, now)
    assert seen.ours == seen.theirs
    assert seen.differ_at is None
    return seen


CRONTAB = """\
SHELL=/bin/bash
PATH="/usr/local/bin:/usr/bin"
MAILTO=ops@example.org

# what runs at night
30 2 * * *      /usr/local/bin/backup --all > /var/log/backup.log 2>&1
*/15 * * * 1-5  cd /srv && ./sync.sh
CRON_TZ=UTC
0 9 1 * mon     mail -s report me%first line%100\\% done
@reboot         /usr/bin/daemon
61 * * * *      broken
nonsense
@daily          backup --light
"""


def test_a_crontab_becomes_commands_with_its_shell_variables_input_and_zone(tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text(CRONTAB)
    found = read_crontab(file, NOW, zone=BERLIN, namespace="default", has_user=False)
    named = by_name(found)
    assert [each.name for each in found] == ["backup", "sync.sh", "mail", "daemon", "broken", "line 12", "backup-2"]
    backup = job_of(named["backup"])
    assert json.loads(backup.args) == {
        "argv": ["/bin/bash", "-c", "/usr/local/bin/backup --all > /var/log/backup.log 2>&1"],
        "env": {"PATH": "/usr/local/bin:/usr/bin"},
    }
    assert (backup.options.retry.retries, backup.policy.misfire) == (0, "skip")
    assert "MAILTO" in named["backup"].lost[0]
    mail = json.loads(job_of(named["mail"]).args)
    assert (mail["argv"][2], mail["stdin"]) == ("mail -s report me", "first line\n100% done\n")
    assert job_of(named["mail"]).trigger == CronTrigger("0 9 1 * mon", "UTC")
    assert "no counterpart" in named["daemon"].why_not
    assert "minute '61'" in named["broken"].why_not
    assert "no line of a crontab" in named["line 12"].why_not
    for name in ("backup", "sync.sh", "mail", "backup-2"):
        agree(named[name])
        agree(named[name], AUTUMN)


def test_lines_of_a_system_crontab_name_their_user(tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("17 * * * * root run-parts /etc/cron.hourly\n")
    (found,) = read_crontab(file, NOW, zone="UTC", namespace="default", has_user=True)
    assert json.loads(job_of(found).args)["argv"][2] == "run-parts /etc/cron.hourly"
    assert found.lost == ("user root: the command runs as the user of the worker",)


@given(
    minute=st.sampled_from(["0", "30", "*/20", "5,50"]),
    hour=st.sampled_from(["*", "2", "1-3", "*/2", "0,2"]),
    day=st.sampled_from(["*", "29", "*/2", "25"]),
    weekday=st.sampled_from(["*", "sun", "0-2", "7"]),
    start=st.sampled_from([NOW, AUTUMN]),
)
def test_our_cron_fires_as_debians_does_around_clock_changes(
    minute: str, hour: str, day: str, weekday: str, start: Instant
) -> None:
    expression = f"{minute} {hour} {day} * {weekday}"
    theirs = read_their_cron(expression, "debian")
    assert theirs is not None
    job = Job("", "j", "t", CronTrigger(expression, BERLIN))
    ours = list(islice(our_fires(job, start), 40))
    assert ours == list(islice(theirs.fires(start, BERLIN), 40))


@pytest.mark.parametrize(
    ("rules", "spring", "autumn"),
    [
        ("debian", ["29 03:00+0200", "30 02:30+0200"], ["25 02:30+0200", "26 02:30+0100"]),
        ("robfig", ["30 02:30+0200", "31 02:30+0200"], ["25 02:30+0200", "25 02:30+0100"]),
        ("airflow", ["29 03:30+0200", "30 02:30+0200"], ["25 02:30+0200", "26 02:30+0100"]),
    ],
)
def test_each_system_has_its_own_rule_for_clock_changes(rules: Rules, spring: list[str], autumn: list[str]) -> None:
    theirs = read_their_cron("30 2 * * *", rules)
    assert theirs is not None
    saturday = parse_instant("2026-03-28T12:00:00Z")
    assert walls(list(islice(theirs.fires(saturday, BERLIN), 2))) == spring
    assert walls(list(islice(theirs.fires(AUTUMN, BERLIN), 2))) == autumn


def test_the_beat_schedule_of_a_real_celery_app(tmp_path: Path) -> None:
    from celery import Celery
    from celery.schedules import BaseSchedule, crontab

    # Stands for the schedules that are neither a crontab nor an interval: Celery's own class needs an ephemeris.
    solar = type("solar", (BaseSchedule,), {})

    celery = Celery("shop", broker="memory://", set_as_current=False)
    celery.conf.timezone = BERLIN

    celery.task(name="shop.tasks.remind", autoretry_for=(OSError,), max_retries=5)(work)

    celery.conf.beat_schedule = {
        "night": {"task": "shop.tasks.report", "schedule": crontab(minute=30, hour=4), "kwargs": {"kind": "day"}},
        "often": {
            "task": "shop.tasks.poll",
            "schedule": timedelta(seconds=30),
            "options": {"queue": "io", "expires": 20},
        },
        "wraps": {
            "task": "shop.tasks.poll",
            "schedule": crontab(minute="50-10/10", hour="8-18", day_of_week="mon-fri"),
        },
        "call": {"task": "shop.tasks.remind", "schedule": 3600.0, "args": (7,), "options": {"priority": 3}},
        "sun": {"task": "shop.tasks.poll", "schedule": solar()},
        "both": {"task": "shop.tasks.poll", "schedule": crontab(0, 0, day_of_month="13", day_of_week="fri")},
    }
    app = Mainspring(f"sqlite:///{tmp_path / 'a.db'}")

    @app.task(name="remind")
    def ours(user: int) -> None: ...

    named = by_name(read_beat(celery, NOW, namespace="default", app=app))
    night, often, wraps, call = (job_of(named[name]) for name in ("night", "often", "wraps", "call"))
    assert (night.task, night.args, night.trigger) == ("report", '{"kind":"day"}', CronTrigger("30 4 * * *", BERLIN))
    assert (often.queue, often.policy.start_deadline, often.options.retry.retries) == ("io", 20_000_000, 0)
    assert wraps.trigger == CronTrigger("0,10,50 8,9,10,11,12,13,14,15,16,17,18 * * 1,2,3,4,5", BERLIN)
    assert (call.task, call.args, call.options.retry.retries) == ("remind", '{"user":7}', 5)
    assert [each.partition(":")[0] for each in named["call"].lost] == ["options.priority", "autoretry_for"]
    assert named["night"].lost == ("task: the app has no 'report'; register it",)
    assert "solar" in named["sun"].why_not
    assert "both must match there" in named["both"].why_not
    for name in ("night", "often", "wraps", "call"):
        seen = compare(named[name], NOW)
        assert (seen.ours, len(seen.theirs)) == (seen.theirs, 5), name
    without = by_name(read_beat(celery, NOW, namespace="default", app=None))
    assert "positional" in without["call"].why_not


def work(a: int = 0, b: str = "") -> None:
    """What the jobs of APScheduler call."""


class Own:
    """A class of the user's, which is not imported from data."""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite:///missing.sqlite", "names a file that does not exist"),
        ("sqlite:///other.sqlite", "has no table apscheduler_jobs"),
        ("jobs.sqlite", "cannot be read"),
        ("nosuch://host/jobs", "cannot be read"),
        ("postgresql+nosuch://host/jobs", "cannot be read"),
        ("mysql://host/jobs", "the driver that it names"),
    ],
)
def test_a_store_of_apscheduler_that_cannot_be_read_is_refused(
    url: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.sqlite").touch()
    with pytest.raises(InvalidInput, match=problem):
        read_apscheduler(url, NOW, namespace="default", app=None)
    assert not (tmp_path / "missing.sqlite").exists()


def test_a_real_store_of_apscheduler_is_only_read(tmp_path: Path) -> None:
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.combining import OrTrigger
    from apscheduler.triggers.cron import CronTrigger as TheirTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    url = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    jobs = SQLAlchemyJobStore(url=url)
    scheduler = BackgroundScheduler(jobstores={"default": jobs}, timezone=ZoneInfo(BERLIN))
    scheduler.start(paused=True)
    later = datetime(2100, 1, 1, 8, tzinfo=UTC)
    scheduler.add_job(work, "cron", hour=4, minute=30, day_of_week="mon-fri", id="weekdays", kwargs={"b": "x"})
    scheduler.add_job(work, "cron", day="last fri", hour=6, id="last-friday", misfire_grace_time=None, coalesce=False)
    scheduler.add_job(work, "interval", minutes=10, id="often", args=(1,), max_instances=3, misfire_grace_time=60)
    scheduler.add_job(work, "date", run_date=later, id="once", next_run_time=None)
    scheduler.add_job(work, OrTrigger([IntervalTrigger(hours=1), TheirTrigger(hour=3)]), id="either")
    scheduler.add_job(work, "cron", second="*/20", id="seconds", kwargs={"a": Own})
    scheduler.add_job(work, "cron", year=2027, id="year")
    scheduler.shutdown()
    jobs.engine.dispose()  # The scheduler's thread may connect once more after the store was shut down.
    before = (tmp_path / "jobs.sqlite").read_bytes()

    app = Mainspring(f"sqlite:///{tmp_path / 'a.db'}")
    app.task(name="work")(work)
    named = by_name(read_apscheduler(url, NOW, namespace="default", app=app))
    assert (tmp_path / "jobs.sqlite").read_bytes() == before
    weekdays, last = job_of(named["weekdays"]), job_of(named["last-friday"])
    assert (weekdays.task, weekdays.args) == ("work", '{"b":"x"}')
    assert weekdays.trigger == CronTrigger("30 4 * * MON-FRI", BERLIN)
    assert (weekdays.policy.misfire, weekdays.policy.overlap) == ("once", "forbid")
    assert last.trigger == CronTrigger("0 6 * * 5L", BERLIN)
    assert last.policy.misfire == "all"
    often, once = job_of(named["often"]), job_of(named["once"])
    assert (often.args, often.policy.misfire, often.policy.grace) == ('{"a":1}', "skip", 60_000_000)
    assert "max_instances 3" in named["often"].lost[0]
    assert (once.paused_why, once.trigger) == (PAUSED, once.trigger)
    assert "has no counterpart" in named["either"].why_not
    assert "test_importers.Own is a name" in named["seconds"].why_not.replace("'", "")
    assert "year" in named["year"].why_not
    for name in ("weekdays", "last-friday", "often", "once"):
        agree(named[name])


def test_what_a_forged_pickle_names_is_not_imported(tmp_path: Path) -> None:
    url, marker = f"sqlite:///{tmp_path / 'jobs.sqlite'}", tmp_path / "ran"
    forged = {
        "direct": b"cos\nsystem\n(S'touch " + bytes(marker) + b"'\ntR.",
        "by reference": b"capscheduler.util\nref_to_obj\n(S'os:system'\ntR(S'touch " + bytes(marker) + b"'\ntR.",
        "by attribute": b"cbuiltins\ngetattr\n(cdatetime\ndatetime\nS'__class__'\ntR.",
        "from a trigger's module": b"capscheduler.triggers.cron.fields\nre\n.",
    }
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as store, store:
        store.execute("CREATE TABLE apscheduler_jobs (id TEXT PRIMARY KEY, next_run_time REAL, job_state BLOB)")
        store.executemany("INSERT INTO apscheduler_jobs VALUES (?, 0, ?)", forged.items())
    found = read_apscheduler(url, NOW, namespace="default", app=None)
    assert len(found) == len(forged)
    assert all(each.job is None and "from data" in each.why_not for each in found)
    assert not marker.exists()


MANIFEST = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "30 2 * * *"
  timeZone: Europe/Berlin
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: "tools:1", command: [report]}]
"""


OLDER = MANIFEST.replace("  timeZone: Europe/Berlin\n", "").replace('"30 2', '"TZ=Europe/Berlin 30 2')


@pytest.mark.parametrize("manifest", [MANIFEST, OLDER], ids=["timeZone", "TZ="])
def test_a_cronjob_is_compared_by_the_rules_of_its_controller(tmp_path: Path, manifest: str) -> None:
    file = tmp_path / "cronjob.yaml"
    file.write_text(manifest)
    (found,) = read_cronjobs(file, NOW, namespace="default")
    seen = compare(found, NOW)
    assert walls(seen.ours[:2]) == ["28 02:30+0100", "29 03:00+0200"]
    assert walls(seen.theirs[:2]) == ["28 02:30+0100", "30 02:30+0200"]
    assert seen.differ_at == seen.ours[1]


DAGS = """\
import os
from datetime import datetime, timedelta
import pendulum
from airflow import DAG
from airflow.decorators import dag

ARGS = {"owner": "data", "retries": 2, "retry_delay": timedelta(minutes=1), "on_failure_callback": print}

with DAG("sales", schedule="0 6 * * 1-5", start_date=pendulum.datetime(2024, 1, 1, tz="Europe/Berlin"), catchup=False,
         default_args=ARGS, tags=["sales"], max_active_runs=1, sla_miss_callback=print) as sales:
    raise SystemExit("never run")

hourly = DAG(dag_id="hourly", schedule_interval="@hourly", start_date=datetime(2024, 1, 1))
by_hand = DAG("by_hand", schedule=None)
assets = DAG("assets", schedule=[object()])
ended = DAG("ended", schedule="0 0 * * *", start_date=datetime(2024, 1, 1), end_date=datetime(2026, 6, 1))
timetable = DAG("timetable", schedule=CronTriggerTimetable("0 1 * * *", timezone="Europe/Berlin"))
delta = DAG("delta", timetable=DeltaTriggerTimetable(timedelta(hours=2)))
unknown = DAG("unknown", schedule=os.environ["WHEN"])

@dag(schedule=timedelta(hours=6), start_date=datetime(2024, 1, 1))
def rolling(): ...
"""


def test_schedules_of_dags_are_read_without_running_them(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "sales.py").write_text(DAGS)
    named = by_name(read_dags([tmp_path / "dags"], NOW, namespace="default"))
    sales, hourly, rolling = (job_of(named[name]) for name in ("sales", "hourly", "rolling"))
    assert (sales.task, sales.trigger) == ("sales", CronTrigger("0 6 * * 1-5", BERLIN))
    assert (sales.policy.overlap, sales.options.tags, sales.options.retry.retries) == ("queue", ("sales",), 2)
    assert any(each.startswith("sla_miss_callback") for each in named["sales"].lost)
    agree(named["sales"])
    agree(named["hourly"])
    agree(named["ended"])
    assert job_of(named["timetable"]).trigger == CronTrigger("0 1 * * *", BERLIN)
    assert isinstance(job_of(named["delta"]).trigger, EveryTrigger)
    assert hourly.trigger == CronTrigger("@hourly", "UTC")
    assert walls(compare(named["rolling"], NOW).ours[:1], "UTC") == ["27 18:00+0000"]
    assert rolling.policy.misfire == "once"
    assert job_of(named["by_hand"]).trigger.__class__.__name__ == "ManualTrigger"
    assert "os.environ" in named["unknown"].why_not
    assert "object()" in named["assets"].why_not


def test_a_file_of_dags_that_cannot_be_read_leaves_the_others_in(tmp_path: Path) -> None:
    (tmp_path / "sales.py").write_text(DAGS)
    (tmp_path / "broken.py").write_text("def x(:\n")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    named = by_name(read_dags([tmp_path], NOW, namespace="default"))
    assert job_of(named["sales"])
    assert "invalid syntax" in named["broken"].why_not
    assert named["latin"].job is None


def test_a_dry_run_stores_nothing_and_an_import_stores_what_it_showed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, file = ("--store", f"sqlite:///{tmp_path / 'a.db'}"), tmp_path / "crontab"
    file.write_text("30 2 * * * backup\n@reboot daemon\n")
    command = ["import", "crontab", str(file), "--tz", BERLIN, *store]
    assert run([*command, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "HERE (Europe/Berlin)" in shown.out
    assert shown.out.count(" 02:30:00 ") == 10
    assert "line 2 (daemon) is left out" in shown.err
    assert list(tmp_path.iterdir()) == [file]
    assert run(["db", "migrate", *store]) == 0
    assert run([*command, "--dry-run"]) == 0
    capsys.readouterr()
    assert run(["job", "list", "--json", *store]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run([*command, "--json"]) == 0
    backup, daemon = json.loads(capsys.readouterr().out)
    assert (len(backup["next"]), backup["theirs"], backup["differs_at"]) == (5, backup["next"], None)
    assert daemon["left_out"]
    assert run(["job", "show", "backup", "--json", *store]) == 0
    capsys.readouterr()
    assert run([*command]) == 0
    assert "a job of this name exists already" in capsys.readouterr().err


def test_an_app_that_cannot_be_imported_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "celery", "no_such_module:app"]) == 2
    assert "no_such_module" in capsys.readouterr().err


def test_a_celery_module_that_fails_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_beat.py").write_text("app = None\nraise RuntimeError('no ephem')\n")
    assert run(["import", "celery", "failing_beat:app"]) == 1
    shown = capsys.readouterr().err
    assert "failing_beat could not be imported: RuntimeError: no ephem (failing_beat.py, line 2)" in shown


def test_imported_jobs_are_in_the_store_of_the_app_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beat_of_shop.py").write_text(
        "from celery import Celery\napp = Celery('shop', set_as_current=False)\n"
        "app.conf.beat_schedule = {'daily': {'task': 'report', 'schedule': 60.0, 'args': ('sales',)}}\n"
    )
    (tmp_path / "work_of_shop.py").write_text(
        "from mainspring import Mainspring\napp = Mainspring('sqlite:///shop.db')\n\n"
        "@app.task\ndef report(kind: str) -> None: ...\n"
    )
    assert run(["import", "celery", "beat_of_shop:app", "--app", "work_of_shop.py"]) == 0
    assert (tmp_path / "shop.db").exists()
    assert not (tmp_path / "mainspring.db").exists()
    capsys.readouterr()
    assert run(["job", "list", "--json", "--store", "sqlite:///shop.db"]) == 0
    assert [job["name"] for job in json.loads(capsys.readouterr().out)] == ["daily"]
