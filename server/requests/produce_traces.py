"""Traced batches: the time at which a batch passed each stage, as its leader saw it, returned with the response.

For a record that a client wants to trace, the leader notes when the batch was appended to its log, when it learned that
the batch was on its own disk and on each follower's, when it was committed, and when it was answered. All of these are
measured by the leader's clock, since the request arrived. The sync time of a follower's disk is reported by that
follower with its acknowledgement (`PeerFrame.sync_us`), as a duration by its own clock. The clocks of two nodes are
never compared.

A trace does not delay the response. A replica that had not acknowledged by then is in the trace without a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.raft.types import AppendResponse
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.partition.acknowledgements import ProduceCall
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.events import ClientRequest, PeerFrame
from quorumlog.server.step.node_service import StepTime
from quorumlog.v1 import data_plane_pb2

#: Maximum number of batches traced on a node at once, shared by all clients.
MOST_TRACES = 64

ANOTHER_UNDER_WAY = "another batch of this stream is being traced: one at a time"
NODE_IS_BUSY = f"{MOST_TRACES} batches are being traced on this node already: try again"
NOT_ALONE = "the request has several batches: a traced one has a request of its own"
DUPLICATE = "the batch was in the log already: an earlier attempt of it has put it there"


@dataclass(slots=True)
class TracedBatch:
    """A batch in the log of a partition that this node leads, and its trace.

    Arguments:
        index, term: index and term of its entry.
        since_us: time at which its request arrived.
        replicas: traces of the replicas that vote, by node id.
    """

    request_id: int
    stream: int
    partition: Partition
    index: int
    term: int
    since_us: int
    told: data_plane_pb2.BatchTrace
    replicas: dict[int, data_plane_pb2.ReplicaTrace]

    def durable(self, now: int, node: int, sync_us: int) -> None:
        """Records that the batch is on the disk of a node, and the duration of its sync; 0 if not reported."""
        replica = self.replicas.get(node)
        if replica is not None and not replica.HasField("durable_us"):
            replica.durable_us = now - self.since_us
            if sync_us:
                replica.sync_us = sync_us

    @property
    def is_led(self) -> bool:
        """True if its entry is still the one that was appended: only a new leader could have replaced it."""
        raft = self.partition.raft
        return raft.is_leader and raft.term == self.term


class ProduceTraces:
    """The traced batches of a node.

    Arguments:
        time: time of the current step.
        host: has the duration of this node's last sync.

    Attributes:
        by_request: the batches by the number of their request. Without any, nothing needs to be reported here.
    """

    def __init__(self, time: StepTime, host: RaftHost) -> None:
        self._time = time
        self._host = host
        self.by_request: dict[int, TracedBatch] = {}
        self._by_group: dict[int, list[TracedBatch]] = {}

    def begin(
        self, asked: ClientRequest, request: data_plane_pb2.ProduceRequest, call: ProduceCall, partition: Partition
    ) -> None:
        """Starts the trace of the last entry in the partition's log, or fills in the reason against it."""
        trace = call.response.trace
        why_not = self._why_not(asked, request)
        if why_not:
            trace.untraced = why_not
            return
        now, raft = self._time.now, partition.raft
        since_us = min(now, asked.arrived_us or now)
        configuration = raft.configuration
        trace.node_id = raft.node_id
        trace.appended_us = now - since_us
        trace.voters = len(configuration.voters)
        trace.majority = len(configuration.voters) // 2 + 1
        trace.copies_needed = partition.copies_needed
        trace.min_insync_replicas = partition.config.min_insync_replicas
        others = sorted(set(configuration.electors) - {raft.node_id})
        replicas = {
            node: trace.replicas.add(node_id=node, witness=node in configuration.witnesses)
            for node in (raft.node_id, *others)
        }
        index = raft.last_id.index
        traced = TracedBatch(asked.request_id, asked.stream, partition, index, raft.term, since_us, trace, replicas)
        self.by_request[asked.request_id] = traced
        self._by_group.setdefault(partition.group, []).append(traced)

    def _why_not(self, asked: ClientRequest, request: data_plane_pb2.ProduceRequest) -> str:
        if len(request.batches) != 1:
            return NOT_ALONE
        if any(each.stream == asked.stream for each in self.by_request.values()):
            return ANOTHER_UNDER_WAY
        return NODE_IS_BUSY if len(self.by_request) >= MOST_TRACES else ""

    def on_frame(self, peer: int, frame: PeerFrame) -> None:
        """Records the acknowledgements in a frame that reports a sync time. The Raft groups have handled it already."""
        if not frame.sync_us:
            return
        for group, message in frame.messages:
            for traced in self._by_group.get(group, ()) if isinstance(message, AppendResponse) else ():
                self._follow(traced, peer, frame.sync_us)

    def _follow(self, traced: TracedBatch, peer: int, sync_us: int) -> None:
        progress = traced.partition.raft.progress.get(peer)
        if progress is not None and traced.is_led and progress.match_index >= traced.index:
            traced.durable(self._time.now, peer, sync_us)

    def after_round(self, partition: Partition) -> None:
        """Records durability and commit after a step of a log's Raft group, before requests are answered."""
        now, raft = self._time.now, partition.raft
        for traced in self._by_group.get(partition.group, ()):
            if not traced.is_led:
                continue
            if raft.durable_index >= traced.index:
                traced.durable(now, raft.node_id, self._host.sync_us)
            for peer in traced.replicas:
                if peer != raft.node_id:
                    self._follow(traced, peer, 0)
            if raft.commit_index >= traced.index and not traced.told.HasField("committed_us"):
                traced.told.committed_us = now - traced.since_us

    def answered(self, request_id: int) -> None:
        """Completes the trace of a request that is about to be answered."""
        traced = self.forget(request_id)
        if traced is not None:
            traced.told.answered_us = self._time.now - traced.since_us

    def forget(self, request_id: int) -> TracedBatch | None:
        """Removes the trace of a request and returns it; None if it is not traced."""
        traced = self.by_request.pop(request_id, None)
        if traced is not None:
            group = traced.partition.group
            left = [each for each in self._by_group[group] if each is not traced]
            if left:
                self._by_group[group] = left
            else:
                del self._by_group[group]
        return traced
