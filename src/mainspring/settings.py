"""All settings in one table: default, environment variable and meaning.

Sources, the strongest first: a flag, the environment (`MAINSPRING_*`), the code of the app, `mainspring.toml` in the
working folder, the default. Durations are written as `"1h30m"`, as a timedelta or in seconds, and kept in microseconds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from mainspring.core.instants import DAY, MILLISECOND, MINUTE, SECOND, Duration, format_duration, parse_duration
from mainspring.core.load.breaker import Policy
from mainspring.core.runs.alerts import check_alert
from mainspring.core.runs.pools import read_pools
from mainspring.core.runs.priority import Ordering, check_priority
from mainspring.errors import InvalidInput

FILE = Path("mainspring.toml")
PREFIX = "MAINSPRING_"
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_PUBLIC_URL = re.compile(r"https?://[^\s?#]+")
_FLEET = re.compile(r"[a-z0-9_-]{1,40}")

Coordination = Literal["leader", "cluster", "lock"]
SameTasks = Literal["refuse", "warn"]
CommandLevel = Literal["none", "limits", "sandbox"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
Algorithm = Literal["HS256", "RS256", "EdDSA"]
Reader = Callable[[str, object], object]
"""Converts a written value to the value of the setting. The first argument names the setting in errors."""


class Knob(NamedTuple):
    """How one setting is read, and what it means."""

    read: Reader
    meaning: str


class SettingRow(NamedTuple):
    """One row of the table of settings in the documentation."""

    name: str
    default: str
    variable: str
    meaning: str


def _read_text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(field, value, "is not a text", "give a text that is not empty")
    return value.strip()


def _read_collector(field: str, value: object) -> str:
    url = _read_text(field, value)
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(field, value, "is no address of a collector", "write it like http://localhost:4318")
    return url


def _read_fleet(field: str, value: object) -> str:
    name = _read_text(field, value)
    if not _FLEET.fullmatch(name):
        raise InvalidInput(field, value, "is not a name", "use up to 40 of the characters a-z, 0-9, _ and -")
    return name


def _read_base_path(field: str, value: object) -> str:
    if not isinstance(value, str) or not _BASE_PATH.fullmatch(value):
        raise InvalidInput(
            field, value, "is not a path", "write it like /mainspring: a slash first, and none at the end"
        )
    return value


def _read_public_url(field: str, value: object) -> str:
    url = _read_text(field, value).rstrip("/")
    if not _PUBLIC_URL.fullmatch(url):
        raise InvalidInput(field, value, "is not an address", "write it like https://jobs.example.com")
    return url


def _read_duration(field: str, value: object) -> Duration:
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)  # An environment has only texts: "10" there is ten seconds, as 10 is elsewhere.
    if not isinstance(value, str | int | float | timedelta):
        raise InvalidInput(field, value, "is not a duration", 'write it like "30s" or "1h30m"')
    duration = parse_duration(value, field)
    if duration == 0:
        raise InvalidInput(field, value, "is no time at all", "choose a duration above zero")
    return duration


def _read_count(field: str, value: object) -> int:
    count = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidInput(field, value, "is not a count", "give a whole number from 1 up")
    return count


def _read_port(field: str, value: object) -> int:
    port = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65_535:
        raise InvalidInput(field, value, "is not a port", "give a whole number from 0 to 65535")
    return port


def _read_switch(field: str, value: object) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    switch = words.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(switch, bool):
        raise InvalidInput(field, value, "is neither true nor false", "write true or false")
    return switch


def _read_names(field: str, value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts):
        names = tuple(dict.fromkeys(part.strip() for part in parts))
        if names and all(names):
            return names
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else value  # As it was written in options.
    raise InvalidInput(field, shown, "is not a list of names", 'write it like ["default", "mail"], or default,mail')


def _read_pauses(field: str, value: object) -> tuple[Duration, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise InvalidInput(field, value, "is not a list of durations", 'write it like ["1s", "2s"], or 1s,2s')
    return tuple(_read_duration(field, part.strip() if isinstance(part, str) else part) for part in parts)


def _read_rates(field: str, value: object) -> tuple[tuple[str, int], ...]:
    parts = [f"{name}={rate}" for name, rate in value.items()] if isinstance(value, dict) else _read_names(field, value)
    pairs = [part.partition("=") for part in parts]
    return tuple((name.strip(), _read_count(field, rate.strip())) for name, _, rate in pairs)


def _read_pools(field: str, value: object) -> tuple[tuple[int, int], ...]:
    if isinstance(value, dict):
        return read_pools(field, [f"{priority}={places}" for priority, places in value.items()])
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidInput(field, value, "is not a list of pools", 'write it like ["1=100", "2=50"], or 1=100,2=50')
    return read_pools(field, parts)


def _read_deadlines(field: str, value: object) -> tuple[tuple[int, Duration], ...]:
    """What was written as `priority=duration`, in order of priority."""
    parts = [f"{name}={span}" for name, span in value.items()] if isinstance(value, dict) else value
    parts = parts.split(",") if isinstance(parts, str) else parts
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and "=" in part for part in parts):
        raise InvalidInput(field, value, "is not a list of durations", 'write it like ["1=1m", "2=5m"], or 1=1m,2=5m')
    found: dict[int, Duration] = {}
    for part in parts:
        left, _, right = (word.strip() for word in part.partition("="))
        priority = check_priority(int(left) if left.isascii() and left.isdecimal() else left, field)
        if priority in found:
            raise InvalidInput(field, part, f"names priority {priority} again", "give each priority one duration")
        found[priority] = _read_duration(field, right)
    return tuple(sorted(found.items()))


def _read_networks(field: str, value: object) -> tuple[str, ...]:
    try:
        return tuple(str(ip_network(name)) for name in _read_names(field, value))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(field, value, f"is not a list of networks: {error}", 'write it like "10.0.0.0/8"') from None


def _read_alert(field: str, value: object) -> str:
    return check_alert(_read_text(field, value), field)


def _read_users(field: str, value: object) -> tuple[int, int]:
    pair: object = value.split("-") if isinstance(value, str) else value
    if isinstance(pair, list | tuple) and len(pair) == 2:
        ids = [int(each) if isinstance(each, str) and each.strip().isdecimal() else each for each in pair]
        match ids:
            case [int(first), int(last)] if 0 < first <= last < 2**32 - 1:
                return first, last
    raise InvalidInput(field, value, "is not a range of user ids above 0", 'write it like "60706-61183"')


def _text(meaning: str) -> Knob:
    return Knob(_read_text, meaning)


def _duration(meaning: str) -> Knob:
    return Knob(_read_duration, meaning)


def _count(meaning: str) -> Knob:
    return Knob(_read_count, meaning)


def _choice(words: tuple[str, ...], meaning: str) -> Knob:
    def read(field: str, value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise InvalidInput(field, value, "is not known", f"choose one of {', '.join(words)}")

    return Knob(read, meaning)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an app, a node or a worker runs with."""

    store: Annotated[str, _text("where the truth is kept: sqlite:///path, or postgresql://user@host/database")] = (
        "sqlite:///mainspring.db"
    )
    broker: Annotated[
        str | None, _text("what carries runs to workers: redis, amqp, kafka or sqs; without one, the store")
    ] = None
    cache: Annotated[str | None, _text("where statuses are kept for the API: redis://host; else, nowhere")] = None
    lease: Annotated[str | None, _text("elects leaders and keeps locks: redis://host; without one, the store")] = None
    sink: Annotated[str | None, _text("where events are sent on to: kafka://host, or several, separated by spaces")] = (
        None
    )
    server: Annotated[
        str | None, _text("the server that commands ask, in place of the store; or several, separated by commas")
    ] = None
    token: Annotated[str | None, _text("what commands show to the server")] = None
    namespace: Annotated[str, _text("the tenant that this program works for")] = "default"
    durable: Annotated[
        bool,
        Knob(_read_switch, "whether a commit survives a power cut or a crash of the server, at the price of a sync"),
    ] = True
    listen: Annotated[
        str | None, _text("where PostgreSQL itself is, if the store is a pooler's: for hints; without it, polling")
    ] = None
    pool_size: Annotated[int, _count("how many connections an event loop may have to PostgreSQL")] = 10
    pool_min_idle: Annotated[int, _count("how many of them stay open however long they are not used")] = 2
    pool_wait: Annotated[Duration, _duration("how long to wait for one that is free")] = 5 * SECOND
    pool_exhausted: Annotated[
        Duration, _duration("how long none may become free before calls fail at once instead of waiting")
    ] = 5 * SECOND
    pool_idle: Annotated[Duration, _duration("how long one may lie idle before it is closed")] = 10 * MINUTE
    pool_lifetime: Annotated[Duration, _duration("how old one may become before it is replaced")] = 30 * MINUTE
    pool_leak: Annotated[
        Duration, _duration("how long one may be in use before the log names its holder, and where that waits")
    ] = MINUTE
    pool_validation: Annotated[
        Duration, _duration("how long one that has rested for 30 s may take to prove that it works")
    ] = 3 * SECOND
    store_timeout: Annotated[
        Duration, _duration("how long a call of PostgreSQL may take, from waiting for a connection to the commit")
    ] = 15 * SECOND
    schedule_timeout: Annotated[
        Duration, _duration("the same for submissions, triggers and edits of jobs; 1000 runs of a bulk have 1s more")
    ] = 5 * SECOND
    schedule_retries: Annotated[
        tuple[Duration, ...],
        Knob(_read_pauses, "pauses before a submission or trigger that got no answer is repeated, within its time"),
    ] = (SECOND, 2 * SECOND)
    heartbeat_timeout: Annotated[
        Duration, _duration("how long a heartbeat may take; never longer than the claims that it renews are safe")
    ] = MINUTE
    heartbeat_retries: Annotated[
        tuple[Duration, ...],
        Knob(_read_pauses, "pauses after failed heartbeats, within the same bound; without them 50ms, doubling to 5s"),
    ] = ()

    coordination: Annotated[
        Coordination,
        _choice(
            get_args(Coordination), "which nodes plan: one (leader), all (cluster), the holder of a job's lease (lock)"
        ),
    ] = "leader"
    shards: Annotated[int, _count("how many leaders share the jobs; the same on all nodes")] = 1
    lease_ttl: Annotated[Duration, _duration("how long a leader leads without renewing")] = 1_500 * MILLISECOND
    lease_renew: Annotated[Duration, _duration("how often a leader renews")] = 400 * MILLISECOND
    check_in: Annotated[Duration, _duration("how often a node checks in: a sign of life, no decision")] = 5 * SECOND
    horizon: Annotated[Duration, _duration("how far ahead the planner keeps jobs in memory")] = MINUTE
    firing_rate: Annotated[int, _count("how many runs the firings of a namespace may make in a minute")] = 60_000
    firing_rates: Annotated[
        tuple[tuple[str, int], ...],
        Knob(_read_rates, "the same by namespace, where it differs: billing=600000,trial=1000"),
    ] = ()

    ordering: Annotated[
        Ordering, _choice(get_args(Ordering), "priority alone decides (strict), or waiting counts too (ageing)")
    ] = "strict"
    concurrency: Annotated[int, _count("how many runs a worker executes at once; with pools, their sum")] = 10
    pools: Annotated[
        tuple[tuple[int, int], ...],
        Knob(_read_pools, "places of a worker for runs of a priority: 1=100,2=50,3=20"),
    ] = ()
    deadlines: Annotated[
        tuple[tuple[int, Duration], ...],
        Knob(_read_deadlines, "after how long a run of a priority that names no timeout is killed: 1=1m,2=5m,3=30m"),
    ] = ()
    service_levels: Annotated[
        tuple[tuple[int, Duration], ...],
        Knob(_read_deadlines, "how long after it is due a run of a priority starts at the latest, for the figures"),
    ] = ((1, MINUTE), (2, 5 * MINUTE), (3, 30 * MINUTE))
    queues: Annotated[
        tuple[str, ...],
        Knob(_read_names, "the queues that a worker serves; without any, default and those its app names"),
    ] = ()
    regions: Annotated[tuple[str, ...], Knob(_read_names, "the regions that a worker serves")] = ("default",)
    fleet: Annotated[
        str | None,
        Knob(_read_fleet, "the fleet that a worker belongs to, which is part of its name; `mainspring scale` sets it"),
    ] = None
    claim_ttl: Annotated[Duration, _duration("how long a worker holds a run without renewing")] = 10 * SECOND
    claim_renew: Annotated[Duration, _duration("how often a worker renews; its heartbeat too")] = 3 * SECOND
    worker_dead_after: Annotated[Duration, _duration("how long a silent worker counts as alive")] = 10 * SECOND
    unfit_wait: Annotated[
        Duration, _duration("how long a run waits for a worker whose code takes its arguments, before it fails")
    ] = 10 * MINUTE
    same_tasks: Annotated[
        SameTasks,
        _choice(get_args(SameTasks), "what a worker does if another app's live workers have a task of its name"),
    ] = "refuse"
    flush: Annotated[Duration, _duration("how long a worker gathers results before it reports")] = 5 * MILLISECOND
    flush_limit: Annotated[int, _count("how many results a worker gathers before it reports")] = 500
    drain_grace: Annotated[Duration, _duration("how long a stopping worker lets runs finish")] = 30 * SECOND

    host: Annotated[str, _text("where the API listens; other addresses than loopback need a secret")] = "127.0.0.1"
    port: Annotated[int, Knob(_read_port, "the port of the API; 0 for one that is free")] = 8321
    secret: Annotated[str | None, _text("what signs the API's tokens: 32 random characters or more")] = None
    token_keys: Annotated[
        str | None, _text("instead of a secret: a file with secrets (one on each line), a PEM key or a JWKS")
    ] = None
    token_algorithm: Annotated[
        Algorithm, _choice(get_args(Algorithm), "the one algorithm by which tokens are signed")
    ] = "HS256"
    token_issuer: Annotated[str, _text("the issuer of tokens: their `iss`")] = "mainspring"
    token_audience: Annotated[str, _text("the audience of tokens: their `aud`")] = "mainspring"
    body_limit: Annotated[int, _count("how many bytes the body of a request may have")] = 16_777_216
    body_timeout: Annotated[Duration, _duration("how long a request may take to arrive")] = 10 * SECOND
    requests: Annotated[int, _count("how many requests the API works on at once; others get 503")] = 100
    watchers: Annotated[int, _count("how many long polls and event streams the API keeps open")] = 1_000
    submit_rate: Annotated[int, _count("how many runs a subject may submit in a minute")] = 1_000
    submit_rates: Annotated[
        tuple[tuple[str, int], ...], Knob(_read_rates, "the same by role, where it differs: operator=5000,viewer=1")
    ] = ()
    job_rate: Annotated[int, _count("jobs and calendars that a subject may define in a minute; workers, too")] = 1_000
    query_rate: Annotated[int, _count("how many queries a subject may make of one server in a minute")] = 60_000
    ui: Annotated[bool, Knob(_read_switch, "whether the server serves the web UI under /ui/")] = True
    base_path: Annotated[
        str, Knob(_read_base_path, "the path under which a proxy serves the API and the web UI, like /mainspring")
    ] = ""
    public_url: Annotated[
        str | None, Knob(_read_public_url, "the address of the server as people open it, for printed links")
    ] = None
    health_port: Annotated[
        int | None,
        Knob(_read_port, "the port where a worker serves its health and metrics; without one, nowhere"),
    ] = None
    health_host: Annotated[
        str, _text("the address where a worker serves its health and metrics, without tokens; 0.0.0.0 for all")
    ] = "127.0.0.1"
    most_pool_wait: Annotated[
        Duration, _duration("how long requests may wait for the database before the least important is given up")
    ] = SECOND
    most_waiting: Annotated[
        int, _count("how many due runs of priorities 1 to 7 may wait before the least important is given up")
    ] = 1_000_000
    most_late: Annotated[
        Duration, _duration("how late those may be, where all workers are busy, before the least important is given up")
    ] = 10 * MINUTE

    breaker_percent: Annotated[
        int, _count("of how many calls in a hundred have to fail before a circuit breaker opens")
    ] = 50
    breaker_least: Annotated[int, _count("of fewer calls a breaker concludes nothing")] = 10
    breaker_window: Annotated[Duration, _duration("over how long a breaker counts calls")] = 10 * SECOND
    breaker_pause: Annotated[
        Duration,
        _duration("how long an open breaker lets nothing through at first; each time twice as long, up to 30s"),
    ] = SECOND
    stall_after: Annotated[
        Duration, _duration("how long a loop of this process may stand still before it is started again")
    ] = MINUTE

    isolation: Annotated[
        CommandLevel | None,
        _choice(
            get_args(CommandLevel),
            "the least isolation of commands: none, limits, sandbox; unless given, limits where the worker is root",
        ),
    ] = None
    run_as: Annotated[
        str | None, _text("one user for all confined runs, where the worker is root; without one, each has its own")
    ] = None
    run_users: Annotated[
        tuple[int, int], Knob(_read_users, "the user ids of which each confined run gets one, where the worker is root")
    ] = (60_706, 61_183)
    cgroup: Annotated[str | None, _text("the folder for control groups; without one, the worker's own")] = None
    allow_shell: Annotated[bool, Knob(_read_switch, "whether commands may have a shell run them")] = False
    output_limit: Annotated[int, _count("how many bytes of a run's output are kept, first and last part")] = 1_048_576
    http_networks: Annotated[
        tuple[str, ...], Knob(_read_networks, "networks that HTTP calls may reach though they are not public")
    ] = ()
    http_timeout: Annotated[Duration, _duration("how long an HTTP call may take, redirects included")] = 30 * SECOND
    http_limit: Annotated[int, _count("how many bytes of an HTTP answer are read")] = 1_048_576
    containers: Annotated[str | None, _text("what runs containers: kubernetes://NAMESPACE, podman or docker")] = None
    container_namespaces: Annotated[
        tuple[str, ...],
        Knob(_read_names, "the namespaces of Kubernetes that containers may name; without any, that of containers"),
    ] = ()
    container_images: Annotated[
        tuple[str, ...], Knob(_read_names, "the images that containers may have, as patterns: team/*,tools:1.*")
    ] = ("*",)
    container_start: Annotated[
        Duration, _duration("how long a container may take to start before its attempt fails")
    ] = 10 * MINUTE
    alert: Annotated[
        str | None, Knob(_read_alert, "receives alerts of runs that failed for good; named: only if a run names it")
    ] = None
    notice: Annotated[str | None, _text("a file that, once it exists, makes this process drain and stop")] = None
    secrets: Annotated[str | None, _text("the folder of secrets, one file each, for runs that name them")] = None
    process_runs: Annotated[int, _count("how many runs a process for functions takes before it is replaced")] = 10_000
    process_memory: Annotated[
        int, _count("the peak of memory, in bytes, after which a process for functions is replaced")
    ] = 512 * 2**20

    blocked_after: Annotated[
        Duration, _duration("how long an async task may block the worker's event loop before its stack is logged")
    ] = SECOND
    deaf_after: Annotated[
        Duration,
        _duration("how long work in the worker itself may go on after its deadline before the worker replaces itself"),
    ] = 10 * SECOND
    log_level: Annotated[
        LogLevel, _choice(get_args(LogLevel), "the least level of what a process logs: debug, info, warning, error")
    ] = "warning"
    log_format: Annotated[LogFormat, _choice(get_args(LogFormat), "how a process logs: text, json")] = "text"
    otel: Annotated[
        str | None, Knob(_read_collector, "the collector of traces and metrics: http://host:4318; without one, nowhere")
    ] = None

    payload_limit: Annotated[int, _count("how many bytes of JSON arguments or a result may take")] = 1_048_576
    keep_runs: Annotated[Duration, _duration("how long finished runs are kept")] = 30 * DAY
    keep_firings: Annotated[Duration, _duration("how long the ledger of firings is kept")] = 400 * DAY
    keep_events: Annotated[Duration, _duration("how long events are kept")] = 7 * DAY

    def firing_rate_of(self, namespace: str) -> int:
        """How many runs the firings of a namespace may make in a minute."""
        return dict(self.firing_rates).get(namespace, self.firing_rate)


_NEARLY = 0.75
_FOREIGN = re.compile(
    PREFIX
    + "(?:TEST_.*|SERVICES(?:_.*)?|SIMULATE_.*|SECRET_.*|COMPLETE"
    + "|RUN_ID|ATTEMPT|INDEX|JOB|FIRE_AT|(?:SOFT_)?DEADLINE|RESULT)"
)
_LINK = re.compile(r"_SERVICE_(?:HOST|PORT)(?:_.*)?$|_PORT_[0-9]+_(?:TCP|UDP)(?:_.*)?$")
_SHORTER = (("lease_renew", "lease_ttl"), ("claim_renew", "claim_ttl"), ("claim_renew", "worker_dead_after"))
"""Intervals of renewal, and the lifetimes that they must be shorter than."""


def breaker_policy(settings: Settings) -> Policy:
    """When circuit breakers open."""
    return Policy(
        share=min(settings.breaker_percent, 100) / 100,
        least=settings.breaker_least,
        window_s=settings.breaker_window / SECOND,
        pause_s=settings.breaker_pause / SECOND,
        longest_pause_s=max(30.0, settings.breaker_pause / SECOND),
    )


@cache
def knobs() -> dict[str, Knob]:
    """Every setting by name, in the order of the table."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: get_args(hints[name])[1] for name in Settings.__struct_fields__}


def load_settings(
    code: Mapping[str, object], flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None
) -> Settings:
    """Settings from these sources. None and an empty variable count as not given; a missing file is no source.

    InvalidInput names the setting, where it was written, what is wrong with it and what would be right.
    """
    values = _read_all(_load_file(file), f" in {file}")
    values |= _read_all(code, "")
    unknown_variables(environ)
    for name, knob in knobs().items():
        variable = PREFIX + name.upper()
        if (written := environ.get(variable)) and not _is_foreign(variable, written):
            values[name] = knob.read(variable, written)
    values |= _read_all(flags, "")
    settings = msgspec.structs.replace(Settings(), **values)
    if settings.pools:
        settings = msgspec.structs.replace(settings, concurrency=sum(places for _, places in settings.pools))
    _check_renewals(settings)
    return settings


def describe_settings(settings: Settings | None = None) -> list[SettingRow]:
    """The table for people: each setting, its default or its value in `settings`, its environment variable, meaning."""
    shown = settings or Settings()
    return [
        SettingRow(name, _show(getattr(shown, name), knob), PREFIX + name.upper(), knob.meaning)
        for name, knob in knobs().items()
    ]


def _load_file(file: Path | None) -> dict[str, object]:
    if file is None or not file.exists():
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {error}"
        raise InvalidInput("settings", str(file), problem, "correct the file, or remove it") from None


def _read_all(written: Mapping[str, object], where: str) -> dict[str, object]:
    values = {}
    for name, value in written.items():
        knob = knobs().get(name)
        if knob is None:
            raise InvalidInput(f"{name}{where}", value, "belongs to no setting", _nearest(name))
        if value is not None:
            values[name] = knob.read(f"{name}{where}", value)
    return values


def _nearest(name: str) -> str:
    near = get_close_matches(name, knobs(), n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"the settings are {', '.join(knobs())}"


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables of the environment that look like settings but are not.

    InvalidInput for one that is nearly the name of a setting: a program that ignored `MAINSPRING_STROE` would work on
    another store than the configured one.
    """
    unknown = []
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX).lower()
        if name == variable.lower() or name in knobs() or _is_foreign(variable, value):
            continue
        if near := get_close_matches(name, knobs(), n=1, cutoff=_NEARLY):
            remedy = f"did you mean {PREFIX}{near[0].upper()}?"
            raise InvalidInput(variable, "***", "belongs to no setting", remedy)  # It may be a misspelt secret.
        unknown.append(variable)
    return sorted(unknown)


def _is_foreign(variable: str, value: str) -> bool:
    """Whether a variable has another purpose: for tests, for the commands of runs, for shells, or from Kubernetes,
    which describes a service called `mainspring` to every container."""
    return bool(_FOREIGN.fullmatch(variable) or _LINK.search(variable) or value.startswith(("tcp://", "udp://")))


def _check_renewals(settings: Settings) -> None:
    for renewal, lifetime in _SHORTER:
        interval, ttl = getattr(settings, renewal), getattr(settings, lifetime)
        if interval >= ttl:
            problem = f"is not shorter than {lifetime} ({format_duration(ttl)})"
            raise InvalidInput(renewal, format_duration(interval), problem, "choose at most a third of that")


def _show(value: object, knob: Knob) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and knob.read is _read_duration:
        return format_duration(value)
    return _show_parts(value, knob) if isinstance(value, tuple) else str(value)


def _show_parts(value: tuple[Any, ...], knob: Knob) -> str:
    if knob.read is _read_users:
        return "-".join(map(str, value))
    if knob.read is _read_pauses:
        return ",".join(map(format_duration, value))
    if knob.read is _read_deadlines:
        return ",".join(f"{priority}={format_duration(span)}" for priority, span in value)
    return ",".join(map(str, value))
