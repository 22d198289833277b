"""The services that place, move, repair and remove this node's replicas as the metadata require."""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.replicas.broker import Broker
from quorumlog.server.replicas.damaged_replicas import DamagedReplicas
from quorumlog.server.replicas.leader_elections import LeaderElections
from quorumlog.server.replicas.leader_reports import LeaderReports
from quorumlog.server.replicas.log_sizes import LogSizes
from quorumlog.server.replicas.reassignments import Reassignments
from quorumlog.server.replicas.replica_factory import ReplicaFactory
from quorumlog.server.replicas.replica_removal import ReplicaRemoval
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.replicas.sole_copy_check import LastCopyCheck


class ReplicaServices:
    """The replicas of partitions and coordinators on this node, and the services that maintain them.

    Arguments:
        raft_groups: makes the Raft replicas.
        ended: called with a replica that this node no longer has.

    Attributes:
        partitions: the replicas.
        log_sizes: of the logs that are led here.
        reports: reports to the controller about the partitions that are led here.
    """

    def __init__(
        self, context: MemberContext, raft_groups: RaftGroupFactory, ended: Callable[[PartitionReplica], None]
    ) -> None:
        resources, metadata, controller = context.resources, context.metadata.replica, context.traffic.client
        options, host, log = resources.options, resources.host, resources.log.named("server.replicas")
        factory = ReplicaFactory(raft_groups, resources.snapshots.checkpoints, resources.former, metadata)
        self.partitions = Replicas(options.node_id, resources.directory_id, host, resources.former, factory, metadata)
        self.log_sizes = LogSizes(resources.storage, host, self.partitions)
        self.reports = LeaderReports(options, host, self.partitions, metadata, self.log_sizes)
        self.broker = Broker(options, resources.directory_id, resources.boot_id, controller, self.reports, metadata)
        self.damaged = DamagedReplicas(
            options.node_id,
            host,
            self.partitions,
            resources.former,
            metadata,
            resources.storage,
            resources.start_job,
            resources.links.enqueue,
            log,
        )
        self.elections = LeaderElections(options, host, resources.links, self.partitions, log, context.time.now)
        self.last_copy = LastCopyCheck(resources.storage, resources.mender, resources.start_job, log)
        self.reassignments = Reassignments(options, host, self.partitions, self.broker, controller, self.last_copy, log)
        self.endings = ReplicaRemoval(
            host, self.partitions, resources.snapshots, resources.former, ended, resources.forget_group, log
        )
        context.traffic.declare("elect_preferred_leaders", self.elections.order)
