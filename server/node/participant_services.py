"""The services of the participants of transactions on this node."""

from __future__ import annotations

from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.requests.partition_transactions import PartitionTransactions
from quorumlog.server.transactions.participants import ParticipantService


class ParticipantServices:
    """The partitions that this node leads as participants, and their connection with the coordinators.

    Attributes:
        partitions: open and end transactions in partitions.
        service: enlists participants, and carries decisions to them.
    """

    def __init__(self, context: MemberContext, replicas: Replicas, absent: PartitionErrors) -> None:
        time, metadata, traffic = context.time, context.metadata.replica, context.traffic
        self.partitions = PartitionTransactions(time, context.resources.host, replicas, absent, context.rounds)
        self.service = ParticipantService(self.partitions, metadata, replicas, traffic.client, time.now)
        traffic.declare("end_transactions", self.service.end)
