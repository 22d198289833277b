"""A node that belongs to no cluster yet answers every request, and reports that."""

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from quorumlog.server.requests.error_responses import not_formed_response
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2

METHODS: list[MethodDescriptor] = [
    method
    for file in (admin_pb2, data_plane_pb2, groups_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name != "DescribeNode"
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_request_is_answered_by_its_kind_of_answer(method: MethodDescriptor) -> None:
    request = GetMessageClass(method.input_type)()
    if "acks" in method.input_type.fields_by_name:
        request.acks = -1
    answer = not_formed_response(request, "waiting for controllers 2, 3")
    assert answer is not None
    assert method.output_type == answer.DESCRIPTOR


def test_what_fails_as_a_whole_says_what_the_node_waits_for() -> None:
    for request in (
        groups_pb2.GroupHeartbeatRequest(correlation_id=4),
        groups_pb2.FindCoordinatorsRequest(),
    ):
        answer = not_formed_response(request, "waiting for controllers 2, 3")
        assert answer.error.message == "waiting for controllers 2, 3; try again shortly"  # type: ignore[union-attr]
        assert answer.error.retriable  # type: ignore[union-attr]
