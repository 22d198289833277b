"""Counters of a producer: updated once per batch and per request, never per record. On its event loop's thread."""

from __future__ import annotations

from quorumlog.sdk.metrics.figures import PRODUCER, PRODUCER_TOPIC, ClientFigures, averaged, counted
from quorumlog.sdk.metrics.windows import Measure


class _TopicCounts:
    """Counters of one topic."""

    __slots__ = ("delivered_bytes", "failed", "retried", "sent")

    def __init__(self, now_s: float) -> None:
        self.sent = Measure(now_s)
        self.delivered_bytes = Measure(now_s)
        self.failed = Measure(now_s)
        self.retried = Measure(now_s)

    def figures(self, now_s: float) -> dict[str, float]:
        return (
            counted("record-send", self.sent, now_s)
            | counted("byte", self.delivered_bytes, now_s)
            | counted("record-error", self.failed, now_s)
            | counted("record-retry", self.retried, now_s)
        )


class ProducerMetrics:
    """The counters of one producer. Times are monotonic seconds, sizes bytes."""

    def __init__(self, now_s: float) -> None:
        self._all = _TopicCounts(now_s)
        self._topics: dict[str, _TopicCounts] = {}
        self._request_bytes = Measure(now_s)
        self._request_records = Measure(now_s)
        self._latency_ms = Measure(now_s)
        self._queue_ms = Measure(now_s)

    def requested(self, records: int, size: int, now_s: float) -> None:
        """Counts a sent produce request."""
        self._request_bytes.add(size, now_s)
        self._request_records.add(records, now_s)

    def queued(self, created_s: float, now_s: float) -> None:
        """Counts a batch that is sent for the first time."""
        self._queue_ms.add((now_s - created_s) * 1000, now_s)

    def answered(self, sent_s: float, now_s: float) -> None:
        """Counts a response to a produce request."""
        self._latency_ms.add((now_s - sent_s) * 1000, now_s)

    def delivered(self, topic: str, records: int, size: int, now_s: float) -> None:
        """Counts an acknowledged batch."""
        for counts in (self._all, self._of(topic, now_s)):
            counts.sent.add(records, now_s)
            counts.delivered_bytes.add(size, now_s)

    def failed(self, topic: str, records: int, now_s: float) -> None:
        """Counts a batch that has failed permanently."""
        for counts in (self._all, self._of(topic, now_s)):
            counts.failed.add(records, now_s)

    def retried(self, topic: str, records: int, now_s: float) -> None:
        """Counts a failed attempt that will be repeated."""
        for counts in (self._all, self._of(topic, now_s)):
            counts.retried.add(records, now_s)

    def _of(self, topic: str, now_s: float) -> _TopicCounts:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _TopicCounts(now_s)
        return found

    def figures(self, now_s: float) -> ClientFigures:
        """Returns all metrics, by group: ``producer-metrics``, and ``producer-topic-metrics.NAME`` of each topic."""
        of_all = self._all.figures(now_s)
        requests = {"request-total": float(self._request_bytes.times)}
        sizes = averaged("batch-size", self._all.delivered_bytes, now_s)
        figures = {
            PRODUCER: {name: value for name, value in of_all.items() if not name.startswith("byte-")}
            | requests
            | counted("outgoing-byte", self._request_bytes, now_s)
            | averaged("request-latency", self._latency_ms, now_s)
            | averaged("record-queue-time", self._queue_ms, now_s)
            | averaged("records-per-request", self._request_records, now_s)
            | sizes
        }
        for topic, counts in list(self._topics.items()):
            figures[f"{PRODUCER_TOPIC}.{topic}"] = counts.figures(now_s)
        return figures
