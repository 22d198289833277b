"""What clients hear from a node that does not belong to a cluster yet."""

from __future__ import annotations

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.server.coordinator.group_requests import GroupRequest, failed_call
from quorumlog.server.requests.topics import TopicChange, failed_change
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def unformed_response(message: ProtoMessage, reason: str) -> ProtoMessage | None:
    """The answer to a client of a node that belongs to no cluster yet; None where none is awaited."""
    problem = error(ErrorCode.CLUSTER_NOT_FORMED, f"{reason}; try again shortly")
    if isinstance(message, data_plane_pb2.ProduceRequest):
        response = data_plane_pb2.ProduceResponse(correlation_id=message.correlation_id)
        for batch in message.batches:
            response.results.add(topic_id=batch.topic_id, partition=batch.partition, error=problem, base_offset=-1)
        return response if message.acks else None
    if isinstance(message, data_plane_pb2.FetchRequest):
        fetched = data_plane_pb2.FetchResponse(correlation_id=message.correlation_id)
        for wanted in message.partitions:
            fetched.results.add(topic_id=wanted.topic_id, partition=wanted.partition, error=problem)
        return fetched
    if isinstance(message, data_plane_pb2.ListOffsetsRequest):
        listed = data_plane_pb2.ListOffsetsResponse()
        for partition in message.partitions:
            listed.results.add(topic_id=partition.topic_id, partition=partition.partition, error=problem, offset=-1)
        return listed
    if isinstance(message, TopicChange):
        return failed_change(message, problem)
    if isinstance(message, admin_pb2.DescribeConfigsRequest):
        configs = admin_pb2.DescribeConfigsResponse()
        for name in message.names:
            configs.results.add(name=name, error=problem)
        return configs
    if isinstance(message, admin_pb2.ElectLeadersRequest):
        elected = admin_pb2.ElectLeadersResponse()
        for named in message.partitions:
            elected.results.add(topic=named.topic, partition=named.partition, error=problem)
        return elected
    if isinstance(message, admin_pb2.DeleteRecordsRequest):
        deleted = admin_pb2.DeleteRecordsResponse()
        for emptied in message.partitions:
            deleted.results.add(
                topic_id=emptied.topic_id, partition=emptied.partition, error=problem, log_start_offset=-1
            )
        return deleted
    if isinstance(message, data_plane_pb2.InitProducerIdRequest):
        return data_plane_pb2.InitProducerIdResponse(error=problem, producer_id=-1, producer_epoch=-1)
    if isinstance(message, admin_pb2.ListReassignmentsRequest):
        return admin_pb2.ListReassignmentsResponse(error=problem)
    if isinstance(message, admin_pb2.ListProducersRequest):
        return admin_pb2.ListProducersResponse(error=problem)
    if isinstance(message, admin_pb2.DescribeQuorumRequest):
        return admin_pb2.DescribeQuorumResponse(error=problem, leader_id=NO_NODE)
    if isinstance(message, GroupRequest):
        return failed_call(message, problem)
    assert isinstance(message, data_plane_pb2.MetadataRequest)
    return data_plane_pb2.MetadataResponse(controller_id=NO_NODE, error=problem if message.linearizable else None)
