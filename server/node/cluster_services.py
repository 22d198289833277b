"""The services for requests about the cluster as a whole: topics, ACLs, users, quotas, metadata, producer ids."""

from __future__ import annotations

from quorumlog.server.node.access_services import AccessServices
from quorumlog.server.node.description import NodeDescriptionRequests
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.replica_services import ReplicaServices
from quorumlog.server.requests.acl_requests import AclRequests
from quorumlog.server.requests.cluster_changes import ClusterChanges
from quorumlog.server.requests.cluster_watches import ClusterWatches
from quorumlog.server.requests.credential_requests import CredentialRequests
from quorumlog.server.requests.elections import ElectionRequests
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.log_dirs import LogDirRequests
from quorumlog.server.requests.metadata_queries import MetadataQueries
from quorumlog.server.requests.node_settings import NodeSettingsRequests
from quorumlog.server.requests.producer_identities import ProducerIdentities
from quorumlog.server.requests.quorum_requests import QuorumRequests
from quorumlog.server.requests.quota_requests import QuotaRequests
from quorumlog.server.requests.topics import TopicRequests


class ClusterServices:
    """Serves requests about the cluster, from this node's image or through the active controller.

    Attributes:
        reads: linearizable reads of the metadata.
        topics, acls, credentials, quotas, node_settings: changes, answered once this node's image contains them.
        queries: descriptions of the cluster and of topics.
        watches: clients that wait for changes of the cluster.
    """

    def __init__(self, context: MemberContext, access: AccessServices, replicas: ReplicaServices) -> None:
        resources, time, traffic = context.resources, context.time, context.traffic
        options, replies, links = resources.options, resources.replies, resources.links
        metadata, controller = context.metadata.replica, traffic.client
        partitions, refusals = replicas.partitions, access.refusals
        limit = options.limits.controller_requests
        self.reads = MetadataReads(options, metadata, controller, context.rounds)
        self.topics = TopicRequests(metadata, controller, self.reads, limit, replies, refusals)
        self.acls = AclRequests(metadata, controller, self.reads, limit, replies, refusals)
        self.credentials = CredentialRequests(metadata, controller, self.reads, limit, replies)
        self.quotas = QuotaRequests(metadata, controller, self.reads, limit, replies)
        self.node_settings = NodeSettingsRequests(options, metadata, controller, self.reads, replies)
        cluster_id = context.metadata.membership.cluster_id
        self.queries = MetadataQueries(
            cluster_id, metadata, context.image_age, partitions, self.reads, replies, refusals
        )
        self.log_dirs = LogDirRequests(options.data_dir, resources.space, partitions, replicas.log_sizes, replies)
        self.watches = ClusterWatches(
            resources.boot_id,
            time,
            metadata,
            self.queries,
            refusals.authorizer,
            partitions,
            replicas.log_sizes,
            replies,
        )
        self.producer_identities = ProducerIdentities(replicas.broker, controller, replies, refusals)
        self.quorum = QuorumRequests(options.node_id, time, metadata, controller, links, replies)
        self.cluster_changes = ClusterChanges(controller, replies)
        self.elections = ElectionRequests(partitions, controller, replies)
        self.description = NodeDescriptionRequests(resources, cluster_id, replicas)
        traffic.declare("describe_quorum", self.quorum.on_describe_quorum)
        traffic.declare("metadata_read_index", self.reads.serve)
