"""Every RPC that a node serves declares the permissions that it requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from rights import RESTRICTED, holder

from quorumlog.server.access.audit_text import what_changes
from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.access.partial_denial import ItemChange
from quorumlog.server.access.permissions import PERMISSIONS, Permission, Scope, permission_of
from quorumlog.server.access.request_denial import refuse_forwarded
from quorumlog.server.controller.forwarded_requests import OWN_REQUESTS
from quorumlog.server.metadata.acl_rules import OPERATIONS
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.requests.error_responses import FAILED_RESPONSES
from quorumlog.server.step.request_context import node_principal
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2, peer_pb2, sign_in_pb2, transactions_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_IDEMPOTENT_WRITE

SERVED = (
    data_plane_pb2,
    groups_pb2,
    transactions_pb2,
    admin_pb2,
    sign_in_pb2,
    peer_pb2,
    health_pb2,
    reflection_pb2,
)
#: Operations that rows have no use for, and why.
ELSEWHERE = {ACL_OPERATION_IDEMPOTENT_WRITE: "one of two ways to an identity without a name"}


def rpcs() -> Iterator[tuple[str, type]]:
    """Yields the service and method, and the request message, of every RPC that a node serves."""
    for module in SERVED:
        descriptor: FileDescriptor = module.DESCRIPTOR
        for service in descriptor.services_by_name.values():
            for method in service.methods:
                yield f"{service.full_name}/{method.name}", method.input_type._concrete_class


def test_every_rpc_has_a_row_and_every_row_an_rpc() -> None:
    assert {name for name, _ in rpcs()} == set(PERMISSIONS)


def test_rows_name_the_message_of_their_rpc_if_the_node_steps_it() -> None:
    kinds = dict(rpcs())
    stepped = {name: row.request for name, row in PERMISSIONS.items() if row.request is not None}
    assert stepped == {name: kinds[name] for name in stepped}
    assert set(stepped.values()) == set(FAILED_RESPONSES)


def test_rows_ask_for_what_can_be_allowed() -> None:
    for name, row in PERMISSIONS.items():
        if row.scope in (Scope.OPEN, Scope.PEERS):
            assert row == Permission(row.scope, request=row.request), name
        else:
            assert row.kind is not None
            assert row.operation in OPERATIONS[row.kind], name


def test_whatever_can_be_allowed_is_asked_for_somewhere() -> None:
    requests = {(row.kind, row.operation) for row in PERMISSIONS.values()}
    unused = [
        (kind, operation)
        for kind, operations in OPERATIONS.items()
        for operation in operations
        if (kind, operation) not in requests and operation not in ELSEWHERE
    ]
    # Create on the cluster creates any topic.
    assert len(unused) == 1
    assert unused[0][0] == PERMISSIONS["quorumlog.v1.Admin/AlterNode"].kind


def test_nodes_health_and_sign_in_alone_ask_for_nothing() -> None:
    free = {name for name, row in PERMISSIONS.items() if row.scope in (Scope.OPEN, Scope.PEERS)}
    assert {name.partition("/")[0] for name in free} == {
        "quorumlog.v1.Peer",
        "quorumlog.v1.SignIn",
        "grpc.health.v1.Health",
    }


def test_what_nodes_pass_on_for_clients_has_a_row() -> None:
    bodies = {
        field.name: field.message_type._concrete_class
        for field in peer_pb2.ControllerRequest.DESCRIPTOR.oneofs_by_name["body"].fields
    }
    assert set(bodies) > OWN_REQUESTS
    for name in set(bodies) - OWN_REQUESTS - {"claim_producer"}:
        assert permission_of(bodies[name]).scope is Scope.WHOLE or bodies[name] in get_args(ItemChange), name


@pytest.mark.parametrize("name", sorted(name for name, row in PERMISSIONS.items() if row.is_change))
def test_every_change_can_be_told_of(name: str) -> None:
    kind = PERMISSIONS[name].request
    assert kind is not None
    assert isinstance(what_changes(kind(), MetadataImage()), list)


def test_a_node_may_have_its_own_disk_given_up_and_no_other() -> None:
    """A node may give up its own disk and no other: its certificate is its permission, and no ACL is needed."""
    authorizer = Authorizer(RESTRICTED, holder(MetadataImage()))
    request = admin_pb2.AlterNodeRequest(node_id=2, action=admin_pb2.NODE_ACTION_REPLACE_DISK)
    assert refuse_forwarded(authorizer, node_principal(2), request) is None
    for principal in (node_principal(3), "User:2", "User:Node:2"):
        assert refuse_forwarded(authorizer, principal, request) is not None, principal
    other = admin_pb2.AlterNodeRequest(node_id=2, action=admin_pb2.NODE_ACTION_DRAIN)
    assert refuse_forwarded(authorizer, node_principal(2), other) is not None
