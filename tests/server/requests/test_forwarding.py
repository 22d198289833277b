"""Requests that the controller decides, each in a field of its own, and their answers."""

from __future__ import annotations

from itertools import chain
from typing import get_args

import pytest
from google.protobuf.message import Message

from quorumlog.server.requests.acl_requests import AclChange
from quorumlog.server.requests.cluster_changes import ClusterChange
from quorumlog.server.requests.credential_requests import CredentialChange
from quorumlog.server.requests.forwarding import FORWARDINGS
from quorumlog.server.requests.topics import TopicChange
from quorumlog.v1.node_settings_pb2 import AlterNodeSettingsRequest
from quorumlog.v1.peer_pb2 import ControllerResponse
from quorumlog.v1.quotas_pb2 import AlterClientQuotasRequest


def test_every_change_is_forwarded() -> None:
    changes = chain.from_iterable(map(get_args, (TopicChange, ClusterChange, AclChange, CredentialChange)))
    assert {*changes, AlterClientQuotasRequest, AlterNodeSettingsRequest} == set(FORWARDINGS)


@pytest.mark.parametrize("kind", FORWARDINGS)
def test_requests_and_answers_match(kind: type[Message]) -> None:
    """A request keeps its type and principal, and only an answer to it counts as one."""
    forwarding = FORWARDINGS[kind]
    request = forwarding.pack("User:ann", kind())
    field = request.WhichOneof("body")
    assert field is not None
    assert request.principal == "User:ann" and type(getattr(request, field)) is kind
    for other in ControllerResponse.DESCRIPTOR.oneofs_by_name["body"].fields:
        response = ControllerResponse()
        getattr(response, other.name).SetInParent()
        answer = forwarding.unpack(response)
        if other.name != field:
            assert answer is None
        else:
            assert answer is getattr(response, field)
            assert type(answer).__name__ == kind.__name__.replace("Request", "Response")
