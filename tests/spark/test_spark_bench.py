"""The benchmark of Spark, in small: every side gives and takes the rows that it should, and all of it has figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.spark import Amounts, latency_lines, markdown, measure, rate_lines
from bench.spark_jobs import Count
from bench.spark_rates import DISCARD, MEMORY, OURS, STREAM, Rates

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_small_run_has_every_figure(spark: SparkSession, tmp_path: Path) -> None:
    once = Count(1, practice=0)
    amounts = Amounts(40_000, 10_000, rounds=once, partitions=(2,), batches=Count(2, practice=1), passages=once)
    figures = measure(spark, tmp_path, amounts, print)
    assert [set(one.runs) for one in figures.rates] == [{OURS, MEMORY, STREAM}] * 2 + [{OURS, DISCARD}] * 4
    assert all(rate > 0 for one in figures.rates for runs in one.runs.values() for rate in runs)
    assert len(rate_lines(figures.rates)) == 8
    assert all(one.median_ms >= one.parts["addBatch"] > 0 for one in figures.batches)
    assert figures.passage.median_ms > 0
    assert len(latency_lines(figures)) == 3
    assert "| batch write, beside discarded |" in markdown(figures)


def test_a_target_is_about_the_ratio_of_neighbouring_runs() -> None:
    one = Rates("batch read", 1, STREAM, 0.7, {STREAM: [1.0, 4.0, 2.0], OURS: [0.8, 1.0, 1.4]})
    assert (one.ratios(STREAM), one.median(OURS)) == ([0.8, 0.25, 0.7], 1.0)
    assert one.met
