"""Errors of nodes, mapped to those that Kafka clients expect for the request: Java and aiokafka consumers stop at an
error that no broker returns for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic
from quorumlog.server.kafka.codec.fetch_responses import PartitionData
from quorumlog.server.kafka.codec.groups.commit_requests import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quorumlog.server.kafka.codec.groups.membership_requests import (
    GroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers import commits, fetch, memberships
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches, FetchSessionSpace
from quorumlog.server.kafka.handlers.handler import KafkaCall, LongWork, Questions, Steps, TooMuchWorkError
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch

TOPIC_ID = b"\x05" * 16
GROUP = "readers"


class Cluster:
    """A cluster with one topic."""

    node_id = 1
    default_replicas = 3

    def topic_id(self, name: str) -> bytes | None:
        return TOPIC_ID if name == "t" else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return "t" if topic_id == TOPIC_ID else None

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        return {}

    def topic_names(self) -> Iterable[str]:
        return ("t",)

    def partition_count(self, name: str) -> int:
        return 1

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        return f"node-{node_id}", 9092


def answered(
    serve: Callable[[KafkaCall[Any]], Steps[Any]],
    message: KafkaMessage,
    version: int,
    *replies: ProtoMessage,
    fetches: ConnectionFetches | None = None,
    does_work: bool = True,
) -> Any:
    """Returns the response to a request whose questions get these replies.

    Arguments:
        does_work: long work is carried out; otherwise it is refused because too much is waiting.
    """
    steps = serve(KafkaCall(message, version, Cluster(), fetches=fetches))
    left = list(replies)
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, Questions):
                wanted = steps.send([left.pop(0)])
            elif isinstance(wanted, LongWork) and does_work:
                wanted = steps.send(wanted.work())
            else:
                wanted = steps.throw(TooMuchWorkError("busy"))
    except StopIteration as done:
        return done.value


def fetched(*codes: ErrorCode.ValueType, begins_session: bool = False) -> list[PartitionData]:
    """Returns the partitions of a fetch response when the node refuses each of them with one of these codes."""
    partitions = [FetchPartition(number, -1, 7, partition_max_bytes=1) for number in range(len(codes))]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_epoch=0 if begins_session else -1,
        topics=[FetchTopic("t", partitions=partitions)],
    )
    reply = data_plane_pb2.FetchResponse()
    for number, code in enumerate(codes):
        reply.results.add(topic_id=TOPIC_ID, partition=number, error=error(code, "refused"))
    fetches = ConnectionFetches(FetchSessionSpace()) if begins_session else None
    (topic,) = answered(fetch.fetch, request, 12, reply, fetches=fetches).responses
    return list(topic.partitions)


@pytest.mark.parametrize("begins_session", [False, True], ids=["without a session", "in a session"])
def test_a_leader_that_is_not_ready_is_to_a_consumer_as_one_that_leads_no_more(begins_session: bool) -> None:
    reported = fetched(
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.CLUSTER_NOT_FORMED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        begins_session=begins_session,
    )
    assert [each.error_code for each in reported] == [
        KafkaError.NOT_LEADER_OR_FOLLOWER,
        KafkaError.NOT_LEADER_OR_FOLLOWER,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ]
    assert [each.current_leader for each in reported] == [None] * 3


def test_a_topic_of_which_a_node_knows_nothing_yet_is_led_elsewhere() -> None:
    request = FetchRequest(topics=[FetchTopic("new", partitions=[FetchPartition(0, -1, 7, partition_max_bytes=1)])])
    (topic,) = answered(fetch.fetch, request, 12, data_plane_pb2.MetadataResponse()).responses
    assert [each.error_code for each in topic.partitions] == [KafkaError.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("begins_session", [False, True], ids=["without a session", "in a session"])
def test_what_cannot_be_translated_now_is_nothing_and_a_pause(begins_session: bool) -> None:
    entry = build_batch(b"arrow", record_count=1, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0)
    partitions = [FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_epoch=0 if begins_session else -1,
        topics=[FetchTopic("t", partitions=partitions)],
    )
    result = data_plane_pb2.FetchResult(topic_id=TOPIC_ID, partition=0, high_watermark=1, entries=[entry])
    fetches = ConnectionFetches(FetchSessionSpace())
    answer = answered(
        fetch.fetch, request, 12, data_plane_pb2.FetchResponse(results=[result]), fetches=fetches, does_work=False
    )
    (reported,) = answer.responses[0].partitions
    assert (reported.error_code, reported.records, reported.high_watermark) == (KafkaError.NONE, b"", 1)
    assert answer.throttle_time_ms > 0
    if begins_session:
        session = fetches.find(answer.session_id)
        assert session is not None
        (kept,) = session.due
        assert kept.known is not None
        assert kept.known.fetch_offset > kept.wish.fetch_offset, "the node is asked to send it again"


BUSY = error(ErrorCode.SERVER_BUSY, "busy")
LATE = error(ErrorCode.REQUEST_TIMED_OUT, "late", definite=False)


def test_a_busy_coordinator_has_who_syncs_join_again_and_a_heartbeat_has_nothing_to_tell() -> None:
    beat = GroupHeartbeatRequest(GROUP, 1, "m")
    beaten = answered(memberships.heartbeat, beat, 4, groups_pb2.ClassicHeartbeatResponse(error=BUSY))
    assert beaten.error_code == KafkaError.NONE
    sync = answered(
        memberships.sync, SyncGroupRequest(GROUP, 1, "m"), 5, groups_pb2.SyncClassicGroupResponse(error=BUSY)
    )
    assert sync.error_code == KafkaError.REBALANCE_IN_PROGRESS
    join = answered(
        memberships.join, JoinGroupRequest(GROUP, 1, 1, "m"), 9, groups_pb2.JoinClassicGroupResponse(error=BUSY)
    )
    assert join.error_code == KafkaError.COORDINATOR_LOAD_IN_PROGRESS


def test_a_coordinator_that_cannot_do_it_in_time_is_looked_for_again() -> None:
    answers = [
        answered(serve, message, version, reply).error_code
        for serve, message, version, reply in (
            (memberships.join, JoinGroupRequest(GROUP), 9, groups_pb2.JoinClassicGroupResponse(error=LATE)),
            (memberships.sync, SyncGroupRequest(GROUP), 5, groups_pb2.SyncClassicGroupResponse(error=LATE)),
            (memberships.heartbeat, GroupHeartbeatRequest(GROUP), 4, groups_pb2.ClassicHeartbeatResponse(error=LATE)),
            (memberships.leave, LeaveGroupRequest(GROUP), 5, groups_pb2.LeaveClassicGroupResponse(error=LATE)),
        )
    ]
    assert answers == [KafkaError.COORDINATOR_NOT_AVAILABLE] * 4
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 2)])]
    commit = OffsetCommitRequest(GROUP, 1, "m", topics=topics)
    committed = answered(commits.commit, commit, 8, groups_pb2.CommitOffsetsResponse(error=LATE))
    assert committed.topics[0].partitions[0].error_code == KafkaError.COORDINATOR_NOT_AVAILABLE
