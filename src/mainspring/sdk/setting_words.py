"""The settings as keywords of `Mainspring(...)`, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from mainspring.core.runs.priority import Ordering
from mainspring.core.runs.retry import Length
from mainspring.settings import Algorithm, CommandLevel, Coordination, LogFormat, LogLevel, SameTasks


class SettingWords(TypedDict, total=False):
    """Every setting but `store`, `namespace` and `broker`, which `Mainspring` names itself.

    None is the same as leaving the word out. The documentation says what each means; `mainspring.settings` reads them.
    """

    cache: str | None
    lease: str | None
    sink: str | None
    server: str | None
    token: str | None
    durable: bool | None
    listen: str | None
    pool_size: int | None
    pool_min_idle: int | None
    pool_wait: Length | None
    pool_exhausted: Length | None
    pool_idle: Length | None
    pool_lifetime: Length | None
    pool_leak: Length | None
    pool_validation: Length | None
    store_timeout: Length | None
    schedule_timeout: Length | None
    schedule_retries: str | Sequence[Length] | None
    heartbeat_timeout: Length | None
    heartbeat_retries: str | Sequence[Length] | None
    coordination: Coordination | None
    shards: int | None
    lease_ttl: Length | None
    lease_renew: Length | None
    check_in: Length | None
    horizon: Length | None
    firing_rate: int | None
    firing_rates: str | Mapping[str, int] | None
    fleet: str | None
    ordering: Ordering | None
    concurrency: int | None
    pools: str | Sequence[str] | Mapping[int, int] | None
    deadlines: str | Sequence[str] | Mapping[int, str] | None
    service_levels: str | Sequence[str] | Mapping[int, str] | None
    queues: str | Sequence[str] | None
    regions: str | Sequence[str] | None
    claim_ttl: Length | None
    claim_renew: Length | None
    worker_dead_after: Length | None
    unfit_wait: Length | None
    same_tasks: SameTasks | None
    flush: Length | None
    flush_limit: int | None
    drain_grace: Length | None
    host: str | None
    port: int | None
    secret: str | None
    token_keys: str | None
    token_algorithm: Algorithm | None
    token_issuer: str | None
    token_audience: str | None
    body_limit: int | None
    body_timeout: Length | None
    requests: int | None
    watchers: int | None
    base_path: str | None
    public_url: str | None
    submit_rate: int | None
    submit_rates: str | Mapping[str, int] | None
    job_rate: int | None
    query_rate: int | None
    ui: bool | None
    health_port: int | None
    health_host: str | None
    most_pool_wait: Length | None
    most_waiting: int | None
    most_late: Length | None
    breaker_percent: int | None
    breaker_least: int | None
    breaker_window: Length | None
    breaker_pause: Length | None
    stall_after: Length | None
    isolation: CommandLevel | None
    run_as: str | None
    run_users: str | tuple[int, int] | None
    cgroup: str | None
    allow_shell: bool | None
    output_limit: int | None
    http_networks: str | Sequence[str] | None
    http_timeout: Length | None
    http_limit: int | None
    containers: str | None
    container_namespaces: str | Sequence[str] | None
    container_images: str | Sequence[str] | None
    container_start: Length | None
    alert: str | None
    notice: str | None
    secrets: str | None
    process_runs: int | None
    process_memory: int | None
    blocked_after: Length | None
    deaf_after: Length | None
    log_level: LogLevel | None
    log_format: LogFormat | None
    otel: str | None
    payload_limit: int | None
    keep_runs: Length | None
    keep_firings: Length | None
    keep_events: Length | None
