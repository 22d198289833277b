"""Metrics of a node, served to Prometheus, and its log, one line per event."""

from __future__ import annotations

import io
import json
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer
from quorumlog.server.observability.logging_setup import open_log, take_over_library_logs
from quorumlog.server.observability.metric_catalogue import CATALOGUE
from quorumlog.server.observability.metrics import Histogram
from tests.support.readme_tour import ROOT


class Page:
    """The metrics of the nodes of a cluster, each scraped once."""

    def __init__(self, addresses: list[str]) -> None:
        self.families = [family for address in addresses for family in scrape(address)]

    def values(self, name: str, **labels: str) -> list[float]:
        """Returns the values of every sample of that name that has these labels."""
        return [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


def settled(addresses: list[str]) -> Page:
    """Returns the metrics once one controller is active, and each partition has one leader and all replicas in sync.

    While a leadership moves, two nodes report it, or none.
    """
    deadline = time.monotonic() + 60
    while True:
        page = Page(addresses)
        found = (
            page.values("quorumlog_active_controller").count(1),
            page.values("quorumlog_brokers", state="active"),
            page.values("quorumlog_partition_in_sync_replicas", topic="orders"),
            page.values("quorumlog_consumer_group_committed_offset", group="billing", topic="orders"),
        )
        if found == (1, [3], [3, 3], [5, 5]):
            return page
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def scrape(address: str) -> list[Metric]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        return list(text_string_to_metric_families(page.read().decode()))


def status_of(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[LocalCluster, list[str]]]:
    """Yields three nodes with a topic that a consumer group has read, and the addresses of their metrics."""
    reserved = ReservedPorts(3)
    addresses = [f"127.0.0.1:{port}" for port in reserved.ports]
    per_node = {node: {"metrics_listen": address} for node, address in enumerate(addresses, start=1)}
    with LocalCluster(nodes=3, settings={"log_format": "json"}, node_settings=per_node) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("orders", 2, 3, {"retention.ms": 3_600_000})])
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(10):
                producer.send("orders", b"value", partition=number % 2).result(timeout=60)
        with Consumer(
            "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            seen = 0
            while seen < 10:
                seen += sum(map(len, consumer.poll(timeout_ms=1_000).values()))
            consumer.commit()
        yield cluster, addresses
    reserved.close()


@pytest.mark.cluster
def test_a_scrape_shows_what_the_nodes_do(served: tuple[LocalCluster, list[str]]) -> None:
    page = settled(served[1])
    assert min(page.values("quorumlog_rounds_total")) > 1
    assert min(page.values("quorumlog_transactions_total")) >= 1
    assert sum(page.values("quorumlog_active_controller")) == 1
    assert page.values("quorumlog_fsync_seconds_count") == page.values("quorumlog_fsync_seconds_bucket", le="+Inf")
    assert page.values("quorumlog_brokers", state="active") == [3]
    assert page.values("quorumlog_offline_partitions") == [0]
    assert page.values("quorumlog_build_info", compiled="false") == [1, 1, 1]
    assert max(page.values("quorumlog_metadata_age_seconds")) < 60
    assert len(page.values("process_resident_memory_bytes")) == 3


@pytest.mark.cluster
def test_a_scrape_shows_every_partition_once_where_it_is_led(served: tuple[LocalCluster, list[str]]) -> None:
    page = settled(served[1])
    for name in ("high_watermark", "log_end_offset"):
        both = [page.values(f"quorumlog_partition_{name}", topic="orders", partition=number) for number in ("0", "1")]
        assert both == [[5], [5]]
    assert page.values("quorumlog_partition_in_sync_replicas", topic="orders") == [3, 3]
    assert min(page.values("quorumlog_partition_size_bytes", topic="orders")) > 0
    assert sum(page.values("quorumlog_topic_appended_records_total", topic="orders")) == 10
    assert sum(page.values("quorumlog_topic_read_bytes_total", topic="orders")) > 10 * len(b"value")
    committed = page.values("quorumlog_consumer_group_committed_offset", group="billing", topic="orders")
    assert committed == [5, 5]
    assert sum(page.values("quorumlog_leader_elections_total")) >= 2


@pytest.mark.cluster
def test_the_stages_of_a_produce_request_add_up_to_its_time(served: tuple[LocalCluster, list[str]]) -> None:
    page = Page(served[1])
    stages = ("queue", "append", "fsync", "replication", "answer")
    counts = [sum(page.values("quorumlog_produce_stage_seconds_count", stage=stage)) for stage in stages]
    assert counts == 5 * [sum(page.values("quorumlog_request_seconds_count", request="Produce"))]
    parts = sum(page.values("quorumlog_produce_stage_seconds_sum"))
    assert parts == pytest.approx(sum(page.values("quorumlog_request_seconds_sum", request="Produce")))
    assert all(sum(page.values("quorumlog_produce_stage_seconds_sum", stage=stage)) > 0 for stage in stages)
    assert {"Fetch", "GroupHeartbeat", "Metadata", "CommitOffsets"} <= {
        sample.labels["request"] for family in page.families for sample in family.samples if "request" in sample.labels
    }


@pytest.mark.cluster
def test_every_metric_is_in_the_catalogue_with_a_sentence_for_help(served: tuple[LocalCluster, list[str]]) -> None:
    families = {family.name: family for address in served[1] for family in scrape(address)}
    ours = {name.removeprefix("quorumlog_") for name in families if name.startswith("quorumlog_")}
    assert ours == set(CATALOGUE)
    for name, family in CATALOGUE.items():
        assert families[f"quorumlog_{name}"].documentation == family.help
        assert family.help[0].isupper() or family.help.startswith("1 if ")
        assert family.help.endswith(".")


@pytest.mark.cluster
def test_alerts_and_the_dashboard_ask_for_series_that_nodes_have(served: tuple[LocalCluster, list[str]]) -> None:
    families = [family for address in served[1] for family in scrape(address)]
    had = {sample.name for family in families for sample in family.samples}
    # No client was throttled or refused yet: such a series starts with the first event.
    had |= {f"{family.name}_total" for family in families if family.type == "counter"}
    for page in ("packaging/prometheus/alerts.yml", "packaging/grafana/quorumlog.json"):
        requests = set(re.findall(r"\bquorumlog_\w+", (ROOT / page).read_text()))
        assert len(requests) > 10
        assert requests - had == set(), page


@pytest.mark.cluster
def test_the_log_tells_of_topics_brokers_and_leaders_once(served: tuple[LocalCluster, list[str]]) -> None:
    cluster, _ = served
    said_by = [cluster.log_path(node).read_text().rpartition("\n")[0] for node in (1, 2, 3)]
    lines = [json.loads(line) for text in said_by for line in text.splitlines()]
    said = [line for line in lines if line.get("topic") == "orders"]
    assert [line["event"] for line in said] == ["topic_created", "topic_config_changed"]
    assert sorted(line["broker"] for line in lines if line["event"] == "broker_registered") == [1, 2, 3]
    elected = [line["partition"] for line in lines if line["event"] == "leader_elected"]
    assert {"orders-0", "orders-1"} <= set(elected)
    assert {"node_started", "controller_active", "metadata_leader"} <= {line["event"] for line in lines}


@pytest.mark.cluster
def test_a_node_says_whether_it_lives_and_whether_it_serves() -> None:
    reserved = ReservedPorts(1)
    at = f"http://127.0.0.1:{reserved.ports[0]}"
    with LocalCluster(nodes=3, node_settings={1: {"metrics_listen": at[7:]}}) as cluster:
        assert status_of(f"{at}/livez") == (200, "ok\n")
        until(lambda: status_of(f"{at}/readyz") == (200, "ok\n"))
        assert status_of(f"{at}/healthz") == (404, "not found: request /metrics, /livez or /readyz\n")
        cluster.kill(2)
        cluster.kill(3)
        until(lambda: " warning metadata_leader_lost " in cluster.log_path(1).read_text())
        cluster.kill(1)
        # Alone it finds no majority.
        cluster.start(1)
        until(lambda: answer_of(f"{at}/readyz") is not None)
        status, reason = status_of(f"{at}/readyz")
        assert (status, reason.strip() in ("", "ok")) == (503, False)
        assert status_of(f"{at}/livez") == (200, "ok\n")
    reserved.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answer_of(url: str) -> tuple[int, str] | None:
    """Returns the status and text of a page; None while no server listens."""
    try:
        return status_of(url)
    except urllib.error.URLError:
        return None


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
    assert " error library_message node=7 source=grpc.aio" in line
    assert "RuntimeError" in line


def test_a_client_that_gives_up_while_it_is_answered_is_no_error(root_logging: None) -> None:
    class ExecuteBatchError(Exception):
        """Stands for gRPC's own exception, which only its core can create."""

    written = io.StringIO()
    take_over_library_logs(open_log("info", "console", 7, written))
    try:
        raise ExecuteBatchError("Failed")
    except ExecuteBatchError:
        logging.getLogger("grpc._cython.cygrpc").exception("raised in core by servicer method")
    assert not written.getvalue()
