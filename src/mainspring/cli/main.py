"""The `mainspring` command: what there is, and what an error looks like."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from mainspring.cli.lazy import Entry, LazyGroup, SourceGroup
from mainspring.cli.output.errors import explain
from mainspring.cli.session import Session
from mainspring.executors.launching.kernel import hide_memory
from mainspring.version import VERSION

_LONG_LIVED = frozenset({"up", "server", "worker"})
_JOBS = {
    "list": Entry("mainspring.cli.jobs.show:list_jobs", "List jobs, their next fire time and how they last ended."),
    "show": Entry("mainspring.cli.jobs.show:show", "Show a job, what became of its firings, and why it does not fire."),
    "next": Entry("mainspring.cli.jobs.preview:next_fires", "Preview fire times, of a job or before there is one."),
    "add": Entry("mainspring.cli.jobs.define:add", "Add a job."),
    "edit": Entry("mainspring.cli.jobs.define:edit", "Change what a job does, or when."),
    "sync": Entry("mainspring.cli.jobs.sync:sync", "Store the jobs that an app declares."),
    "pause": Entry("mainspring.cli.jobs.act:pause", "Let jobs rest; what comes due meanwhile is skipped."),
    "resume": Entry("mainspring.cli.jobs.act:resume", "Let paused jobs go on."),
    "remove": Entry("mainspring.cli.jobs.act:remove", "Forget jobs; their runs and ledger stay."),
    "simulate": Entry("mainspring.cli.jobs.simulate:simulate", "Show what a changed job would do."),
    "backfill": Entry("mainspring.cli.jobs.backfill:backfill", "Fire past instants that never ran."),
    "trigger": Entry("mainspring.cli.jobs.act:trigger", "Fire a job now, by hand."),
}
_RUNS = {
    "submit": Entry("mainspring.cli.runs.submit:submit", "Submit one run of a task or a command."),
    "list": Entry("mainspring.cli.runs.show:list_runs", "List runs, newest first."),
    "show": Entry("mainspring.cli.runs.show:show", "Show the history of a run, and why it is not running."),
    "dead-letters": Entry("mainspring.cli.runs.show:dead_letters", "List runs that failed for good."),
    "logs": Entry("mainspring.cli.runs.follow:logs", "Print what a run wrote."),
    "wait": Entry("mainspring.cli.runs.follow:wait", "Wait for a run to end; exits 3 unless it succeeded."),
    "cancel": Entry("mainspring.cli.runs.act:cancel", "Cancel runs."),
    "retry": Entry("mainspring.cli.runs.act:retry", "Run finished runs again."),
    "act": Entry("mainspring.cli.runs.act:act", "Cancel or retry all runs that a filter fits."),
}
_IMPORTS = {
    "crontab": Entry("mainspring.cli.jobs.imports:crontab", "Lines of a crontab."),
    "celery": Entry("mainspring.cli.jobs.imports:celery", "The beat schedule of a Celery app."),
    "apscheduler": Entry("mainspring.cli.jobs.imports:apscheduler", "Jobs in a store of APScheduler 3."),
    "kubernetes": Entry("mainspring.cli.jobs.imports:kubernetes", "CronJobs of Kubernetes."),
    "airflow-cron": Entry("mainspring.cli.jobs.imports:airflow_cron", "Schedules of Airflow DAGs."),
}
_CALENDARS = {
    "list": Entry("mainspring.cli.admin.calendar:list_calendars", "List calendars, and what each excludes."),
    "show": Entry("mainspring.cli.admin.calendar:show", "Show what a calendar excludes."),
    "save": Entry("mainspring.cli.admin.calendar:save", "Save a calendar, or replace it."),
    "remove": Entry("mainspring.cli.admin.calendar:remove", "Remove a calendar that nothing uses."),
}
_TOKENS = {
    "create": Entry("mainspring.cli.admin.token:create", "Make a token."),
    "revoke": Entry("mainspring.cli.admin.token:revoke", "Make tokens worthless, within seconds."),
}
_DATABASE = {
    "status": Entry(
        "mainspring.cli.admin.database:status", "Show where the database is, its version, and what it holds."
    ),
    "migrate": Entry("mainspring.cli.admin.database:migrate", "Create the database, or bring it up to date."),
}
_BACKUPS = {
    "create": Entry("mainspring.cli.admin.backup:create", "Back the database up while it is in use."),
    "list": Entry("mainspring.cli.admin.backup:list_all", "List backups, newest first."),
    "verify": Entry("mainspring.cli.admin.backup:verify", "Prove that a backup can be restored."),
    "restore": Entry("mainspring.cli.admin.backup:restore", "Restore a backup to an empty place."),
    "prune": Entry("mainspring.cli.admin.backup:prune", "Remove old backups by hours and days."),
    "doctor": Entry("mainspring.cli.admin.backup:doctor", "Say how much a loss of the store takes with it."),
}
_DRILLS = {
    "run": Entry("mainspring.cli.admin.drill:run", "Fail the primary, and prove that the standby takes over."),
    "list": Entry("mainspring.cli.admin.drill:list_all", "List drills, and say when the next is due."),
}

cli = LazyGroup(
    "mainspring",
    "A job scheduler that never loses or doubles a firing.",
    {
        "up": Entry("mainspring.cli.processes.up:up", "Run the scheduler, a worker and the API in one process."),
        "server": Entry("mainspring.cli.processes.server:server", "Serve the API, and schedule."),
        "worker": Entry("mainspring.cli.processes.up:worker", "Run a worker."),
        "scale": Entry("mainspring.cli.admin.scale:scale", "Run as many workers as the load needs."),
        "job": LazyGroup("job", "Look at jobs and change them.", _JOBS),
        "run": LazyGroup("run", "Submit runs, look at them, wait for them.", _RUNS),
        "calendar": LazyGroup("calendar", "Look at calendars, save and remove them.", _CALENDARS),
        "import": SourceGroup("import", "Make jobs of the schedules of other systems.", _IMPORTS),
        "export": Entry("mainspring.cli.jobs.kubernetes:export", "Print jobs as CronJobs of Kubernetes."),
        "ui": Entry("mainspring.cli.web.ui:ui", "Open the web UI in the browser, signed in."),
        "top": Entry("mainspring.cli.web.top:top", "Watch the overview in the terminal."),
        "workers": Entry("mainspring.cli.views.fleet:workers", "List workers."),
        "queues": Entry("mainspring.cli.views.fleet:queues", "List queues, pause or resume one."),
        "regions": Entry("mainspring.cli.views.fleet:regions", "Show how regions stand."),
        "cluster": Entry("mainspring.cli.views.fleet:cluster", "Show the leader, the nodes and the terms."),
        "errors": Entry("mainspring.cli.views.outcomes:errors", "List kinds of failure."),
        "service-levels": Entry(
            "mainspring.cli.views.outcomes:service_levels", "Show how punctually runs started, by priority."
        ),
        "events": Entry("mainspring.cli.admin.trail:events", "Print what happens as it happens."),
        "audit": Entry("mainspring.cli.admin.trail:audit", "List changes made over the API, with their authors."),
        "load": Entry("mainspring.cli.views.ahead:load", "Show what is planned to start."),
        "forecast": Entry("mainspring.cli.views.ahead:forecast_command", "Show the next day and what does not fit."),
        "advise": Entry("mainspring.cli.admin.advise:advise_command", "Say which coordination, queue and store fit."),
        "cost": Entry("mainspring.cli.admin.cost:cost", "Show what the fleet costs, and what would save most."),
        "simulate": Entry("mainspring.cli.admin.simulate:simulate", "Run the scheduler where everything fails."),
        "doctor": Entry("mainspring.cli.admin.doctor:doctor", "Check that store, broker, lease, cache and sink work."),
        "drain": Entry("mainspring.cli.views.fleet:drain", "Ask a worker to stop."),
        "token": LazyGroup("token", "Make tokens for the API, and make them worthless.", _TOKENS),
        "db": LazyGroup("db", "Look after the database.", _DATABASE),
        "backup": LazyGroup("backup", "Back the database up, and restore it.", _BACKUPS),
        "drill": LazyGroup("drill", "Drill the loss of the primary site.", _DRILLS),
        "versions": Entry("mainspring.cli.views.fleet:versions", "Show which versions run."),
        "settings": Entry("mainspring.cli.views.fleet:show_settings", "Show the settings in effect."),
        "completion": Entry("mainspring.cli.admin.completion:completion", "Print a script for shell completion."),
    },
    headings={
        "up": "Run it",
        "job": "Jobs and runs",
        "ui": "See what happens",
        "load": "Plan ahead",
        "doctor": "Operate it",
    },
)
cli = click.version_option(VERSION, message="%(prog)s %(version)s")(cli)


def run(args: Sequence[str], *, program: str = "mainspring", app: str | None = None) -> int:
    """Execute one command line and answer its exit code: 0 good, 1 failed, 2 usage, 3 the run failed, 4 not allowed.

    `program` and `app` are for frameworks that have a command line of their own: the words before `args` in it, and
    the app whose settings hold where a command names no app.
    """
    session = Session(args=tuple(args), program=program, app=app)
    try:
        code = cli.main(list(args), program, standalone_mode=False, obj=session)
    except Exception as error:
        return explain(error, session)
    return code if isinstance(code, int) else 0


def main() -> None:
    """The program."""
    if _LONG_LIVED.intersection(sys.argv):
        hide_memory()  # Before the rest is imported: their environment may hold secrets.
    sys.exit(run(sys.argv[1:]))
