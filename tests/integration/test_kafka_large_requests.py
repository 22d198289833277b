"""Requests of up to 100 MiB on the port for Kafka clients, as brokers accept them and franz-go and sarama send them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from tests.support.command_line import until
from tests.support.kafka_batches import kafka_batch, produce_at_once

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PARTITIONS = 104
#: Just under the default of max.message.bytes, 1 MiB.
BATCH = kafka_batch([(None, b"x" * 1_000_000, 1_700_000_000_000, [])])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yields the port for Kafka's clients of one node, with a topic of many partitions."""
    with LocalCluster(1, kafka=True) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("large", PARTITIONS, 1, {"retention.ms": -1})])
        until(lambda: all(cluster.leader("large", number) for number in range(PARTITIONS)), "all partitions are led")
        yield cluster.kafka_bootstrap_servers


def _produced(address: str) -> set[int]:
    """Sends a request until the node has the memory to validate it; returns its error codes."""
    deadline = time.monotonic() + 120
    while True:
        codes = {each.error_code for each in produce_at_once(address, "large", dict.fromkeys(range(99), BATCH))}
        if codes != {KafkaError.NOT_ENOUGH_REPLICAS}:
            return codes
        assert time.monotonic() < deadline, "refused for two minutes"
        time.sleep(0.1)


def test_large_requests_are_served(address: str) -> None:
    """Three clients send 99 MB each at once, and retry while too many batches wait: every batch is appended."""
    with ThreadPoolExecutor(3) as clients:
        calls = [clients.submit(_produced, address) for _ in range(3)]
        assert [call.result() for call in calls] == [{KafkaError.NONE}] * 3


def test_larger_requests_close_the_connection(address: str) -> None:
    """A request above 100 MiB is not read."""
    with pytest.raises((ConnectionError, struct.error)):
        produce_at_once(address, "large", dict.fromkeys(range(PARTITIONS), BATCH + b"\0" * 16_000))
