"""Client requests that the controller decides: the packing of each type, and the place of its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.v1 import acls_pb2, admin_pb2, credentials_pb2, node_settings_pb2, quotas_pb2
from quorumlog.v1.peer_pb2 import ControllerRequest, ControllerResponse

Pack: TypeAlias = Callable[[str, Any], ControllerRequest]
Unpack: TypeAlias = Callable[[ControllerResponse], ProtoMessage | None]


class Forwarding(NamedTuple):
    """Packing and unpacking of one type of request.

    Arguments:
        pack: puts the client's principal and its request into a request to the controller.
        unpack: returns the answer in the controller's response, or None if the response has no such answer.
    """

    pack: Pack
    unpack: Unpack


#: By the type of the client's request.
FORWARDINGS: dict[type[ProtoMessage], Forwarding] = {
    admin_pb2.CreateTopicsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, create_topics=body),
        lambda answer: answer.create_topics if answer.HasField("create_topics") else None,
    ),
    admin_pb2.DeleteTopicsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, delete_topics=body),
        lambda answer: answer.delete_topics if answer.HasField("delete_topics") else None,
    ),
    admin_pb2.CreatePartitionsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, create_partitions=body),
        lambda answer: answer.create_partitions if answer.HasField("create_partitions") else None,
    ),
    admin_pb2.AlterConfigsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_configs=body),
        lambda answer: answer.alter_configs if answer.HasField("alter_configs") else None,
    ),
    admin_pb2.ReassignPartitionsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, reassign_partitions=body),
        lambda answer: answer.reassign_partitions if answer.HasField("reassign_partitions") else None,
    ),
    admin_pb2.DeleteProducersRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, delete_producers=body),
        lambda answer: answer.delete_producers if answer.HasField("delete_producers") else None,
    ),
    admin_pb2.AlterQuorumRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_quorum=body),
        lambda answer: answer.alter_quorum if answer.HasField("alter_quorum") else None,
    ),
    admin_pb2.AlterNodeRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_node=body),
        lambda answer: answer.alter_node if answer.HasField("alter_node") else None,
    ),
    admin_pb2.UpgradeFeaturesRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, upgrade_features=body),
        lambda answer: answer.upgrade_features if answer.HasField("upgrade_features") else None,
    ),
    admin_pb2.RestoreProducerNamesRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, restore_producer_names=body),
        lambda answer: answer.restore_producer_names if answer.HasField("restore_producer_names") else None,
    ),
    admin_pb2.RebalancePartitionsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, rebalance_partitions=body),
        lambda answer: answer.rebalance_partitions if answer.HasField("rebalance_partitions") else None,
    ),
    acls_pb2.CreateAclsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, create_acls=body),
        lambda answer: answer.create_acls if answer.HasField("create_acls") else None,
    ),
    acls_pb2.DeleteAclsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, delete_acls=body),
        lambda answer: answer.delete_acls if answer.HasField("delete_acls") else None,
    ),
    credentials_pb2.AlterUserScramCredentialsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_user_scram_credentials=body),
        lambda response: (
            response.alter_user_scram_credentials if response.HasField("alter_user_scram_credentials") else None
        ),
    ),
    credentials_pb2.AlterRevocationsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_revocations=body),
        lambda answer: answer.alter_revocations if answer.HasField("alter_revocations") else None,
    ),
    quotas_pb2.AlterClientQuotasRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_client_quotas=body),
        lambda answer: answer.alter_client_quotas if answer.HasField("alter_client_quotas") else None,
    ),
    node_settings_pb2.AlterNodeSettingsRequest: Forwarding(
        lambda principal, body: ControllerRequest(principal=principal, alter_node_settings=body),
        lambda answer: answer.alter_node_settings if answer.HasField("alter_node_settings") else None,
    ),
}
