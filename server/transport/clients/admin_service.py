"""Administration service: every call is one request to the node."""

from __future__ import annotations

import grpc

from quorumlog.server.observability.metrics import Meters
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.unary_calls import Handlers, unary_handler
from quorumlog.v1 import acls_pb2, admin_pb2, credentials_pb2, node_settings_pb2, quotas_pb2, transaction_admin_pb2

SERVICE = "quorumlog.v1.Admin"


def admin_handlers(requests: ClientRequests, meters: Meters) -> Handlers:
    """Returns the handlers for the gRPC server."""
    kinds = {
        "CreateTopics": admin_pb2.CreateTopicsRequest,
        "DeleteTopics": admin_pb2.DeleteTopicsRequest,
        "CreatePartitions": admin_pb2.CreatePartitionsRequest,
        "AlterConfigs": admin_pb2.AlterConfigsRequest,
        "DescribeConfigs": admin_pb2.DescribeConfigsRequest,
        "DeleteRecords": admin_pb2.DeleteRecordsRequest,
        "ReassignPartitions": admin_pb2.ReassignPartitionsRequest,
        "ListReassignments": admin_pb2.ListReassignmentsRequest,
        "ElectLeaders": admin_pb2.ElectLeadersRequest,
        "DescribeLogDir": admin_pb2.DescribeLogDirRequest,
        "WatchCluster": admin_pb2.WatchClusterRequest,
        "ListProducers": admin_pb2.ListProducersRequest,
        "DeleteProducers": admin_pb2.DeleteProducersRequest,
        "DescribeQuorum": admin_pb2.DescribeQuorumRequest,
        "AlterQuorum": admin_pb2.AlterQuorumRequest,
        "AlterNode": admin_pb2.AlterNodeRequest,
        "UpgradeFeatures": admin_pb2.UpgradeFeaturesRequest,
        "DescribePartitionLog": admin_pb2.DescribePartitionLogRequest,
        "RestorePartition": admin_pb2.RestorePartitionRequest,
        "RestoreProducerNames": admin_pb2.RestoreProducerNamesRequest,
        "RebalancePartitions": admin_pb2.RebalancePartitionsRequest,
        "CreateAcls": acls_pb2.CreateAclsRequest,
        "DescribeAcls": acls_pb2.DescribeAclsRequest,
        "DeleteAcls": acls_pb2.DeleteAclsRequest,
        "CheckAcls": acls_pb2.CheckAclsRequest,
        "AlterUserScramCredentials": credentials_pb2.AlterUserScramCredentialsRequest,
        "DescribeUserScramCredentials": credentials_pb2.DescribeUserScramCredentialsRequest,
        "AlterRevocations": credentials_pb2.AlterRevocationsRequest,
        "DescribeRevocations": credentials_pb2.DescribeRevocationsRequest,
        "AlterClientQuotas": quotas_pb2.AlterClientQuotasRequest,
        "DescribeClientQuotas": quotas_pb2.DescribeClientQuotasRequest,
        "AlterNodeSettings": node_settings_pb2.AlterNodeSettingsRequest,
        "DescribeNodeSettings": node_settings_pb2.DescribeNodeSettingsRequest,
        "DescribeNode": admin_pb2.DescribeNodeRequest,
        "ListTransactions": transaction_admin_pb2.ListTransactionsRequest,
        "DescribeTransaction": transaction_admin_pb2.DescribeTransactionRequest,
        "AbortTransaction": transaction_admin_pb2.AbortTransactionRequest,
        "HoldCommits": transaction_admin_pb2.HoldCommitsRequest,
        "DescribeProducers": transaction_admin_pb2.DescribeProducersRequest,
    }
    return grpc.method_handlers_generic_handler(
        SERVICE, {name: unary_handler(kind, requests, meters) for name, kind in kinds.items()}
    )
