"""Kafka's messages: all APIs that can be read and written.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.kafka.codec.administration.acl_requests import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from quorumlog.server.kafka.codec.administration.acl_responses import (
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
)
from quorumlog.server.kafka.codec.administration.log_dir_requests import DescribeLogDirsRequest
from quorumlog.server.kafka.codec.administration.log_dir_responses import DescribeLogDirsResponse
from quorumlog.server.kafka.codec.administration.placement_requests import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quorumlog.server.kafka.codec.administration.placement_responses import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from quorumlog.server.kafka.codec.administration.quorum_requests import DescribeQuorumRequest
from quorumlog.server.kafka.codec.administration.quorum_responses import DescribeQuorumResponse
from quorumlog.server.kafka.codec.administration.quota_requests import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from quorumlog.server.kafka.codec.administration.quota_responses import (
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
)
from quorumlog.server.kafka.codec.administration.transaction_requests import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from quorumlog.server.kafka.codec.administration.transaction_responses import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from quorumlog.server.kafka.codec.administration.user_requests import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from quorumlog.server.kafka.codec.administration.user_responses import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from quorumlog.server.kafka.codec.config_requests import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from quorumlog.server.kafka.codec.config_responses import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.groups.commit_requests import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from quorumlog.server.kafka.codec.groups.commit_responses import (
    OffsetCommitResponse,
    OffsetDeleteResponse,
    TxnOffsetCommitResponse,
)
from quorumlog.server.kafka.codec.groups.committed_requests import OffsetFetchRequest
from quorumlog.server.kafka.codec.groups.committed_responses import OffsetFetchResponse
from quorumlog.server.kafka.codec.groups.consumer_group_requests import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from quorumlog.server.kafka.codec.groups.consumer_group_responses import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
)
from quorumlog.server.kafka.codec.groups.group_requests import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from quorumlog.server.kafka.codec.groups.group_responses import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from quorumlog.server.kafka.codec.groups.membership_requests import (
    FindCoordinatorRequest,
    GroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quorumlog.server.kafka.codec.groups.membership_responses import (
    FindCoordinatorResponse,
    GroupHeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from quorumlog.server.kafka.codec.metadata_requests import DescribeClusterRequest, MetadataRequest
from quorumlog.server.kafka.codec.metadata_responses import DescribeClusterResponse, MetadataResponse
from quorumlog.server.kafka.codec.position_requests import ListOffsetsRequest, OffsetForLeaderEpochRequest
from quorumlog.server.kafka.codec.position_responses import ListOffsetsResponse, OffsetForLeaderEpochResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest, ProduceRequest
from quorumlog.server.kafka.codec.produce_responses import InitProducerIdResponse, ProduceResponse
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.codec.sasl_responses import SaslAuthenticateResponse, SaslHandshakeResponse
from quorumlog.server.kafka.codec.topic_partition_requests import DescribeTopicPartitionsRequest
from quorumlog.server.kafka.codec.topic_partition_responses import DescribeTopicPartitionsResponse
from quorumlog.server.kafka.codec.topic_requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from quorumlog.server.kafka.codec.topic_responses import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
)
from quorumlog.server.kafka.codec.transaction_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from quorumlog.server.kafka.codec.transaction_responses import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
)
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.codec.version_responses import ApiVersionsResponse


class Api(NamedTuple):
    """An API: what it is called, and its two messages."""

    name: str
    request: type[KafkaMessage]
    response: type[KafkaMessage]


#: By their keys.
APIS: dict[int, Api] = {
    0: Api("Produce", ProduceRequest, ProduceResponse),
    1: Api("Fetch", FetchRequest, FetchResponse),
    2: Api("ListOffsets", ListOffsetsRequest, ListOffsetsResponse),
    3: Api("Metadata", MetadataRequest, MetadataResponse),
    8: Api("OffsetCommit", OffsetCommitRequest, OffsetCommitResponse),
    9: Api("OffsetFetch", OffsetFetchRequest, OffsetFetchResponse),
    10: Api("FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse),
    11: Api("JoinGroup", JoinGroupRequest, JoinGroupResponse),
    12: Api("Heartbeat", GroupHeartbeatRequest, GroupHeartbeatResponse),
    13: Api("LeaveGroup", LeaveGroupRequest, LeaveGroupResponse),
    14: Api("SyncGroup", SyncGroupRequest, SyncGroupResponse),
    15: Api("DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse),
    16: Api("ListGroups", ListGroupsRequest, ListGroupsResponse),
    17: Api("SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse),
    18: Api("ApiVersions", ApiVersionsRequest, ApiVersionsResponse),
    19: Api("CreateTopics", CreateTopicsRequest, CreateTopicsResponse),
    20: Api("DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse),
    21: Api("DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse),
    22: Api("InitProducerId", InitProducerIdRequest, InitProducerIdResponse),
    23: Api("OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    24: Api("AddPartitionsToTxn", AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    25: Api("AddOffsetsToTxn", AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    26: Api("EndTxn", EndTxnRequest, EndTxnResponse),
    28: Api("TxnOffsetCommit", TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    29: Api("DescribeAcls", DescribeAclsRequest, DescribeAclsResponse),
    30: Api("CreateAcls", CreateAclsRequest, CreateAclsResponse),
    31: Api("DeleteAcls", DeleteAclsRequest, DeleteAclsResponse),
    32: Api("DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse),
    33: Api("AlterConfigs", AlterConfigsRequest, AlterConfigsResponse),
    35: Api("DescribeLogDirs", DescribeLogDirsRequest, DescribeLogDirsResponse),
    36: Api("SaslAuthenticate", SaslAuthenticateRequest, SaslAuthenticateResponse),
    37: Api("CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse),
    42: Api("DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse),
    43: Api("ElectLeaders", ElectLeadersRequest, ElectLeadersResponse),
    44: Api("IncrementalAlterConfigs", IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    45: Api("AlterPartitionReassignments", AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    46: Api("ListPartitionReassignments", ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    47: Api("OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse),
    48: Api("DescribeClientQuotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    49: Api("AlterClientQuotas", AlterClientQuotasRequest, AlterClientQuotasResponse),
    50: Api("DescribeUserScramCredentials", DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    51: Api("AlterUserScramCredentials", AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    55: Api("DescribeQuorum", DescribeQuorumRequest, DescribeQuorumResponse),
    60: Api("DescribeCluster", DescribeClusterRequest, DescribeClusterResponse),
    61: Api("DescribeProducers", DescribeProducersRequest, DescribeProducersResponse),
    65: Api("DescribeTransactions", DescribeTransactionsRequest, DescribeTransactionsResponse),
    66: Api("ListTransactions", ListTransactionsRequest, ListTransactionsResponse),
    68: Api("ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    69: Api("ConsumerGroupDescribe", ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    74: Api("ListConfigResources", ListConfigResourcesRequest, ListConfigResourcesResponse),
    75: Api("DescribeTopicPartitions", DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
}
