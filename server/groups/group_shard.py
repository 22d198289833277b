"""One replica of a coordinator of consumer groups: the state from its log, and its leadership."""

from __future__ import annotations

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Snapshot
from quorumlog.server.deciding.coordinator_kind import CoordinatorKind
from quorumlog.server.deciding.coordinator_replica import CoordinatorReplica, ReadSnapshot
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.request_checks import check_group_id
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.v1.acls_pb2 import ACL_RESOURCE_GROUP
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.wire.topic_names import GROUPS_TOPIC

#: Coordinators of consumer groups. A key is the id of a group.
GROUP_COORDINATORS = CoordinatorKind(
    topic=GROUPS_TOPIC,
    noun="group",
    resource=ACL_RESOURCE_GROUP,
    check_key=check_group_id,
    table=GroupTable,
    command=GroupCommand,
)


class GroupShard(CoordinatorReplica[GroupTable, GroupCommand]):
    """A coordinator of consumer groups over one Raft group. All groups are in memory."""

    def __init__(
        self,
        identity: PartitionId,
        raft: RaftGroup,
        sealer: GroupSealer,
        snapshot: Snapshot | None,
        read: ReadSnapshot,
    ) -> None:
        super().__init__(GROUP_COORDINATORS, identity, raft, sealer, snapshot, read)
