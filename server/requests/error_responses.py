"""Failed responses: the response for each type of request that fails as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast, get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.groups.group_requests import GroupRequest, failed_call
from quorumlog.server.requests.acl_requests import AclRequest, failed_acls
from quorumlog.server.requests.active_producers import failed_producer_description
from quorumlog.server.requests.cluster_changes import ClusterChange, failed_cluster_change
from quorumlog.server.requests.cluster_watches import failed_watch
from quorumlog.server.requests.credential_requests import CredentialRequest, failed_credentials
from quorumlog.server.requests.delete_records import failed_deletion
from quorumlog.server.requests.elections import failed_elections
from quorumlog.server.requests.fetch import failed_fetch
from quorumlog.server.requests.list_offsets import failed_look_ups
from quorumlog.server.requests.log_dirs import failed_log_dir
from quorumlog.server.requests.metadata_queries import (
    failed_configs,
    failed_description,
    failed_producers,
    failed_reassignments,
)
from quorumlog.server.requests.node_settings import NodeSettingsRequest, failed_node_settings
from quorumlog.server.requests.partition_restores import failed_partition_description, failed_partition_restore
from quorumlog.server.requests.produce import failed_produce
from quorumlog.server.requests.producer_identities import failed_producer_id
from quorumlog.server.requests.quorum_requests import failed_quorum
from quorumlog.server.requests.quota_requests import QuotaRequest, failed_quotas
from quorumlog.server.requests.topics import TopicChange, failed_change
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_administration import OperatorRequest, failed_operator_request
from quorumlog.server.transactions.transaction_calls import TransactionRequest, failed_transaction
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2, sign_in_pb2, transaction_admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

RequestT = TypeVar("RequestT", bound=ProtoMessage)
#: Builds the response; None where the client awaits none.
Failed = Callable[[RequestT, errors_pb2.Error], ProtoMessage | None]


def _table() -> dict[type[ProtoMessage], Failed[ProtoMessage]]:
    table: dict[type[ProtoMessage], Failed[ProtoMessage]] = {}

    def declare(kind: type[RequestT], failed: Failed[RequestT]) -> None:
        table[kind] = cast("Failed[ProtoMessage]", failed)

    declare(data_plane_pb2.ProduceRequest, failed_produce)
    declare(data_plane_pb2.FetchRequest, failed_fetch)
    declare(data_plane_pb2.ListOffsetsRequest, failed_look_ups)
    declare(data_plane_pb2.MetadataRequest, failed_description)
    declare(data_plane_pb2.InitProducerIdRequest, failed_producer_id)
    declare(admin_pb2.DescribeConfigsRequest, failed_configs)
    declare(admin_pb2.ElectLeadersRequest, failed_elections)
    declare(admin_pb2.DeleteRecordsRequest, failed_deletion)
    declare(admin_pb2.DescribePartitionLogRequest, failed_partition_description)
    declare(admin_pb2.RestorePartitionRequest, failed_partition_restore)
    declare(transaction_admin_pb2.DescribeProducersRequest, failed_producer_description)
    declare(admin_pb2.ListReassignmentsRequest, failed_reassignments)
    declare(admin_pb2.ListProducersRequest, failed_producers)
    declare(admin_pb2.WatchClusterRequest, failed_watch)
    declare(admin_pb2.DescribeQuorumRequest, failed_quorum)
    declare(admin_pb2.DescribeNodeRequest, lambda request, problem: admin_pb2.DescribeNodeResponse(error=problem))
    declare(admin_pb2.DescribeLogDirRequest, failed_log_dir)
    declare(sign_in_pb2.BeginScramRequest, lambda request, problem: sign_in_pb2.BeginScramResponse(error=problem))
    declare(sign_in_pb2.FinishScramRequest, lambda request, problem: sign_in_pb2.FinishScramResponse(error=problem))
    declare(sign_in_pb2.SignInByTokenRequest, lambda request, problem: sign_in_pb2.SignInByTokenResponse(error=problem))
    for request in get_args(AclRequest):
        declare(request, failed_acls)
    for credential in get_args(CredentialRequest):
        declare(credential, failed_credentials)
    for quota in get_args(QuotaRequest):
        declare(quota, failed_quotas)
    for setting in get_args(NodeSettingsRequest):
        declare(setting, failed_node_settings)
    for change in get_args(TopicChange):
        declare(change, failed_change)
    for change_kind in get_args(ClusterChange):
        declare(change_kind, failed_cluster_change)
    for call in get_args(GroupRequest):
        declare(call, failed_call)
    for transaction in get_args(TransactionRequest):
        declare(transaction, failed_transaction)
    for operators in get_args(OperatorRequest):
        declare(operators, failed_operator_request)
    return table


#: By type of request. A node serves exactly these types.
FAILED_RESPONSES = _table()


def not_formed_response(message: ProtoMessage, reason: str) -> ProtoMessage | None:
    """Returns the response of a node that belongs to no cluster yet; None where the client awaits none."""
    problem = error(ErrorCode.CLUSTER_NOT_FORMED, f"{reason}; try again shortly")
    return FAILED_RESPONSES[type(message)](message, problem)
