"""One replica of a transaction coordinator: the kind of coordinator that it is, its state and its leadership."""

from __future__ import annotations

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Snapshot
from quorumlog.server.deciding.coordinator_kind import CoordinatorKind
from quorumlog.server.deciding.coordinator_replica import CoordinatorReplica, ReadSnapshot
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import ACL_RESOURCE_PRODUCER_NAME
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.transaction_log_pb2 import TransactionCommand
from quorumlog.wire.kafka.control import LogPlace
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC

#: Maximum length of a transactional id in characters, as of a producer name.
MAX_NAME_LENGTH = 249


def check_transactional_id(name: str) -> errors_pb2.Error | None:
    """Returns the error if a producer cannot have this transactional id; None if it can."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        why = f"a transactional id has 1 to {MAX_NAME_LENGTH} characters, not {len(name)}"
        return error(ErrorCode.INVALID_REQUEST, why)
    # The id appears in tables, log lines and messages.
    if not name.isprintable():
        why = f"a transactional id has printable characters only: {name} does not"
        return error(ErrorCode.INVALID_REQUEST, why)
    return None


#: Transaction coordinators. A key is a transactional id, which is the name of a producer.
TRANSACTION_COORDINATORS = CoordinatorKind(
    topic=TRANSACTIONS_TOPIC,
    noun="transactional id",
    resource=ACL_RESOURCE_PRODUCER_NAME,
    check_key=check_transactional_id,
    table=TransactionTable,
    command=TransactionCommand,
    feature_level=THIRD_FEATURE_LEVEL,
)


class TransactionShard(CoordinatorReplica[TransactionTable, TransactionCommand]):
    """A transaction coordinator over one Raft group. All transactional ids are in memory."""

    def __init__(
        self,
        identity: PartitionId,
        raft: RaftGroup,
        sealer: GroupSealer,
        snapshot: Snapshot | None,
        read: ReadSnapshot,
    ) -> None:
        super().__init__(TRANSACTION_COORDINATORS, identity, raft, sealer, snapshot, read)

    @property
    def place(self) -> LogPlace:
        """The place of the newest entry that the table contains."""
        return LogPlace(self.last_applied.term, self.last_applied.index)
