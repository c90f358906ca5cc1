"""Settings: where they come from, which source wins, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mainspring.core.instants import DAY, MILLISECOND, MINUTE, SECOND
from mainspring.errors import InvalidInput
from mainspring.settings import SettingRow, Settings, describe_settings, load_settings, unknown_variables


def toml(folder: Path, text: str) -> Path:
    file = folder / "mainspring.toml"
    file.write_text(text)
    return file


def from_code(**code: object) -> Settings:
    return load_settings(code, {}, {}, None)


def from_environment(**environ: str) -> Settings:
    return load_settings({}, {}, environ, None)


def test_without_any_source_the_defaults_hold() -> None:
    settings = load_settings({}, {}, {}, None)
    assert settings == Settings()
    assert (settings.store, settings.namespace, settings.broker) == ("sqlite:///mainspring.db", "default", None)
    assert (settings.lease_ttl, settings.lease_renew) == (1_500 * MILLISECOND, 400 * MILLISECOND)
    assert (settings.claim_ttl, settings.claim_renew, settings.worker_dead_after) == (
        10 * SECOND,
        3 * SECOND,
        10 * SECOND,
    )
    assert (settings.horizon, settings.flush, settings.flush_limit) == (MINUTE, 5 * MILLISECOND, 500)
    assert (settings.drain_grace, settings.payload_limit) == (30 * SECOND, 1 << 20)
    assert (settings.keep_runs, settings.keep_firings, settings.keep_events) == (30 * DAY, 400 * DAY, 7 * DAY)
    assert (settings.durable, settings.ordering, settings.coordination) == (True, "strict", "leader")
    assert (settings.concurrency, settings.queues, settings.regions) == (10, (), ("default",))


def test_a_flag_beats_the_environment_which_beats_code_which_beats_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "concurrency = 1\nflush_limit = 1\npayload_limit = 1\nnamespace = 'file'\n")
    code = {"concurrency": 2, "flush_limit": 2, "payload_limit": 2}
    environ = {"MAINSPRING_CONCURRENCY": "3", "MAINSPRING_FLUSH_LIMIT": "3"}
    settings = load_settings(code, {"concurrency": 4}, environ, file)
    assert (settings.concurrency, settings.flush_limit, settings.payload_limit) == (4, 3, 2)
    assert settings.namespace == "file"


def test_what_is_not_given_does_not_hide_a_weaker_source(tmp_path: Path) -> None:
    file = toml(tmp_path, 'store = "sqlite:///file.db"')
    settings = load_settings({"store": None}, {"store": None}, {"MAINSPRING_STORE": ""}, file)
    assert settings.store == "sqlite:///file.db"


def test_a_file_that_does_not_exist_is_no_source(tmp_path: Path) -> None:
    assert load_settings({}, {}, {}, tmp_path / "mainspring.toml") == Settings()


@pytest.mark.parametrize("written", ["10s", 10, 10.0, timedelta(seconds=10)])
def test_durations_are_text_timedeltas_or_seconds(written: object) -> None:
    assert from_code(drain_grace=written).drain_grace == 10 * SECOND


def test_the_environment_has_texts_for_every_kind() -> None:
    settings = from_environment(
        MAINSPRING_DRAIN_GRACE="1m30s",
        MAINSPRING_CLAIM_TTL="20",
        MAINSPRING_CONCURRENCY="64",
        MAINSPRING_DURABLE="no",
        MAINSPRING_QUEUES="mail, films",
        MAINSPRING_ORDERING="ageing",
        MAINSPRING_BROKER="redis://localhost",
    )
    assert (settings.drain_grace, settings.claim_ttl) == (90 * SECOND, 20 * SECOND)
    assert (settings.concurrency, settings.durable, settings.queues) == (64, False, ("mail", "films"))
    assert (settings.ordering, settings.broker) == ("ageing", "redis://localhost")


def test_the_file_has_its_own_types_for_every_kind(tmp_path: Path) -> None:
    file = toml(tmp_path, 'durable = false\nqueues = ["mail"]\nconcurrency = 64\ndrain_grace = "1m"\nhorizon = 30\n')
    settings = load_settings({}, {}, {}, file)
    assert (settings.durable, settings.queues, settings.concurrency) == (False, ("mail",), 64)
    assert (settings.drain_grace, settings.horizon) == (MINUTE, 30 * SECOND)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MAINSPRING_SERVICE_HOST", "10.0.0.1"),
        ("MAINSPRING_SERVER_SERVICE_PORT_HTTP", "8321"),
        ("MAINSPRING_PORT", "tcp://10.0.0.1:8321"),
        ("MAINSPRING_SERVER_PORT", "tcp://10.0.0.1:8321"),
        ("MAINSPRING_PORT_8321_TCP_PORT", "8321"),
        ("MAINSPRING_TEST_POSTGRES", "postgresql://localhost"),
        ("MAINSPRING_SECRET_STORE", "x"),
        ("MAINSPRING_RUN_ID", "x"),
        ("MAINSPRING_SERVICES", "/tmp"),
    ],
)
def test_variables_of_kubernetes_of_tests_and_of_runs_are_no_settings(variable: str, value: str) -> None:
    # Kubernetes sets such ones for a service that is called mainspring.
    assert from_environment(**{variable: value}) == Settings()
    assert unknown_variables({variable: value}) == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("MAINSPRING_STROE", "MAINSPRING_STORE"),
        ("MAINSPRING_CONCURENCY", "MAINSPRING_CONCURRENCY"),
        ("MAINSPRING_SECRT", "MAINSPRING_SECRET"),
        ("MAINSPRING_QUEUE", "MAINSPRING_QUEUES"),
    ],
)
def test_a_misspelt_variable_is_refused_and_its_value_is_not_shown(variable: str, meant: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_environment(**{variable: "hush"})
    assert str(caught.value) == f"{variable}: '***' belongs to no setting; did you mean {meant}?"


def test_a_variable_that_resembles_no_setting_is_reported() -> None:
    assert unknown_variables({"MAINSPRING_FAVOURITE_COLOUR": "red", "MAINSPRING_STORE": "x", "HOME": "/"}) == [
        "MAINSPRING_FAVOURITE_COLOUR"
    ]
    assert from_environment(MAINSPRING_FAVOURITE_COLOUR="red") == Settings()


@pytest.mark.parametrize(
    ("typo", "meant"), [("concurency", "concurrency"), ("claimttl", "claim_ttl"), ("que", "queues")]
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(typo: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean {meant}"):
        from_code(**{typo: 1})
    with pytest.raises(InvalidInput, match=rf"{typo} in .*mainspring\.toml.*did you mean {meant}"):
        load_settings({}, {}, {}, toml(tmp_path, f"{typo} = 1"))


def test_an_unknown_setting_that_resembles_none_is_refused_with_all_of_them() -> None:
    with pytest.raises(InvalidInput, match="the settings are store, broker"):
        from_code(xyzzy=1)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("drain_grace", "soon", "write it like"),
        ("drain_grace", True, "write it like"),
        ("drain_grace", 0, "above zero"),
        ("concurrency", 0, "whole number from 1 up"),
        ("concurrency", "many", "whole number from 1 up"),
        ("concurrency", True, "whole number from 1 up"),
        ("concurrency", 1.5, "whole number from 1 up"),
        ("durable", "perhaps", "true or false"),
        ("durable", 1, "true or false"),
        ("queues", [], "write it like"),
        ("queues", "mail,,films", "write it like"),
        ("queues", ["mail", 7], "write it like"),
        ("ordering", "random", "strict, ageing"),
        ("pools", 7, "write it like"),
        ("pools", [], "write it like"),
        ("pools", [1, 2], "write it like"),
        ("deadlines", 7, "write it like"),
        ("deadlines", "1", "write it like"),
        ("service_levels", [1, 2], "write it like"),
        ("coordination", "chaos", "leader, cluster"),
        ("store", 5, "text"),
        ("namespace", "  ", "text"),
    ],
)
def test_a_wrong_value_is_refused_by_name_with_a_remedy(name: str, value: object, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=remedy) as refusal:
        from_code(**{name: value})
    assert (refusal.value.field, refusal.value.value) == (name, value)


@pytest.mark.parametrize("written", ["1=100, 2=50,3=20", ["3=20", "1=100", "2=50"], {"1": 100, "2": 50, "3": 20}])
def test_pools_make_up_the_places_of_a_worker(written: object) -> None:
    settings = load_settings({"concurrency": 7}, {"pools": written}, {}, None)
    assert (settings.pools, settings.concurrency) == (((1, 100), (2, 50), (3, 20)), 170)


@pytest.mark.parametrize("written", ["1=1m, 2=5m,3=30m", ["3=30m", "1=60", "2=5m"], {"1": "1m", "2": "5m", "3": "30m"}])
def test_deadlines_are_by_priority(written: object) -> None:
    settings = load_settings({}, {"deadlines": written}, {}, None)
    assert settings.deadlines == ((1, MINUTE), (2, 5 * MINUTE), (3, 30 * MINUTE)) == Settings().service_levels


@pytest.mark.parametrize(
    ("written", "why"),
    [("11=1m", "is not a priority"), ("1=1m,1=2m", "again"), ("1=soon", "duration"), ("1=0", "no time")],
)
def test_a_deadline_that_is_none_is_refused_with_what_was_written(written: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"MAINSPRING_DEADLINES: .*{why}"):
        from_environment(MAINSPRING_DEADLINES=written)


def test_a_pool_that_is_none_is_refused_with_what_was_written() -> None:
    with pytest.raises(InvalidInput, match=r"MAINSPRING_POOLS: '2=none' does not say how many places"):
        from_environment(MAINSPRING_POOLS="1=5,2=none")


def test_a_wrong_value_in_the_environment_names_its_variable() -> None:
    with pytest.raises(InvalidInput, match="MAINSPRING_FLUSH_LIMIT: 'lots'"):
        from_environment(MAINSPRING_FLUSH_LIMIT="lots")


def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        load_settings({}, {}, {}, toml(tmp_path, "concurrency = 1\nqueues = mail\n"))


@pytest.mark.parametrize(
    ("renewal", "lifetime"),
    [("lease_renew", "lease_ttl"), ("claim_renew", "claim_ttl"), ("claim_renew", "worker_dead_after")],
)
def test_what_must_be_renewed_lives_longer_than_the_renewal_takes_to_come(renewal: str, lifetime: str) -> None:
    with pytest.raises(InvalidInput, match=f"{renewal}: .* is not shorter than {lifetime}"):
        from_code(**{"claim_ttl": "1h", "worker_dead_after": "1h", renewal: "20s", lifetime: "20s"})


def test_every_setting_is_described_by_name_default_variable_and_meaning() -> None:
    rows = {row.name: row for row in describe_settings()}
    assert list(rows) == list(Settings.__struct_fields__)
    assert all(row.meaning and row.variable == f"MAINSPRING_{row.name.upper()}" for row in rows.values())
    assert (rows["lease_ttl"].default, rows["durable"].default, rows["broker"].default) == ("1s500ms", "true", "")


@pytest.mark.parametrize("row", [row for row in describe_settings() if row.default], ids=lambda row: row.name)
def test_a_described_default_can_be_written_back(row: SettingRow) -> None:
    written = from_environment(**{row.variable: row.default})
    assert getattr(written, row.name) == getattr(Settings(), row.name)
