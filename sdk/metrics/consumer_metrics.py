"""Counters of a consumer: updated once per response, per poll and per commit, never per record."""

from __future__ import annotations

from quorumlog.sdk.metrics.figures import COORDINATOR, FETCHES, ClientFigures, averaged, counted
from quorumlog.sdk.metrics.windows import Measure


class ConsumerMetrics:
    """The counters of one consumer. Times are monotonic seconds, sizes bytes.

    :meth:`returned` and :meth:`skipped` belong to the thread that polls, everything else to the event loop's.
    """

    def __init__(self, now_s: float) -> None:
        self._records = Measure(now_s)
        self._bytes = Measure(now_s)
        self._skipped_records = Measure(now_s)
        self._fetched_bytes = Measure(now_s)
        self._latency_ms = Measure(now_s)
        self._commit_ms = Measure(now_s)
        self._failed_commits = Measure(now_s)
        self._heartbeats = Measure(now_s)
        self._rebalances = Measure(now_s)
        self._heard_at_s: float | None = None

    def returned(self, records: int, size: int, now_s: float) -> None:
        """Counts the records returned by a poll."""
        self._records.add(records, now_s)
        self._bytes.add(size, now_s)

    def skipped(self, records: int, now_s: float) -> None:
        """Counts an unreadable batch that was skipped, and its number of records according to its header."""
        self._skipped_records.add(records, now_s)

    def fetched(self, size: int, sent_s: float, now_s: float) -> None:
        """Counts a response to a fetch."""
        self._fetched_bytes.add(size, now_s)
        self._latency_ms.add((now_s - sent_s) * 1000, now_s)

    def committed(self, began_s: float, now_s: float, *, stored: bool) -> None:
        """Counts a finished commit."""
        if stored:
            self._commit_ms.add((now_s - began_s) * 1000, now_s)
        else:
            self._failed_commits.add(1, now_s)

    def beat(self, now_s: float) -> None:
        """Counts a sent heartbeat."""
        self._heartbeats.add(1, now_s)

    def heard(self, now_s: float) -> None:
        """Records the time of the coordinator's last response."""
        self._heard_at_s = now_s

    def rebalanced(self, now_s: float) -> None:
        """Counts a change of this member's partitions."""
        self._rebalances.add(1, now_s)

    def figures(self, now_s: float, *, in_group: bool) -> ClientFigures:
        """Returns all metrics, by group: ``consumer-fetch-manager-metrics`` and ``consumer-coordinator-metrics``.

        Arguments:
            in_group: True if the consumer has a group, and so a coordinator.
        """
        figures = {
            FETCHES: counted("records-consumed", self._records, now_s)
            | counted("bytes-consumed", self._bytes, now_s)
            | {
                "batches-skipped-total": float(self._skipped_records.times),
                "records-skipped-total": self._skipped_records.total,
                "fetch-total": float(self._fetched_bytes.times),
            }
            | averaged("fetch-latency", self._latency_ms, now_s)
            | averaged("fetch-size", self._fetched_bytes, now_s)
        }
        if in_group:
            ago = -1.0 if self._heard_at_s is None else now_s - self._heard_at_s
            figures[COORDINATOR] = (
                {"commit-total": float(self._commit_ms.times), "commit-error-total": float(self._failed_commits.times)}
                | averaged("commit-latency", self._commit_ms, now_s)
                | {"heartbeat-total": float(self._heartbeats.times), "last-heartbeat-seconds-ago": ago}
                | {"rebalance-total": float(self._rebalances.times)}
            )
        return figures
