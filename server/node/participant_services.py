"""The services of the participants of transactions on this node."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from quorumlog.server.deciding.transaction_participants import OnEnded, OpenHere, TransactionParticipants
from quorumlog.server.groups.group_transactions import GroupTransactions
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.requests.partition_transactions import PartitionTransactions
from quorumlog.server.transactions.participants import ParticipantService
from quorumlog.v1 import errors_pb2, peer_pb2


class ParticipantsByKind:
    """Partitions and consumer groups together, as `TransactionParticipants`."""

    def __init__(self, partitions: TransactionParticipants, groups: TransactionParticipants) -> None:
        self._partitions = partitions
        self._groups = groups

    def _kind(self, group_id: str) -> TransactionParticipants:
        return self._groups if group_id else self._partitions

    def open(self, transaction: OpenHere, term: int) -> errors_pb2.Error | None:
        """Opens a transaction in a participant."""
        return self._kind(transaction.participant.group_id).open(transaction, term)

    def end(self, decision: peer_pb2.EndTransaction, ended: OnEnded) -> None:
        """Ends a transaction in a participant."""
        self._kind(decision.participant.group_id).end(decision, ended)

    @property
    def are_open(self) -> bool:
        """True if a transaction may be open in a participant that this node leads."""
        return self._partitions.are_open or self._groups.are_open

    def open_longer_than(self, age_us: int) -> Iterable[OpenHere]:
        """Returns the transactions that have been open for longer than an age."""
        return chain(self._partitions.open_longer_than(age_us), self._groups.open_longer_than(age_us))


class ParticipantServices:
    """The participants that this node leads, and their connection with the coordinators.

    Attributes:
        partitions: open and end transactions in partitions.
        service: enlists participants, and carries decisions to them.
    """

    def __init__(
        self, context: MemberContext, replicas: Replicas, absent: PartitionErrors, groups: GroupTransactions
    ) -> None:
        time, metadata, traffic = context.time, context.metadata.replica, context.traffic
        self.partitions = PartitionTransactions(time, context.resources.host, replicas, absent, context.rounds)
        both = ParticipantsByKind(self.partitions, groups)
        self.service = ParticipantService(both, metadata, replicas, traffic.client, time.now)
        groups.enlist_with(self.service)
        traffic.declare("end_transactions", self.service.end)
