"""State of a search for offsets; no I/O, so every client shares it.

Servers do not read payloads: for a timestamp set by producers they name the batch, and the record is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from quorumlog.sdk.errors import RequestTimedOutError
from quorumlog.sdk.isolation import LEVELS, IsolationLevel
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

#: Special values of ``timestamp_ms``.
EARLIEST = -2
LATEST = -1


def extent(start: int, end: int) -> str:
    """Returns a description of a log's offsets for messages.

    Arguments:
        start: its first offset.
        end: the offset of its next record; below ``start`` if the node did not report it.
    """
    if end < start:
        return f"the log starts at {start}"
    return f"the log has {start} to {end - 1}, and {end} comes next" if end > start else f"the log is empty at {end}"


def lag(position: int, start: int, end: int) -> int:
    """Returns how many offsets a reader at ``position`` has left to read.

    Arguments:
        start: the log's first offset. Records below it are deleted, and no reader can catch up on them.
        end: the offset of its next record. A position beyond it is newer than the known state of the log.
    """
    return max(0, end - max(position, start))


class FoundOffset(NamedTuple):
    """An offset, or -1, with its record's timestamp for look-ups by time (otherwise -1)."""

    offset: int
    timestamp_ms: int


class RequestedPartition(NamedTuple):
    """A partition in requests: its topic's id, and the client's leader epoch (-1: none)."""

    topic_id: bytes
    leader_epoch: int


class OffsetSearch:
    """A look-up of one offset per partition, over as many rounds of questions as it takes.

    Arguments:
        wanted: of each partition a timestamp in milliseconds, :data:`EARLIEST` or :data:`LATEST`.
        isolation_level: with ``read_committed`` the logs end at their last stable offsets.

    Attributes:
        steps: counts the answers that have ruled records out or found an offset: a round without one makes no progress.
    """

    def __init__(
        self, wanted: Mapping[TopicPartition, int], isolation_level: IsolationLevel = "read_committed"
    ) -> None:
        self.found: dict[TopicPartition, FoundOffset] = {}
        self.missing = set(wanted)
        self.steps = 0
        self._wanted = wanted
        self._isolation_level = LEVELS[isolation_level]
        self._first_offsets: dict[TopicPartition, int] = {}

    def questions(
        self, partitions: Iterable[tuple[TopicPartition, RequestedPartition]], timeout_ms: int
    ) -> data_plane_pb2.ListOffsetsRequest:
        """Returns the next request to a node for partitions that it leads."""
        request = data_plane_pb2.ListOffsetsRequest(
            timeout_ms=timeout_ms, takes_kafka_batches=True, isolation_level=self._isolation_level
        )
        for tp, place in partitions:
            request.partitions.add(
                topic_id=place.topic_id,
                partition=tp.partition,
                timestamp_ms=self._wanted[tp],
                leader_epoch=place.leader_epoch,
                # Records before it have been ruled out.
                first_offset=self._first_offsets.get(tp, 0),
            )
        return request

    def take_answer(self, tp: TopicPartition, result: data_plane_pb2.ListOffsetsResult) -> None:
        """Applies a leader's result.

        Raises:
            CorruptRecordError: the batch that it names is damaged. A batch whose records cannot be decoded is itself
                the result: its reader decides whether to skip it.
        """
        if result.unfinished:
            self._rule_out(tp, result.offset)
        elif result.entry:
            # They load Arrow, which only a search by time needs.
            from quorumlog.sdk.records.fetched import FetchedRows
            from quorumlog.sdk.records.record_batch import UnreadableBatch, decode_entry

            batch = decode_entry(result.entry)
            if isinstance(batch, UnreadableBatch):
                first_offset = max(batch.header.base_offset, result.offset)
                self._set(tp, FoundOffset(first_offset, batch.header.max_timestamp_ms))
                return
            rows = FetchedRows.of_batch(tp, len(result.entry), batch)
            place = rows.first_at_time(self._wanted[tp], result.offset)
            if place is not None:
                self._set(tp, FoundOffset(*place))
            else:  # The log starts after the only such records of the batch.
                self._rule_out(tp, rows.header.last_offset + 1)
        else:
            self._set(tp, FoundOffset(result.offset, result.timestamp_ms))

    def stalled(self) -> RequestTimedOutError:
        """Returns the error of a round of answers without progress (retriable)."""
        tp = min(self.missing)
        problem = f"the leader of {tp.topic}-{tp.partition} does not advance in its search"
        return RequestTimedOutError(problem, definite=True)

    def _rule_out(self, tp: TopicPartition, first_offset: int) -> None:
        if first_offset > self._first_offsets.get(tp, 0):
            self._first_offsets[tp] = first_offset
            self.steps += 1

    def _set(self, tp: TopicPartition, found: FoundOffset) -> None:
        self.steps += tp in self.missing
        self.found[tp] = found
        self.missing.discard(tp)
