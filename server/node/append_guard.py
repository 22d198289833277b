"""Current abilities of a node: accept appends, count on other replicas, confirm that it leads."""

from __future__ import annotations

from quorumlog.server.node.resources import NodeResources
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: A paused or slow peer counts as live for this many election timeouts of silence.
LIVE_FOR_ELECTION_TIMEOUTS = 2


class AppendGuard:
    """Decides from the state of the links, the disk and the pending writes."""

    def __init__(self, resources: NodeResources, time: StepTime) -> None:
        self._options = resources.options
        self._host = resources.host
        self._links = resources.links
        self._space = resources.space
        self._time = time

    def live_replicas(self, partition: Partition) -> int:
        """Returns the number of a partition's data voters that can be expected to confirm an append, including this
        node."""
        silence = self._options.raft.election_timeout_us * LIVE_FOR_ELECTION_TIMEOUTS
        return sum(
            node == self._options.node_id or self._links.alive(node, self._time.now, silence)
            for node in partition.raft.configuration.data_voters
        )

    def refusal(self) -> errors_pb2.Error | None:
        """Returns the error if this node accepts no appends now, or None."""
        if self._host.gathered_bytes >= self._options.limits.gathered_bytes:
            # Followers may commit without this disk, so Raft's own limit does not cover what accumulates here.
            waiting = self._host.gathered_bytes >> 20
            return error(ErrorCode.SERVER_BUSY, f"{waiting} MiB wait for the node's disk; try again later")
        return self._space.refusal()

    def confirm_leadership(self, group: int) -> int | None:
        """Sends a heartbeat of one Raft group now and returns its round; None while this node could not lead."""
        if self._host.stalled(self._time.now, self._options.storage_stall_us):
            return None
        self._host.touch(group)
        return self._host.replicas[group].raft.heartbeat(self._time.now)
