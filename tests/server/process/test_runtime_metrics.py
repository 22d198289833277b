"""What a node counts is served to Prometheus, and what it logs is one line each."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
from collections.abc import Iterator

import pytest

from quorumlog.server.local import LocalCluster
from quorumlog.server.local.ports import ReservedPorts
from quorumlog.server.log_output import open_log, take_over_library_logs
from quorumlog.server.metrics import Histogram


@pytest.mark.cluster
def test_a_scrape_shows_counters_gauges_and_the_fsync_histogram() -> None:
    reserved = ReservedPorts(1)
    address = f"127.0.0.1:{reserved.ports[0]}"
    with (
        LocalCluster(nodes=1, settings={"metrics_listen": address, "log_format": "json"}) as cluster,
        urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page,
    ):
        rows = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if not line.startswith("#"))
        lines = [json.loads(line) for line in cluster.log_path(1).read_text().splitlines()]
    reserved.close()
    assert float(rows["quorumlog_rounds_total"]) > 1
    assert float(rows["quorumlog_raft_groups_led"]) == 1
    assert float(rows["quorumlog_transactions_total"]) >= 1
    groups = (
        "consumer_group_heartbeats_total", "offset_commits_total", "consumer_groups", "consumer_group_members",
        "parked_heartbeats",
    )  # fmt: skip
    assert {float(rows[f"quorumlog_{name}"]) for name in groups} == {0}
    assert rows["quorumlog_fsync_seconds_count"] == rows['quorumlog_fsync_seconds_bucket{le="+Inf"}']
    assert {"node_started", "controller_active"} <= {line["event"] for line in lines}
    assert {line["node"] for line in lines} == {1}


def test_a_histogram_counts_up_to_and_including_its_bounds() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.total == 12.0


@pytest.fixture
def root_logging() -> Iterator[None]:
    before = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers, logging.root.level = list(before[0]), before[1]


def test_what_libraries_log_is_one_line_with_the_exception_in_it(root_logging: None) -> None:
    written = io.StringIO()
    take_over_library_logs(open_log("info", "console", 7, written))
    try:
        raise RuntimeError("broken\nglass")
    except RuntimeError:
        logging.getLogger("grpc.aio").exception("Unexpected\nfailure")
    (line,) = written.getvalue().splitlines()
    assert "level=error event=library_message node=7 source=grpc.aio" in line
    assert "RuntimeError" in line


def test_a_client_that_gives_up_while_it_is_answered_is_no_error(root_logging: None) -> None:
    class ExecuteBatchError(Exception):
        """As gRPC's own, which only its core can make."""

    written = io.StringIO()
    take_over_library_logs(open_log("info", "console", 7, written))
    try:
        raise ExecuteBatchError("Failed")
    except ExecuteBatchError:
        logging.getLogger("grpc._cython.cygrpc").exception("raised in core by servicer method")
    assert not written.getvalue()
