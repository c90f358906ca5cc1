"""Cost: the published tables to the cent, savings that overlap, shares that add up, price files, the command."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_work import Terminal
from mainspring.errors import InvalidInput
from mainspring.ops.cost.bill import Measured, Price, Saving, Usage, bill_of, charge, price, save
from mainspring.ops.cost.prices import read_prices
from mainspring.ops.cost.reference import findings, reference_bill, reference_savings

FILE = """
[components.workers]
unit = "busy_hour"
price = 0.10

[components.database]
unit = "month"
price = 200

[savings.spot]
component = "workers"
share = 0.6
trade_off = "interruptions"
"""


def test_the_published_components_come_out_to_the_cent() -> None:
    bill = reference_bill()
    assert {item.component: item.amount for item in bill.items} == {
        "workers": Decimal("2400000.00"),
        "network": Decimal("50000.00"),
        "database": Decimal("12000.00"),
        "storage": Decimal("5082.00"),
        "schedulers": Decimal("4500.00"),
        "redis": Decimal("3600.00"),
    }
    assert bill.total == Decimal("2475182.00")


def test_sums_of_the_published_tables_that_do_not_hold_are_named() -> None:
    found = {each.what: each for each in findings()}
    total = found["monthly total of the table of components"]
    assert (total.stated, total.computed, total.holds) == (Decimal(2_970_000), Decimal("2475182.00"), False)
    assert "494,818.00" in total.note
    batching = found["batching: 20 % of what spot instances leave"]
    assert (batching.stated, batching.computed) == (Decimal(480_000), Decimal(192_000))
    holding = {each.what for each in found.values() if each.holds}
    assert holding == {
        "spot instances: 60 % of the workers",
        "sum of the savings",
        "savings of phase 1",
        "savings of phase 2",
        "optimised monthly cost",
        "target: 30 % less",
        "cost of one run",
        "cost of a million runs",
        "workers, as a share of the total",
        "database of the text, as a share of the total",
        "kafka of the text, as a share of the total",
        "network, as a share of the total",
        "the savings, as a share of the total",
        "optimised cost of one run",
        "how much less one run costs",
        "how much less the scheduling of one run costs",
    }
    assert all(each.note for each in found.values() if not each.holds)


def test_savings_of_one_component_overlap() -> None:
    savings = reference_savings()
    assert [(each.name, each.alone, each.in_turn) for each in savings.items[:2]] == [
        ("spot instances", Decimal("1440000.00"), Decimal("1440000.00")),
        ("batching of small jobs", Decimal("480000.00"), Decimal("192000.00")),
    ]
    assert savings.total == Decimal("1636800.00")
    assert savings.left == Decimal("2475182.00") - savings.total


amounts = st.decimals(0, 10**7, places=2)
measured = st.builds(
    Measured,
    st.lists(st.sampled_from("abc"), unique=True, max_size=3).map(tuple),
    st.floats(0, 10**5, allow_nan=False),
)


@given(st.lists(measured, min_size=1, max_size=30), amounts, amounts)
def test_the_shares_add_up_to_the_bill(runs: list[Measured], workers: Decimal, rest: Decimal) -> None:
    prices = [Price("workers", "busy_hour", Decimal(1)), Price("rest", "month", Decimal(1))]
    bill = bill_of([("workers", workers), ("rest", rest)], Decimal(len(runs)))
    shares = charge(bill, prices, runs, Decimal(1))
    assert sum(share.amount for share in shares) == bill.total
    assert abs(sum((share.runs for share in shares), Decimal(0)) - len(runs)) < Decimal("1e-20")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.decimals(0, 1, places=2)), max_size=6), amounts)
def test_savings_never_save_more_than_there_is(chosen: list[tuple[str, Decimal]], amount: Decimal) -> None:
    bill = bill_of([(name, amount) for name in "abc"], Decimal(1))
    savings = save(bill, [Saving(f"{index}", name, share) for index, (name, share) in enumerate(chosen)])
    assert Decimal(0) <= savings.left <= bill.total
    assert savings.total <= savings.sum_alone + Decimal("0.06")  # Each is rounded to cents.


def test_a_month_without_runs_has_no_cost_of_a_run() -> None:
    bill = price([Price("database", "month", Decimal(200))], Usage(Decimal(0)))
    assert (bill.total, bill.per_run, bill.per_million) == (Decimal("200.00"), None, None)


def test_a_price_file_is_read() -> None:
    prices, savings = read_prices(FILE, "prices.toml")
    assert prices == [Price("workers", "busy_hour", Decimal("0.10")), Price("database", "month", Decimal(200))]
    assert savings == [Saving("spot", "workers", Decimal("0.6"), "interruptions")]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("[components.workers]", "[components.workers", "is not TOML"),
        ('"busy_hour"', '"fortnight"', "choose one of million_runs"),
        ("0.10", "-1", "write a number that is not negative"),
        ("0.10", "nan", "write a number that is not negative"),
        ("0.10", "true", "write a number that is not negative"),
        ('component = "workers"', 'component = "worker"', "which has no price"),
        ("share = 0.6", "share = 60", "write a number from 0 to 1"),
        ("components", "parts", "names no component"),
    ],
)
def test_a_wrong_price_file_is_refused(before: str, after: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match="prices") as refused:
        read_prices(FILE.replace(before, after), "prices.toml")
    assert problem in str(refused.value)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_the_command_charges_what_ran_by_tag(cli: Terminal, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(FILE)
    for tag in ("billing", "billing", "films"):
        cli("run", "submit", "--tag", tag, "--command", "true")
    cli("up", "--for", "3s", "--port", "0")
    answer = json.loads(cli("cost", "--prices", "prices.toml", "--since", "1h", "--json").out)
    assert answer["measured_runs"] == 3
    assert {share["name"]: round(float(share["runs"])) for share in answer["shares"]} == {"billing": 1440, "films": 720}
    assert sum(Decimal(share["amount"]) for share in answer["shares"]) == Decimal(answer["bill"]["total"])
    assert Decimal(answer["bill"]["total"]) >= 200
    shown = cli("cost", "--prices", "prices.toml", "--since", "1h").out
    assert "database" in shown
    assert "billing" in shown


def test_rows_and_bytes_of_the_store_are_priced(cli: Terminal, tmp_path: Path) -> None:
    prices = '[components.disk]\nunit = "gigabyte_month"\nprice = 100000\n[components.rows]\nunit = "million_rows"\n'
    (tmp_path / "prices.toml").write_text(f"{prices}price = 1000000\n")
    for _ in range(3):
        cli("run", "submit", "--command", "true")
    answer = json.loads(cli("cost", "--prices", "prices.toml", "--json").out)
    size = cli("db", "status", "--json").json["size"]
    assert (answer["usage"]["rows"], answer["usage"]["bytes"]) == (3, size)
    amounts = {item["component"]: Decimal(item["amount"]) for item in answer["bill"]["items"]}
    assert amounts == {"rows": Decimal("3.00"), "disk": (Decimal(size) / 10_000).quantize(Decimal("0.01"))}
    refused = cli("cost", "--prices", "prices.toml", "--server", "http://127.0.0.1:9")
    assert refused.code == 2
    assert "--store" in refused.err


def test_the_worked_example_needs_no_database(cli: Terminal) -> None:
    answer = json.loads(cli("cost", "--reference", "--json").out)
    assert answer["bill"]["total"] == "2475182.00"
    assert "differs" in cli("cost", "--reference").out
