"""Where partitions begin and end: linearizable look-ups.

A leader answers with its high watermark only after a quorum has confirmed that it still leads (`read_index.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.partition import Partition
from quorumlog.server.partitions import Partitions
from quorumlog.server.read_index import HeartbeatRounds
from quorumlog.server.waiting import wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

EARLIEST = -2
LATEST = -1


@dataclass(slots=True)
class _Lookup:
    """One request. ``waiting``: slots by group, each with the term and heartbeat round that must be confirmed."""

    request_id: int
    deadline: int
    response: data_plane_pb2.ListOffsetsResponse
    waiting: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)


class OffsetRequests:
    """Serves ListOffsets from the partitions that this node leads.

    Arguments:
        rounds: of heartbeats, shared with other reads.
        limit: requests that may wait for confirmation.
    """

    def __init__(
        self,
        partitions: Partitions,
        limit: int,
        reply: Callable[[int, ProtoMessage], None],
        missing: Callable[[bytes, int], errors_pb2.Error],
        rounds: HeartbeatRounds,
    ) -> None:
        self._partitions = partitions
        self._limit = limit
        self._reply = reply
        self._missing = missing
        self._rounds = rounds
        self._lookups: dict[int, _Lookup] = {}
        self._by_group: dict[int, set[int]] = {}

    def list_offsets(self, now: int, request_id: int, request: data_plane_pb2.ListOffsetsRequest) -> None:
        """Answers where partitions begin and end, once it is certain that this node leads them."""
        lookup = _Lookup(request_id, now + wait_us(request.timeout_ms), data_plane_pb2.ListOffsetsResponse())
        for wanted in request.partitions:
            self._begin(now, lookup, wanted)
        self._lookups[request_id] = lookup
        for group in lookup.waiting:
            self._by_group.setdefault(group, set()).add(request_id)
        self._finish_if_done(lookup)

    def _begin(self, now: int, lookup: _Lookup, wanted: data_plane_pb2.ListOffsetsPartition) -> None:
        slot = len(lookup.response.results)
        result = lookup.response.results.add(
            topic_id=wanted.topic_id, partition=wanted.partition, offset=-1, timestamp_ms=-1
        )
        partition = self._partitions.find(wanted.topic_id, wanted.partition)
        if partition is None:
            result.error.CopyFrom(self._missing(wanted.topic_id, wanted.partition))
            return
        problem = partition.check_readable(wanted.leader_epoch) or _check_timestamp(wanted.timestamp_ms)
        heartbeat = None
        if problem is None:
            heartbeat = self._rounds.begin(now, partition.group)
            if heartbeat is None or len(self._lookups) >= self._limit:
                problem = error(ErrorCode.SERVER_BUSY, f"the leader of {partition.name} is stalled; try again shortly")
        if problem is not None:
            result.error.CopyFrom(problem)
            return
        assert heartbeat is not None
        earliest = wanted.timestamp_ms == EARLIEST
        result.offset = partition.log_start_offset if earliest else partition.high_watermark
        result.leader_epoch = partition.raft.term
        lookup.waiting.setdefault(partition.group, []).append((slot, partition.raft.term, heartbeat))

    def after_round(self, partition: Partition) -> None:
        """The group was stepped: look-ups that it holds up may be certain now, or in vain."""
        for request_id in sorted(self._by_group.get(partition.group, ())):
            lookup = self._lookups[request_id]
            still = []
            for slot, term, heartbeat in lookup.waiting.get(partition.group, ()):
                if not partition.leads or partition.raft.term != term:
                    _fail(lookup.response.results[slot], partition.not_leader())
                elif partition.raft.confirmed_round < heartbeat:
                    still.append((slot, term, heartbeat))
            self._update(lookup, partition.group, still)
            self._finish_if_done(lookup)

    def _update(self, lookup: _Lookup, group: int, still: list[tuple[int, int, int]]) -> None:
        if still:
            lookup.waiting[group] = still
            return
        del lookup.waiting[group]
        requests = self._by_group[group]
        requests.discard(lookup.request_id)
        if not requests:
            del self._by_group[group]

    def _finish_if_done(self, lookup: _Lookup) -> None:
        if not lookup.waiting:
            del self._lookups[lookup.request_id]
            self._reply(lookup.request_id, lookup.response)

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        lookup = self._lookups.pop(request_id, None)
        if lookup is not None:
            for group in list(lookup.waiting):
                self._update(lookup, group, [])

    def on_time(self, now: int) -> None:
        """Answers the look-ups whose time is up."""
        for lookup in [lookup for lookup in self._lookups.values() if lookup.deadline <= now]:
            late = error(ErrorCode.REQUEST_TIMED_OUT, "no quorum confirmed the leader in time; try again")
            for group, slots in list(lookup.waiting.items()):
                for slot, _, _ in slots:
                    _fail(lookup.response.results[slot], late)
                self._update(lookup, group, [])
            self._finish_if_done(lookup)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return min((lookup.deadline for lookup in self._lookups.values()), default=None)


def _fail(result: data_plane_pb2.ListOffsetsResult, problem: errors_pb2.Error) -> None:
    result.error.CopyFrom(problem)
    result.offset = -1


def _check_timestamp(timestamp_ms: int) -> errors_pb2.Error | None:
    if timestamp_ms in (EARLIEST, LATEST):
        return None
    return error(
        ErrorCode.UNSUPPORTED_VERSION,
        "looking up offsets by timestamp arrives with a later version; ask for the beginning (-2) or the end (-1)",
    )
