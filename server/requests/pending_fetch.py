"""Fetches that wait for data (long poll)."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.server.requests.fetch_sessions import FetchedPartition, ServedFetchSession
from quorumlog.v1 import errors_pb2


@dataclass(slots=True)
class Found:
    """What one partition has for a fetch: an error, or entries and where its log begins and ends.

    Arguments:
        fills_answer: more entries are there than the answer has room for.
    """

    error: errors_pb2.Error | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    leader_epoch: int = 0
    entries: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    compacted_offset: int = 0
    fills_answer: bool = False


@dataclass(slots=True, eq=False)
class PendingFetch:
    """A fetch that is being answered.

    Arguments:
        deadline: when it is answered with what there is (µs).
        min_bytes, max_bytes: of entries: enough to answer, and the most that an answer holds.
        tells_all: it is answered of all partitions, also of those whose entries there is no room for.
        found: what is to be said, by partition.
        size_bytes: of the entries in it.
        urgent: it holds an error, which no client should wait for, or as much as it may.
    """

    request_id: int
    correlation_id: int
    session: ServedFetchSession
    deadline: int
    min_bytes: int
    max_bytes: int
    tells_all: bool = False
    found: dict[FetchedPartition, Found] = field(default_factory=dict)
    size_bytes: int = 0
    urgent: bool = False

    def put(self, partition: FetchedPartition, found: Found | None) -> None:
        """Says this of a partition, and not what was to be said before; nothing if ``found`` is None."""
        before = self.found.get(partition)
        if before is not None:
            self.size_bytes -= before.size_bytes
        if found is None:
            self.found.pop(partition, None)
            return
        self.found[partition] = found
        self.size_bytes += found.size_bytes
        self.urgent = self.urgent or found.error is not None or found.fills_answer
