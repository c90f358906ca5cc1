"""How many runs firings may make: in one firing, in one plan, and in a minute for each namespace.

A job says how often it fires and how many runs each firing has. Without bounds one line of a definition would ask for
more work than a fleet can write. So a definition that could never be sustained is refused, and what is due faster than
its namespace may fire waits: it is late then, and the job's misfire policy says what becomes of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mainspring.core.instants import MINUTE
from mainspring.core.model import Job
from mainspring.core.schedules.cron import parse_cron
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, describe
from mainspring.errors import InvalidInput

FIRING_RUNS: Final = 10_000
"""A firing is written in one transaction: with more runs it would hold up the firings of all other jobs."""
FIRING_BYTES: Final = 64 * 2**20
"""Each run of a firing is stored with a copy of the job's arguments: together they have to fit into memory."""
PLAN_RUNS: Final = 1_000
"""A job that is behind catches up in plans of at most this many runs, or of one firing, so that others get a turn."""


class Bounds(NamedTuple):
    """What a plan has to keep to."""

    runs: int = PLAN_RUNS
    refusal: str = ""
    """Why no instant may have runs; empty if they may."""
    late_because: str = ""
    """Why instants that are late are late, if that is known."""


def runs_of(job: Job) -> int:
    """How many runs each firing of a job has."""
    return len(job.policy.regions) * job.policy.completions


def runs_a_minute(job: Job) -> int:
    """How many runs the firings of a job make in a minute, as far as its trigger says: averaged over an hour in which
    it is due. Calendars and ends are left out: a job may be due all the time until then."""
    match job.trigger:
        case EveryTrigger(period):
            return runs_of(job) * MINUTE // period
        case CronTrigger(expression, _, dialect):
            cron = parse_cron(expression, dialect)
            return runs_of(job) * cron.minutes.bit_count() * cron.seconds.bit_count() // 60
        case _:
            return 0


def oversize(job: Job, rate: int) -> str | None:
    """Why a firing of a job is too large ever to be written; None if it is not. `rate`: the runs that its namespace may
    fire in a minute."""
    runs = runs_of(job)
    if runs > FIRING_RUNS:
        return f"each firing has {runs} runs, more than {FIRING_RUNS}"
    if runs > rate:
        return f"each firing has {runs} runs, more than the {rate} that namespace {job.namespace} may fire in a minute"
    if runs > 1 and runs * len(job.args) > FIRING_BYTES:
        return f"the arguments of the {runs} runs of each firing hold more than {FIRING_BYTES >> 20} MiB together"
    return None


def check_firings(job: Job, rate: int) -> None:
    """Refuse a definition whose firings could not be written, or not for long. InvalidInput names the remedy."""
    completions = job.policy.completions
    if problem := oversize(job, rate):
        remedy = "choose fewer completions, regions or smaller arguments, or split the work over several jobs"
        raise InvalidInput("completions", completions, f"is too many: {problem}", remedy)
    if (wanted := runs_a_minute(job)) > rate:
        problem = (
            f"fires too often for its {runs_of(job)} runs each time: that makes {wanted} runs a minute, and namespace "
            f"{job.namespace} may fire {rate} (setting firing_rate)"
        )
        raise InvalidInput("trigger", describe(job.trigger), problem, "choose a longer interval or fewer completions")


def rate_reason(namespace: str, rate: int) -> str:
    """Why a firing had to wait."""
    return f"namespace {namespace} may fire {rate} runs a minute"
