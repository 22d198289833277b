"""Table of the supported APIs: the function that serves each, and the highest version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from quorumlog.server.kafka.codec.administration.acl_requests import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from quorumlog.server.kafka.codec.administration.log_dir_requests import DescribeLogDirsRequest
from quorumlog.server.kafka.codec.administration.placement_requests import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quorumlog.server.kafka.codec.administration.quorum_requests import DescribeQuorumRequest
from quorumlog.server.kafka.codec.administration.quota_requests import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from quorumlog.server.kafka.codec.administration.transaction_requests import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from quorumlog.server.kafka.codec.administration.user_requests import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from quorumlog.server.kafka.codec.config_requests import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.groups.commit_requests import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from quorumlog.server.kafka.codec.groups.committed_requests import OffsetFetchRequest
from quorumlog.server.kafka.codec.groups.consumer_group_requests import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from quorumlog.server.kafka.codec.groups.group_requests import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from quorumlog.server.kafka.codec.groups.membership_requests import (
    FindCoordinatorRequest,
    GroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quorumlog.server.kafka.codec.metadata_requests import DescribeClusterRequest, MetadataRequest
from quorumlog.server.kafka.codec.position_requests import ListOffsetsRequest, OffsetForLeaderEpochRequest
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest, ProduceRequest
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.codec.topic_partition_requests import DescribeTopicPartitionsRequest
from quorumlog.server.kafka.codec.topic_requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from quorumlog.server.kafka.codec.transaction_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from quorumlog.server.kafka.handlers import (
    acls,
    administration,
    cluster,
    commits,
    consumer_groups,
    epochs,
    fetch,
    groups,
    memberships,
    offsets,
    placement,
    produce,
    quotas,
    sign_in,
    topic_pages,
    topics,
    transaction_views,
    transactions,
    users,
)
from quorumlog.server.kafka.handlers.configs import topic_configs
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps
from quorumlog.server.kafka.version_table import VersionTable
from quorumlog.server.metadata.records import FIRST_FEATURE_LEVEL

#: Function that serves a request. The request's type is that of its key in the table.
_Serve = Callable[[KafkaCall[Any]], Steps[KafkaMessage | None]]


class ServedApi(NamedTuple):
    """A supported API.

    Arguments:
        highest: the last version of which all fields are honoured; None: the last that the codec can read.
        blocks_pipeline: no later request of the connection is started before this one is answered.
    """

    serve: _Serve
    highest: int | None = None
    blocks_pipeline: bool = False


#: By API key.
SERVED: dict[int, ServedApi] = {
    ProduceRequest.API_KEY: ServedApi(produce.produce),
    # Responses may be as large as a connection allows, and clients have one such request in flight.
    FetchRequest.API_KEY: ServedApi(fetch.fetch, blocks_pipeline=True),
    ListOffsetsRequest.API_KEY: ServedApi(offsets.list_offsets),
    OffsetForLeaderEpochRequest.API_KEY: ServedApi(epochs.find_epoch_ends),
    MetadataRequest.API_KEY: ServedApi(cluster.describe_topics),
    InitProducerIdRequest.API_KEY: ServedApi(produce.init_producer_id),
    DescribeClusterRequest.API_KEY: ServedApi(cluster.describe_nodes),
    FindCoordinatorRequest.API_KEY: ServedApi(memberships.find_coordinators),
    JoinGroupRequest.API_KEY: ServedApi(memberships.join),
    SyncGroupRequest.API_KEY: ServedApi(memberships.sync),
    GroupHeartbeatRequest.API_KEY: ServedApi(memberships.heartbeat),
    LeaveGroupRequest.API_KEY: ServedApi(memberships.leave),
    ConsumerGroupHeartbeatRequest.API_KEY: ServedApi(consumer_groups.heartbeat),
    ConsumerGroupDescribeRequest.API_KEY: ServedApi(consumer_groups.describe),
    OffsetCommitRequest.API_KEY: ServedApi(commits.commit),
    OffsetFetchRequest.API_KEY: ServedApi(commits.fetch_committed),
    OffsetDeleteRequest.API_KEY: ServedApi(commits.delete_committed),
    ListGroupsRequest.API_KEY: ServedApi(groups.list_groups),
    DescribeGroupsRequest.API_KEY: ServedApi(groups.describe_groups),
    DeleteGroupsRequest.API_KEY: ServedApi(groups.delete_groups),
    AddPartitionsToTxnRequest.API_KEY: ServedApi(transactions.add_partitions),
    AddOffsetsToTxnRequest.API_KEY: ServedApi(transactions.add_offsets),
    EndTxnRequest.API_KEY: ServedApi(transactions.end),
    TxnOffsetCommitRequest.API_KEY: ServedApi(commits.txn_offset_commit),
    DescribeProducersRequest.API_KEY: ServedApi(transaction_views.describe_producers),
    DescribeTransactionsRequest.API_KEY: ServedApi(transaction_views.describe_transactions),
    ListTransactionsRequest.API_KEY: ServedApi(transaction_views.list_transactions),
    CreateTopicsRequest.API_KEY: ServedApi(topics.create_topics),
    DeleteTopicsRequest.API_KEY: ServedApi(topics.delete_topics),
    CreatePartitionsRequest.API_KEY: ServedApi(topics.create_partitions),
    DeleteRecordsRequest.API_KEY: ServedApi(topics.delete_records),
    DescribeConfigsRequest.API_KEY: ServedApi(topic_configs.describe_configs),
    AlterConfigsRequest.API_KEY: ServedApi(topic_configs.alter_configs),
    IncrementalAlterConfigsRequest.API_KEY: ServedApi(topic_configs.alter_configs_incrementally),
    ListConfigResourcesRequest.API_KEY: ServedApi(topic_configs.list_config_resources),
    DescribeTopicPartitionsRequest.API_KEY: ServedApi(topic_pages.describe_topic_partitions),
    ElectLeadersRequest.API_KEY: ServedApi(placement.elect_leaders),
    AlterPartitionReassignmentsRequest.API_KEY: ServedApi(placement.alter_reassignments),
    ListPartitionReassignmentsRequest.API_KEY: ServedApi(placement.list_reassignments),
    DescribeLogDirsRequest.API_KEY: ServedApi(administration.describe_log_dirs),
    DescribeQuorumRequest.API_KEY: ServedApi(administration.describe_quorum),
    DescribeAclsRequest.API_KEY: ServedApi(acls.describe_acls),
    CreateAclsRequest.API_KEY: ServedApi(acls.create_acls),
    DeleteAclsRequest.API_KEY: ServedApi(acls.delete_acls),
    DescribeUserScramCredentialsRequest.API_KEY: ServedApi(users.describe_users),
    AlterUserScramCredentialsRequest.API_KEY: ServedApi(users.alter_users),
    DescribeClientQuotasRequest.API_KEY: ServedApi(quotas.describe_quotas),
    AlterClientQuotasRequest.API_KEY: ServedApi(quotas.alter_quotas),
    # Later requests may depend on the outcome of authentication.
    SaslHandshakeRequest.API_KEY: ServedApi(sign_in.shake_hands, blocks_pipeline=True),
    SaslAuthenticateRequest.API_KEY: ServedApi(sign_in.authenticate, blocks_pipeline=True),
}
_OF_SIGN_IN = (SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY)


def served_versions(
    *, asks_to_sign_in: bool = False, feature_level: Callable[[], int] = lambda: FIRST_FEATURE_LEVEL
) -> VersionTable:
    """Returns the supported APIs with their versions.

    Arguments:
        asks_to_sign_in: include the APIs for authentication.
        feature_level: returns the current feature level of the cluster.
    """
    wanted = [key for key in SERVED if asks_to_sign_in or key not in _OF_SIGN_IN]
    cut = {key: served.highest for key, served in SERVED.items() if served.highest is not None and key in wanted}
    return VersionTable(wanted, cut, feature_level)
