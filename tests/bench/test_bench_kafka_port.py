"""``python -m bench kafka-port``: what is held against its budget, and how. Measuring takes minutes; no one waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench.figures import Figures
from bench.kafka_port.budget import Budget, Turns, apache_budgets, budgets
from bench.kafka_port.command import show
from bench.kafka_port.raw_client import batch_of
from quorumlog.wire.kafka.batch import parse_kafka_header, verify_kafka_batch
from quorumlog.wire.kafka.records import read_kafka_columns


def test_the_port_is_held_against_the_other_side_pair_by_pair() -> None:
    rate = Budget("what", "unit", 0.8, port=[80.0, 5.0, 90.0], beside=[100.0, 10.0, 100.0])
    assert rate.ratios == [0.8, 0.5, 0.9]
    assert rate.met is True
    assert Budget("what", "unit", 0.8, port=[79.0], beside=[100.0]).met is False
    assert Budget("what", "unit", 1.4, is_most=True, port=[1.4], beside=[1.0]).met is True
    assert Budget("what", "unit", 1.4, is_most=True, port=[1.5], beside=[1.0]).met is False
    idle = Budget("what", "unit", 2.0, is_most=True, is_difference=True, port=[3.5], beside=[3.0])
    assert (idle.ratios, idle.met) == ([0.5], True)
    assert Budget("what", "unit", port=[1.0], beside=[2.0]).met is None


@pytest.mark.parametrize("is_first", [True, False])
def test_the_sides_take_turns(is_first: bool) -> None:
    order: list[str] = []
    budget = Budget("what", "unit")

    def side(name: str, seconds: float) -> Figures:
        order.append(name)
        return Figures(seconds, 4_000, 0)

    Turns(budget, is_first).take(lambda: side("port", 2.0), lambda: side("beside", 1.0))
    assert order == (["port", "beside"] if is_first else ["beside", "port"])
    assert (budget.port, budget.beside) == ([2.0], [4.0])


def test_a_ready_made_batch_is_one_that_a_client_could_have_written() -> None:
    batch = batch_of(140, 100)
    header = verify_kafka_batch(batch)
    columns = read_kafka_columns(batch, parse_kafka_header(batch))
    assert (header.record_count, columns.num_rows) == (140, 140)
    assert {len(value.as_py()) for value in columns.column("value")} == {100}


def test_all_budgets_are_shown() -> None:
    measured = budgets() | apache_budgets()
    for budget in measured.values():
        budget.port[:], budget.beside[:] = [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]
    console = Console(width=140, record=True)
    show(console, measured, 3)
    reported = console.export_text()
    assert reported.count("0.50-1.50") == len(measured) - 1
    assert reported.count("-1.00-1.00") == 1
    assert "≤ 1.4" in reported and "≥ 0.8" in reported


def test_it_is_found_by_its_name() -> None:
    root = Path(__file__).resolve().parents[2]
    reported = subprocess.run(
        [sys.executable, "-m", "bench", "kafka-port", "--help"], cwd=root, capture_output=True, text=True, check=False
    )
    assert reported.returncode == 0, reported.stderr
    assert "--repetitions" in reported.stdout
