"""What a node counts, and the Prometheus page that shows it.

Counting costs an addition; the exporter and its library are loaded only when a metrics address is configured.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from quorumlog.server.listening import ListenError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: Upper bounds of the fsync histogram's buckets, in seconds.
FSYNC_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
#: How long a scrape waits for the node's own thread.
SCRAPE_TIMEOUT_S = 2.0


@dataclass(slots=True)
class Histogram:
    """Counts of observations per bucket; the last bucket has no bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Counts one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), as Prometheus wants them."""
        rows: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            rows.append((bound, float(seen)))
        return rows


@dataclass(slots=True)
class Meters:
    """Counters since start. Bytes are of what travels, envelopes included."""

    rounds: int = 0
    events: int = 0
    frames_sent: int = 0
    frame_bytes_sent: int = 0
    frames_received: int = 0
    transactions: int = 0
    produce_requests: int = 0
    produce_bytes: int = 0
    fetch_requests: int = 0
    fetch_bytes: int = 0
    consumer_group_heartbeats: int = 0
    offset_commits: int = 0
    admin_requests: int = 0
    requests_refused: int = 0
    fsync_seconds: Histogram = field(default_factory=lambda: Histogram(FSYNC_BUCKETS_S))

    def counters(self) -> dict[str, int]:
        """Every plain counter by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "fsync_seconds"}


class Exporter:
    """Serves /metrics over HTTP.

    Arguments:
        address: host:port.
        gauges: ``Node.gauges``; called on the loop's thread, for the node belongs to it.

    Raises:
        ListenError: the address cannot be listened on.
    """

    def __init__(self, address: str, meters: Meters, gauges: Callable[[], dict[str, float]]) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self._meters = meters
        self._gauges = gauges
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(self)
        host, _, port = address.rpartition(":")
        try:
            self._server, self._thread = start_http_server(int(port), addr=host.strip("[]"), registry=registry)
        except OSError as error:
            raise ListenError(f"metrics_listen = {address}: cannot listen there: {error.strerror}") from None

    def describe(self) -> Iterator[Metric]:
        """Nothing: names depend on the node, and asking it takes a running loop."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One scrape, called on the HTTP server's thread."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        answer: Future[dict[str, float]] = Future()
        self._loop.call_soon_threadsafe(lambda: answer.set_result(self._gauges()))
        for name, gauge in answer.result(SCRAPE_TIMEOUT_S).items():
            yield GaugeMetricFamily(f"quorumlog_{name}", name.replace("_", " "), value=gauge)
        for name, count in self._meters.counters().items():
            yield CounterMetricFamily(f"quorumlog_{name}", name.replace("_", " "), value=count)
        fsync = self._meters.fsync_seconds
        yield HistogramMetricFamily(
            "quorumlog_fsync_seconds", "time of one storage transaction with its fsync", fsync.cumulative(), fsync.total
        )

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
