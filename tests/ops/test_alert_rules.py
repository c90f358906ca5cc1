"""Every alert fires on series that cross its threshold for long enough, and on no others: promtool plays them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "deploy" / "prometheus"
ALERTS = re.findall(r"alert: (\w+)", (RULES / "alerts.rules.yml").read_text())
PAGE = (ROOT / "docs" / "alerts.md").read_text()
LENGTH = 45
"""Minutes of every series."""

Series = dict[str, str]


def steady(value: float) -> str:
    """The same value every minute."""
    return f"{value:g}x{LENGTH}"


def growing(by: float) -> str:
    """A counter that grows by this much every minute."""
    return f"0+{by:g}x{LENGTH}"


def brief(usual: float, other: float, minutes: int) -> str:
    """`other` for the last minutes before the alerts are looked at, `usual` until then."""
    return f"{usual:g}x{LENGTH - minutes - 1} {other:g}x{minutes}"


def ended(succeeded: float, failed: float) -> Series:
    """Runs that end in each minute, over two processes."""
    name = "mainspring_runs_finished_total"
    return {
        f'{name}{{instance="a",state="succeeded"}}': growing(succeeded / 2),
        f'{name}{{instance="b",state="succeeded"}}': growing(succeeded / 2),
        f'{name}{{instance="a",state="failed"}}': growing(failed),
        f'{name}{{instance="a",state="cancelled"}}': growing(50),
    }


def failing_for(minutes: int) -> Series:
    """All runs succeed until every second one fails."""
    name, before = "mainspring_runs_finished_total", LENGTH - minutes
    return {
        f'{name}{{instance="a",state="succeeded"}}': growing(100),
        f'{name}{{instance="a",state="failed"}}': f"0x{before} 100+100x{minutes}",
    }


def delayed(bound: str, percent: float = 100) -> Series:
    """This share of runs starts within the bucket up to `bound` seconds, and all others within the bucket below."""
    bounds = ["0.025", "0.05", "0.1", "0.25", "+Inf"]
    name = "mainspring_run_delay_seconds_bucket"
    return {
        f'{name}{{instance="a",le="{le}"}}': growing(100 if index >= bounds.index(bound) else 100 - percent)
        for index, le in enumerate(bounds)
    }


def used(running: str, places: float = 100) -> Series:
    """Workers, as two processes report the same figures of the store."""
    return {
        f'mainspring_{name}{{instance="{instance}",namespace="default"}}': values
        for instance in "ab"
        for name, values in (("workers_running", running), ("worker_places", steady(places)))
    }


def waiting(*counts: str) -> Series:
    """Runs that wait, by priority, as two processes report the same figures of the store."""
    return {
        f'mainspring_queue_depth{{instance="{instance}",namespace="default",priority="{priority}",queue="q"}}': each
        for instance in "ab"
        for priority, each in enumerate(counts, 1)
    }


def gauge(name: str, values: str, **labels: str) -> Series:
    """One series of one process."""
    shown = ",".join(f'{key}="{value}"' for key, value in {"instance": "a", **labels}.items())
    return {f"{name}{{{shown}}}": values}


def started(late: float) -> Series:
    """Runs that start in each minute: 1,000, of which `late` are late."""
    return gauge("mainspring_starts_total", growing(1000), priority="1") | gauge(
        "mainspring_starts_late_total", growing(late), priority="1"
    )


def pool(use: str, waiters: float) -> Series:
    """A pool of connections."""
    waited = gauge("mainspring_store_connections", steady(waiters), state="waited_for")
    return gauge("mainspring_store_pool_use", use) | waited


class Case(NamedTuple):
    """What an alert is for, and what it must let pass."""

    crossing: Series
    quiet: list[Series]


M = 1_000_000
CASES = {
    "SuccessBelowTarget": Case(ended(980, 20), [ended(995, 5), {}]),
    "SuccessLow": Case(ended(94, 6), [ended(96, 4), {}]),
    "SuccessCritical": Case(ended(89, 11), [ended(91, 9), {}]),
    "HighFailureRate": Case(ended(94, 6), [ended(96, 4), failing_for(8), {}]),
    "SchedulingLatencyAboveTarget": Case(delayed("0.1"), [delayed("0.05"), {}]),
    "SchedulingLatencyHigh": Case(delayed("0.25"), [delayed("0.1"), {}]),
    "SchedulingLatencyCritical": Case(delayed("0.25"), [delayed("0.25", 2), {}]),
    "ServiceLevelMissed": Case(started(11), [started(9), started(0), {}]),
    "UtilisationBelowTarget": Case(used(steady(79)), [used(steady(81)), used(steady(0), 0), {}]),
    "LowWorkerUtilisation": Case(used(steady(69)), [used(steady(71)), used(brief(90, 10, 25)), used(steady(0), 0)]),
    "WorkerUtilisationCritical": Case(used(steady(59)), [used(steady(61)), used(brief(90, 10, 25))]),
    "WorkersDead": Case(
        gauge("mainspring_workers_dead_share", steady(0.11), namespace="default"),
        [
            gauge("mainspring_workers_dead_share", steady(0.1), namespace="default"),
            gauge("mainspring_workers_dead_share", brief(0, 0.5, 3), namespace="default"),
        ],
    ),
    # Two processes report the same figures: their sum would be twice what waits.
    "QueueAboveTarget": Case(waiting(steady(0.6 * M), steady(0.5 * M)), [waiting(steady(0.5 * M), steady(0.4 * M))]),
    "QueueDeep": Case(waiting(steady(3 * M), steady(2.1 * M)), [waiting(steady(3 * M), steady(1.9 * M))]),
    "HighQueueDepth": Case(waiting(steady(5.1 * M)), [waiting(steady(4.9 * M)), waiting(brief(0, 9 * M, 8))]),
    "QueueDepthCritical": Case(waiting(steady(10.1 * M)), [waiting(steady(9.9 * M))]),
    "PoolUsageHigh": Case(pool(steady(0.85), 0), [pool(steady(0.8), 0), pool(brief(0.1, 1, 1), 0)]),
    "PoolExhausted": Case(pool(steady(1), 3), [pool(steady(1), 0), pool(steady(0.9), 3)]),
    "ConnectionLeak": Case(
        gauge("mainspring_store_connection_leaks_total", growing(1)),
        [gauge("mainspring_store_connection_leaks_total", steady(7))],
    ),
    "StoreUnreachable": Case(
        gauge("mainspring_store_figures_age_seconds", steady(70)),
        [
            gauge("mainspring_store_figures_age_seconds", steady(70))
            | gauge("mainspring_store_figures_age_seconds", steady(0), instance="b")
        ],
    ),
    "ReplicationLagHigh": Case(
        gauge("mainspring_replication_lag_seconds", steady(61)),
        [gauge("mainspring_replication_lag_seconds", steady(59)), {}],
    ),
    "ReplicationLagCritical": Case(
        gauge("mainspring_replication_lag_seconds", steady(301)),
        [gauge("mainspring_replication_lag_seconds", steady(299)), {}],
    ),
    "Down": Case({}, [gauge("mainspring_leader", steady(0))]),
    "NoLeader": Case(
        gauge("mainspring_leader", steady(0)) | gauge("mainspring_leader", steady(0), instance="b"),
        [gauge("mainspring_leader", steady(0)) | gauge("mainspring_leader", steady(1), instance="b")],
    ),
    "ClockSkew": Case(
        gauge("mainspring_clock_skew_seconds", steady(-1.5)), [gauge("mainspring_clock_skew_seconds", steady(-0.9))]
    ),
    "RelayStale": Case(
        gauge("mainspring_loop_age_seconds", steady(61), loop="relay"),
        [
            gauge("mainspring_loop_age_seconds", steady(59), loop="relay"),
            gauge("mainspring_loop_age_seconds", steady(3600), loop="cleaner"),
        ],
    ),
    "LoopStalled": Case(
        gauge("mainspring_loop_stalled", steady(1), loop="planner"),
        [gauge("mainspring_loop_stalled", steady(0), loop="planner")],
    ),
    "BreakerOpen": Case(
        gauge("mainspring_breaker_open", steady(1), breaker="broker"),
        [gauge("mainspring_breaker_open", steady(0), breaker="broker")],
    ),
    "Degraded": Case(
        gauge("mainspring_degradation_level", steady(1)), [gauge("mainspring_degradation_level", steady(0))]
    ),
    "SubmissionsRefused": Case(
        gauge("mainspring_degradation_level", steady(4)), [gauge("mainspring_degradation_level", steady(3))]
    ),
}


def as_played(name: str, series: Series, fires: bool) -> dict[str, object]:
    """One test of promtool: what fires at the end of the series."""
    return {
        "name": f"{name} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="Mainspring{name}",alertstate="firing"}})',
                "eval_time": f"{LENGTH - 1}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def test_each_alert_fires_where_its_threshold_is_crossed_for_long_enough_and_nowhere_else(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    assert tool is not None, "promtool is not installed: make services"
    plan = {
        "rule_files": [str(RULES / "recording.rules.yml"), str(RULES / "alerts.rules.yml")],
        "evaluation_interval": "1m",
        "tests": [as_played(name, case.crossing, True) for name, case in CASES.items()]
        + [as_played(name, series, False) for name, case in CASES.items() for series in case.quiet],
    }
    path = tmp_path / "plan.yml"
    path.write_text(json.dumps(plan))  # JSON is YAML.
    played = subprocess.run([tool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr


def test_every_alert_is_tested() -> None:
    assert {f"Mainspring{name}" for name in CASES} == set(ALERTS)
    assert all(case.quiet for case in CASES.values())


def test_every_alert_has_a_runbook_that_it_links_to() -> None:
    links = re.findall(r"runbook: docs/alerts\.md#(\w+)", (RULES / "alerts.rules.yml").read_text())
    assert links == [alert.lower() for alert in ALERTS]
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_says_what_to_look_at_and_what_to_do(alert: str) -> None:
    section = re.search(rf"^### {alert}$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert "**Look:**" in section[1], alert
    assert "**Do:**" in section[1], alert
