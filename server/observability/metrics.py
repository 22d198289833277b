"""Counters of a node process. Counting costs one addition."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, fields

#: Upper bounds of the fsync histogram's buckets, in seconds.
FSYNC_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(slots=True)
class Histogram:
    """Counts of observations per bucket; the last bucket has no bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Adds one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns (upper bound, observations up to it) for each bucket, in Prometheus' form."""
        rows: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            rows.append((bound, float(seen)))
        return rows


@dataclass(slots=True)
class Meters:
    """Counters since the start of the process. Bytes are as sent, including envelopes."""

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
    kafka_requests: int = 0
    kafka_connections_ended: int = 0
    kafka_connections_refused: int = 0
    fsync_seconds: Histogram = field(default_factory=lambda: Histogram(FSYNC_BUCKETS_S))

    def counters(self) -> dict[str, int]:
        """Returns every plain counter by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "fsync_seconds"}
