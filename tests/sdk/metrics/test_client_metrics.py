"""Metrics of clients beside nodes that the test plays; what Prometheus and OpenTelemetry show of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from scripted_cluster import ScriptedCluster
from scripted_members import ScriptedMembers
from scripted_reading import fill

from quorumlog.sdk import TopicPartition
from quorumlog.sdk.aio import AsyncConsumer, AsyncProducer
from quorumlog.sdk.metrics.figures import NAMES, ClientFigures, sentence
from quorumlog.sdk.metrics.opentelemetry import observe
from quorumlog.sdk.metrics.prometheus import register
from quorumlog.sdk.metrics.series import MOST_SERIES, series_of

PRODUCER = "producer-metrics"
FETCHES = "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """A node that leads both partitions of ``t``, with 20 records in the first."""
    made = ScriptedCluster(nodes=1, partitions=2)
    ScriptedMembers(made)
    await made.start()
    fill(made, 20)
    yield made
    await made.stop()


def as_documented(figures: ClientFigures) -> dict[str, set[str]]:
    """The names of figures by group, as the catalogue has them."""
    return {group.partition(".")[0] + ("." if "." in group else ""): set(each) for group, each in figures.items()}


async def test_a_producer_counts_what_it_has_delivered(cluster: ScriptedCluster) -> None:
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert producer.metrics()[PRODUCER]["record-send-total"] == 0
        for number in range(5):
            await (await producer.send("t", b"%d" % number, partition=1))
        figures = producer.metrics()
    assert as_documented(figures) == {group: set(NAMES[group]) for group in (PRODUCER, "producer-topic-metrics.")}
    whole = figures[PRODUCER]
    assert (whole["record-send-total"], whole["record-error-total"], whole["record-retry-total"]) == (5, 0, 0)
    assert (whole["request-total"], whole["requests-in-flight"]) == (5, 0)
    assert whole["buffer-available-bytes"] == whole["buffer-total-bytes"]
    assert 0 < whole["request-latency-avg"] <= whole["request-latency-max"]
    of_topic = figures["producer-topic-metrics.t"]
    assert of_topic["record-send-total"] == 5
    assert of_topic["byte-total"] == pytest.approx(5 * whole["batch-size-avg"])


async def test_a_consumer_counts_what_it_was_given_and_how_far_it_is_behind(cluster: ScriptedCluster) -> None:
    async with AsyncConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=8,
    ) as consumer:
        records: dict[TopicPartition, Any] = {}
        while not records:
            records = await consumer.poll(timeout_ms=5_000)
        await consumer.commit()
        figures = consumer.metrics()
    assert as_documented(figures) == {group: set(names) for group, names in NAMES.items() if "consumer" in group}
    fetches, coordinator = figures[FETCHES], figures[COORDINATOR]
    assert fetches["records-consumed-total"] == 8
    assert fetches["records-lag-max"] == figures[f"{FETCHES}.t-0"]["records-lag"] == 12
    assert fetches["fetch-total"] >= 1
    assert fetches["fetch-size-max"] > 0
    assert coordinator["assigned-partitions"] == 2
    assert (coordinator["commit-total"], coordinator["commit-error-total"]) == (1, 0)
    assert coordinator["heartbeat-total"] >= 1
    assert coordinator["rebalance-total"] >= 1
    assert 0 <= coordinator["last-heartbeat-seconds-ago"] < 60


async def test_prometheus_gets_counters_and_gauges_with_labels(cluster: ScriptedCluster) -> None:
    registry = CollectorRegistry()
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        shown = register(producer, registry=registry)
        await (await producer.send("t", b"value", partition=0))
        page = generate_latest(registry).decode()
        registry.unregister(shown)
    lines = page.splitlines()
    assert "# HELP quorumlog_producer_record_send_total Records that were acknowledged." in lines
    assert 'quorumlog_producer_record_send_total{client="1"} 1.0' in lines
    assert 'quorumlog_producer_topic_record_send_total{client="1",topic="t"} 1.0' in lines
    assert "# TYPE quorumlog_producer_buffer_available_bytes gauge" in lines
    assert not [line for line in lines if "_rate" in line], "Prometheus computes rates itself"


async def test_opentelemetry_observes_also_what_comes_later(cluster: ScriptedCluster) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        observe(provider.get_meter("test"), orders=producer)
        await (await producer.send("t", b"value", partition=0))
        data = reader.get_metrics_data()
        assert data is not None
        [scope] = data.resource_metrics[0].scope_metrics
    provider.shutdown()
    points = {metric.name: metric.data.data_points for metric in scope.metrics}
    [point] = points["quorumlog_producer_topic_record_send"]
    assert point.attributes == {"client": "orders", "topic": "t"}
    assert point.value == 1


def test_opentelemetry_looks_at_a_client_once_in_each_collection() -> None:
    class Counted:
        looks = 0

        def metrics(self) -> ClientFigures:
            self.looks += 1
            return {PRODUCER: {"record-send-total": float(self.looks), "requests-in-flight": 1.0}}

    counted, readers = Counted(), [InMemoryMetricReader(), InMemoryMetricReader()]
    provider = MeterProvider(readers)
    observe(provider.get_meter("test"), orders=counted)
    for collections, reader in enumerate([*readers, readers[1], readers[1]], start=1):
        data = reader.get_metrics_data()
        assert data is not None
        [scope] = data.resource_metrics[0].scope_metrics
        points = {metric.name: metric.data.data_points for metric in scope.metrics}
        assert [point.value for point in points["quorumlog_producer_record_send"]] == [collections]
        assert counted.looks == collections
    provider.shutdown()


def test_every_figure_has_a_sentence() -> None:
    for names in NAMES.values():
        for name in names:
            assert sentence(name).endswith(".")


def test_every_figure_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operate" / "metrics.md").read_text()
    described = page[page.index("## What clients count") : page.index("### In Prometheus")]
    rows = [line.split(" | ")[0] for line in described.splitlines() if line.startswith("| `")]
    assert set(re.findall("`([^`]+)`", " ".join(rows))) == {name for names in NAMES.values() for name in names}


def test_what_reads_thousands_of_partitions_does_not_flood_what_collects_it() -> None:
    class Wide:
        def metrics(self) -> ClientFigures:
            return {f"{FETCHES}.t-{number}": {"records-lag": 1.0} for number in range(MOST_SERIES + 10)}

    found = list(series_of([("wide", Wide())]))
    assert len(found) == MOST_SERIES
    assert found[0].labels == {"client": "wide", "topic": "t", "partition": "0"}
