"""The lag of a mirror, as Prometheus reads it."""

from __future__ import annotations

import socket
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.metrics.prometheus import serve
from quorumlog.sdk.mirror.mirror import Mirror
from quorumlog.sdk.mirror.source import SourceRecord, Taken
from quorumlog.sdk.types import TopicPartition

ORDERS, IDLE, UNKNOWN = (TopicPartition(name, 0) for name in ("orders", "idle", "unknown"))


class Source:
    """Has read 3 of 10 records of ``orders``, and of ``idle`` everything: its last place is not a record's."""

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, 10

    def known_end(self, partition: TopicPartition) -> int | None:
        return {ORDERS: 10, IDLE: 10}.get(partition)

    def assign(self, positions: object) -> None:
        pass

    def take(self, most: int, timeout_s: float) -> Taken:
        return Taken([SourceRecord(ORDERS, offset, 5, None, b"v", ()) for offset in range(3)], {IDLE: 10}, ())


@pytest.fixture
def copier(monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setattr("quorumlog.sdk.mirror.mirror.LAP_RECORDS", 1)
    anything: Any = Source()
    plans: Any = SimpleNamespace(write=lambda plans: None)
    made = Mirror(anything, plans, lambda lap, records, latest_ms: {ORDERS: [0, 1, 2]})
    made.resume([ORDERS, IDLE, UNKNOWN])
    assert made.lap() == 3
    return made


def test_lag_is_what_is_not_read(copier: Mirror) -> None:
    figures = copier.metrics()
    assert figures["mirror-metrics.orders-0"] == {"records-lag": 7.0}
    assert figures["mirror-metrics.idle-0"] == {"records-lag": 0.0}
    assert "mirror-metrics.unknown-0" not in figures
    assert figures["mirror-metrics"] == {
        "records-copied-total": 3.0,
        "records-lag-max": 7.0,
        "assigned-partitions": 3.0,
        "topics-set-aside": 0.0,
    }


def test_prometheus_reads_the_lag(copier: Mirror) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.listen()
        with pytest.raises(IllegalArgumentError, match="metrics cannot be served"):
            serve(f"127.0.0.1:{port}", {"kafka": copier})
    end = serve(f"127.0.0.1:{port}", {"registry": copier})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            text = page.read().decode()
    finally:
        end()
    assert 'quorumlog_mirror_partition_records_lag{client="registry",partition="0",topic="orders"} 7.0' in text
    assert 'quorumlog_mirror_records_copied_total{client="registry"} 3.0' in text


@pytest.mark.parametrize("address", ["", "9400", "127.0.0.1:x", "127.0.0.1:99999"])
def test_addresses_that_are_none_are_refused(copier: Mirror, address: str) -> None:
    with pytest.raises(IllegalArgumentError, match="must be host:port"):
        serve(address, {"kafka": copier})
