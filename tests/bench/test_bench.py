"""The benchmark measures both sides, reports ratios, and leaves nothing behind."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bench import bare_client
from bench.bare_path import BarePath
from bench.figures import Figures, summarize
from bench.measurements import Figure, Load, Measurement, measurements
from bench.process_cost import TICK_S
from bench.report import Runs, markdown, rows_of

#: One measurement that writes with the SDK and reads, one below the SDK.
ONLY = "poll_arrow|64 KiB"
ROOT = Path(__file__).resolve().parents[2]


def test_percentiles_are_of_the_latencies_in_order() -> None:
    figures = summarize(2.0, 100, 1_000_000, [number / 1000 for number in range(100, 0, -1)])
    assert (figures.p50_ms, figures.p99_ms) == (51, 100)
    assert (figures.operations_per_second, figures.megabytes_per_second) == (50, 0.5)


@pytest.mark.parametrize(
    ("lower_is_better", "target", "met"), [(False, 0.5, True), (False, 0.6, False), (True, 0.5, True)]
)
def test_the_ratio_is_the_median_of_neighbouring_runs(lower_is_better: bool, target: float, met: bool) -> None:
    rate = Figure("rate", "MB/s", lambda run: run.megabytes_per_second, target, lower_is_better)
    runs = Runs(Measurement("t", Load("raw-produce"), Load("bare-produce"), (rate,)))
    for ours, theirs in ((5, 10), (40, 100), (9, 10)):
        runs.cluster.append(Figures(1.0, 1, ours * 1_000_000))
        runs.bare.append(Figures(1.0, 1, theirs * 1_000_000))
    (row,) = rows_of(runs)
    assert (row.cluster, row.bare, row.ratio, row.lowest, row.highest) == (9, 10, 0.5, 0.4, 0.9)
    assert row.met is met


def test_what_a_batch_costs_servers_is_their_processor_time_and_no_less_than_can_be_counted() -> None:
    [_, programs, kernel] = next(one for one in measurements(1.0) if "64 KiB" in one.figures[0].name).figures
    run = Figures(1.0, 1_000, 1_000_000, program_s=2.0, kernel_s=0.0)
    assert programs.of(run) == 2_000
    assert kernel.of(run) == 1_000 * TICK_S


def test_every_measurement_sends_both_sides_the_same_amount() -> None:
    for measurement in measurements(1.0):
        ours, theirs = measurement.cluster.arguments, measurement.bare.arguments
        if measurement.cluster.job == "raw-produce":
            assert {**ours, "partitions": theirs["partitions"]} == theirs


def test_the_bare_path_acknowledges_and_reads_and_its_nodes_end(tmp_path: Path) -> None:
    with BarePath(tmp_path) as bare:
        pids = bare.pids
        produced = asyncio.run(bare_client.produce(bare.address, size=1000, count=50, window=8, partitions=4))
        read = asyncio.run(bare_client.read(bare.address, size=1000, count=50))
    assert (produced.operations, produced.payload_bytes, read.payload_bytes) == (50, 50_000, 50_000)
    assert produced.p99_ms is not None
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_nodes_of_the_bare_path_end_with_whoever_started_them(tmp_path: Path) -> None:
    program = (
        "from bench.bare_path import BarePath; from pathlib import Path; import os, sys\n"
        f"bare = BarePath(Path({str(tmp_path)!r})).__enter__(); print(*bare.pids, flush=True); os._exit(0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(int(pid)) for pid in ended.stdout.split()):
        assert time.monotonic() < deadline, "a node outlived its starter"
        time.sleep(0.02)


@pytest.mark.cluster
def test_a_small_run_reports_its_figures(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--repetitions",
        "1",
        "--scale",
        "0.01",
        "--only",
        ONLY,
        "--json",
        str(report),
    ]
    ended = subprocess.run(
        [*command, "--work-dir", str(tmp_path / "work")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(report.read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "consume records of 100 B, poll_arrow",
        "produce batches of 64 KiB",
        "produce batches of 64 KiB: the servers' programs",
        "produce batches of 64 KiB: the kernel for them",
    ]
    assert all(row["cluster"] > 0 and row["bare"] > 0 and row["ratio"] > 0 for row in rows)
    assert not list((tmp_path / "work").iterdir())


def test_a_name_that_matches_nothing_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--only", "nonsense"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("bench: error: --only 'nonsense' matches none of: ")
    assert "Traceback" not in ended.stderr


def test_the_documentations_table_shows_ratio_and_target() -> None:
    rate = Figure("rate", "MB/s", lambda run: run.megabytes_per_second, 0.8)
    runs = Runs(Measurement("t", Load("raw-produce"), Load("bare-produce"), (rate,)))
    runs.cluster.append(Figures(1.0, 1, 9_000_000))
    runs.bare.append(Figures(1.0, 1, 10_000_000))
    assert markdown(rows_of(runs)).splitlines()[2:] == [
        "| rate | 9.0 MB/s | 10.0 MB/s | **0.90** (0.90-0.90) | ≥ 0.8 |"
    ]
