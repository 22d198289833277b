"""Traced batches: when each came to what stage, as their leader saw it, told with the answer.

Somebody wants to see the way of one record. Its leader notes when it put the batch into its log, when it knew it to be
on its own disk and on each follower's, when it was committed, and when it was answered. All of that is by the leader's
clock, since the request arrived. How long a follower's disk took is that follower's word, a duration by its own clock,
which comes with its acknowledgement (`PeerFrame.sync_us`). The clocks of two nodes are never compared.

A trace changes nothing of what it looks at: the answer goes when it would have gone without. Who had not acknowledged
by then is in the trace without a time.
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

#: Batches that are traced on a node at once, of all clients together.
MOST_TRACES = 64

ANOTHER_UNDER_WAY = "another batch of this stream is being traced: one at a time"
NODE_IS_BUSY = f"{MOST_TRACES} batches are being traced on this node already: try again"
NOT_ALONE = "the request has several batches: a traced one has a request of its own"
DUPLICATE = "the batch was in the log already: an earlier attempt of it has put it there"


@dataclass(slots=True)
class TracedBatch:
    """A batch in the log of a partition that is led here, and what is told of it.

    Arguments:
        index, term: of its entry.
        since_us: when its request arrived.
        replicas: that vote, by node id.
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
        """The leader knows that the batch is on the disk of a node, which took so long to sync it; 0: not told."""
        replica = self.replicas.get(node)
        if replica is not None and not replica.HasField("durable_us"):
            replica.durable_us = now - self.since_us
            if sync_us:
                replica.sync_us = sync_us

    @property
    def is_led(self) -> bool:
        """Whether its entry is still the one that was appended: only a new leader could have replaced it."""
        raft = self.partition.raft
        return raft.is_leader and raft.term == self.term


class ProduceTraces:
    """The traced batches of a node. False while there are none: then nobody need tell it anything.

    Arguments:
        time: of the step under way.
        host: knows how long this node's disk took.
    """

    def __init__(self, time: StepTime, host: RaftHost) -> None:
        self._time = time
        self._host = host
        self._by_request: dict[int, TracedBatch] = {}
        self._by_group: dict[int, list[TracedBatch]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_request)

    def begin(
        self, asked: ClientRequest, request: data_plane_pb2.ProduceRequest, call: ProduceCall, partition: Partition
    ) -> None:
        """A batch of a request that asks for it has just been appended: the last entry of its partition's log."""
        told = call.response.trace
        why_not = self._why_not(asked, request)
        if why_not:
            told.untraced = why_not
            return
        now, raft = self._time.now, partition.raft
        since_us = min(now, asked.arrived_us or now)
        configuration = raft.configuration
        told.node_id = raft.node_id
        told.appended_us = now - since_us
        told.voters = len(configuration.voters)
        told.majority = len(configuration.voters) // 2 + 1
        told.copies_needed = partition.copies_needed
        told.min_insync_replicas = partition.config.min_insync_replicas
        others = sorted(set(configuration.electors) - {raft.node_id})
        replicas = {
            node: told.replicas.add(node_id=node, witness=node in configuration.witnesses)
            for node in (raft.node_id, *others)
        }
        index = raft.last_id.index
        traced = TracedBatch(asked.request_id, asked.stream, partition, index, raft.term, since_us, told, replicas)
        self._by_request[asked.request_id] = traced
        self._by_group.setdefault(partition.group, []).append(traced)

    def _why_not(self, asked: ClientRequest, request: data_plane_pb2.ProduceRequest) -> str:
        if len(request.batches) != 1:
            return NOT_ALONE
        if any(each.stream == asked.stream for each in self._by_request.values()):
            return ANOTHER_UNDER_WAY
        return NODE_IS_BUSY if len(self._by_request) >= MOST_TRACES else ""

    def on_frame(self, peer: int, frame: PeerFrame) -> None:
        """A peer has acknowledged entries, which their Raft groups know already. It may have said how long its disk
        took."""
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
        """A log's Raft group was stepped, and nobody is answered for that yet."""
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
        """A request is answered, with what is known of its batch by now, if that is traced."""
        traced = self.forget(request_id)
        if traced is not None:
            traced.told.answered_us = self._time.now - traced.since_us

    def forget(self, request_id: int) -> TracedBatch | None:
        """Nothing more is noted of a request; returns what was traced of it."""
        traced = self._by_request.pop(request_id, None)
        if traced is not None:
            group = traced.partition.group
            left = [each for each in self._by_group[group] if each is not traced]
            if left:
                self._by_group[group] = left
            else:
                del self._by_group[group]
        return traced
