"""Builds the services of a cluster member and puts them into their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quorumlog.server.deciding.dependencies import CoordinatorDependencies, ReplicaT
from quorumlog.server.groups.group_service import GroupService
from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.node.access_services import AccessServices
from quorumlog.server.node.cluster_services import ClusterServices
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.participant_services import ParticipantServices
from quorumlog.server.node.partition_services import LogServices
from quorumlog.server.node.replica_services import ReplicaServices
from quorumlog.server.node.request_pipeline import RequestPipeline
from quorumlog.server.requests.error_responses import FAILED_RESPONSES
from quorumlog.server.step.node_service import NodeServices
from quorumlog.server.transactions.transaction_service import TransactionService
from quorumlog.v1.groups_pb2 import COORDINATOR_TYPE_TRANSACTION


class MemberServices:
    """The services of a cluster member, in groups.

    Arguments:
        raft_groups: makes the Raft replicas.
        ended: called with a replica that this node no longer has.

    Attributes:
        access: authentication, authorization, audit.
        replicas: place, move, repair and remove replicas.
        pipeline: the path of every client request.
        logs: serve and maintain the logs of partitions.
        cluster: requests about the cluster as a whole.
        groups: consumer groups.
        participants: partitions and consumer groups that take part in transactions.
        transactions: transaction coordinators.
        in_order: all services.
    """

    def __init__(
        self, context: MemberContext, raft_groups: RaftGroupFactory, ended: Callable[[PartitionReplica], None]
    ) -> None:
        resources, metadata = context.resources, context.metadata.replica
        self.access = AccessServices(context)
        self.replicas = replicas = ReplicaServices(context, raft_groups, ended)
        self.pipeline = RequestPipeline(
            self.access, metadata, resources.replies, context.time, resources.log.named("server.requests")
        )
        self.cluster = ClusterServices(context, self.access, replicas)
        self.transactions = TransactionService(
            context.time.now,
            self._shared(context, replicas.partitions.transaction_coordinators),
            replicas.broker,
            resources.options.transactions,
        )
        finders = {COORDINATOR_TYPE_TRANSACTION: self.transactions.finder}
        self.groups = GroupService(context.time.now, self._shared(context, replicas.partitions.coordinators), finders)
        self.participants = ParticipantServices(
            context, replicas.partitions, self.access.absent, self.groups.transactions
        )
        self.logs = LogServices(
            context, replicas.partitions, self.access.absent, self.pipeline.throttle, self.participants
        )
        context.traffic.declare("enlist", self.transactions.enlist)
        context.traffic.declare("resolve_transactions", self.transactions.resolve)
        self.in_order = self.pipeline.services = self._in_order(context)
        assert self.in_order.kinds == FAILED_RESPONSES.keys(), "every kind of request is served and can fail"

    def _shared(
        self, context: MemberContext, coordinators: Mapping[int, ReplicaT]
    ) -> CoordinatorDependencies[ReplicaT]:
        """Returns what coordinators of one kind share with this node."""
        resources = context.resources
        return CoordinatorDependencies(
            resources.options,
            context.metadata.replica,
            coordinators,
            self.replicas.partitions,
            context.traffic.client,
            resources.host,
            context.rounds,
            resources.snapshots,
            resources.replies.reply,
            self.access.refusals,
        )

    def _in_order(self, context: MemberContext) -> NodeServices:
        """Returns the services in order. The order is part of a node's behaviour: a repeated simulation takes the
        same steps."""
        logs, cluster, replicas, access = self.logs, self.cluster, self.replicas, self.access
        return NodeServices(
            (
                context.traffic.client,
                replicas.broker,
                context.metadata,
                logs.produce,
                logs.fetches,
                logs.checkpoints,
                logs.retention,
                logs.compactions,
                logs.compaction_proposals,
                logs.record_deletions,
                logs.restores,
                logs.producers,
                logs.offset_requests,
                cluster.topics,
                access.admission,
                self.pipeline.throttle,
                access.sign_ins,
                access.token_sign_ins,
                cluster.acls,
                cluster.credentials,
                cluster.quotas,
                cluster.node_settings,
                replicas.elections,
                cluster.elections,
                replicas.reassignments,
                cluster.reads,
                context.image_age,
                cluster.queries,
                cluster.log_dirs,
                cluster.watches,
                cluster.producer_identities,
                cluster.quorum,
                cluster.cluster_changes,
                cluster.description,
                logs.producer_expiry,
                logs.deleted_producers,
                self.participants.partitions,
                # Before the coordinators: they decide in the same step what is enlisted on their own node.
                self.participants.service,
                self.groups,
                self.transactions,
                context.resources.scrub,
                replicas.damaged,
                access.audit,
            )
        )
