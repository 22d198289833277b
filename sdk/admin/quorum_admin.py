"""Administration of the metadata quorum: its description, and changes of its voters."""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.sdk.admin.lost_answers import change_once
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import LeaderNotAvailableError, QuorumlogError, error_from_proto
from quorumlog.sdk.types import QuorumDescription, QuorumReplicaDescription
from quorumlog.v1 import admin_pb2

#: Time limit of the search for a leader of the quorum.
_LEADER_GRACE_S = 5.0


class QuorumAdmin:
    """Describes and changes the metadata quorum.

    Arguments:
        limit_s: time limit of one call, in seconds.
    """

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._limit_s = limit_s

    async def describe(self) -> QuorumDescription:
        """Returns the quorum as its leader sees it; without a leader as another node does."""
        without_leader: admin_pb2.DescribeQuorumResponse | None = None

        async def attempt() -> admin_pb2.DescribeQuorumResponse:
            nonlocal without_leader
            request = admin_pb2.DescribeQuorumRequest()
            response = await self._cluster.ask_any(
                lambda node, limit: node.admin.DescribeQuorum(request, timeout=limit)
            )
            if response.HasField("error"):
                raise error_from_proto(response.error)
            if response.leader_id < 0:
                without_leader = response
                raise LeaderNotAvailableError("the metadata quorum has no leader")
            return response

        try:
            response = await self._cluster.retrying(attempt, min(self._limit_s, _LEADER_GRACE_S), "describe_quorum")
        except QuorumlogError:
            if without_leader is None:
                raise
            response = without_leader
        return QuorumDescription(
            leader_id=response.leader_id if response.leader_id >= 0 else None,
            leader_epoch=response.leader_epoch,
            high_watermark=response.high_watermark,
            voters=tuple(_replica(voter) for voter in response.voters),
            observers=tuple(_replica(observer) for observer in response.observers),
            wanted_voters=tuple(response.wanted_voters),
            outgoing_voters=tuple(response.outgoing_voters),
        )

    async def alter(self, add: Sequence[int], remove: Sequence[int], *, validate_only: bool) -> tuple[int, ...]:
        """Changes the voters, and returns the node ids of the future ones."""
        request = admin_pb2.AlterQuorumRequest(
            add=add, remove=remove, validate_only=validate_only, timeout_ms=int(self._limit_s * 1000)
        )

        async def ask() -> tuple[int, ...]:
            response = await self._cluster.ask_any(lambda node, limit: node.admin.AlterQuorum(request, timeout=limit))
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return tuple(response.voters)

        async def find_done() -> tuple[int, ...] | None:
            quorum = await self.describe()
            if quorum.leader_id is None:
                raise LeaderNotAvailableError("the metadata quorum has no leader")
            voting = set(quorum.wanted_voters or (voter.node_id for voter in quorum.voters))
            return tuple(sorted(voting)) if voting.issuperset(add) and voting.isdisjoint(remove) else None

        return await change_once(self._cluster, ask, find_done, self._limit_s, "alter_quorum")


def _replica(replica: admin_pb2.QuorumReplica) -> QuorumReplicaDescription:
    contact = replica.last_contact_ms if replica.last_contact_ms >= 0 else None
    end = replica.log_end_index if replica.log_end_index >= 0 else None
    return QuorumReplicaDescription(replica.node_id, replica.directory_id, end, contact)
