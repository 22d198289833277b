"""TxnOffsetCommit, and OffsetFetch of stable offsets: what the node is asked, and what clients are answered."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.codec.groups.commit_requests import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from quorumlog.server.kafka.codec.groups.committed_requests import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.v1 import data_plane_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from tests.support.kafka_steps import TOPIC_IDS, Served, serve

T, U = TOPIC_IDS["t"], TOPIC_IDS["u"]


def commit(*names: str, transactional_id: str = "billing") -> TxnOffsetCommitRequest:
    topics = [
        TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(0, 5, 3, "x")]) for name in names or ("t",)
    ]
    return TxnOffsetCommitRequest(transactional_id, "g", 7, 2, 4, "m", "static", topics)


def codes(served: Served) -> list[int]:
    return [each.error_code for topic in served.answer.topics for each in topic.partitions]


def test_offsets_are_committed_in_the_transaction() -> None:
    served = serve(commit(), 5, lambda question: groups_pb2.CommitOffsetsResponse(results=[{}]))  # type: ignore[list-item]
    (question,) = served.questions
    assert codes(served) == [0]
    assert (question.group_id, question.member_id, question.member_epoch) == ("g", "m", 4)
    assert (question.instance_id, question.transactional_id) == ("static", "billing")
    assert (question.producer.producer_id, question.producer.producer_epoch) == (7, 2)
    (row,) = question.offsets
    assert (row.topic_id, row.offset, row.leader_epoch, row.metadata) == (T, 5, 3, "x")


@pytest.mark.parametrize(
    ("code", "version", "answered"),
    [
        (ErrorCode.STALE_MEMBER_EPOCH, 5, KafkaError.ILLEGAL_GENERATION),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.SERVER_BUSY, 5, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 5, KafkaError.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, KafkaError.INVALID_TXN_STATE),
    ],
)
def test_clients_get_codes_that_they_expect(code: ErrorCode.ValueType, version: int, answered: KafkaError) -> None:
    problem = Error(code=code)
    whole = serve(commit(), version, lambda question: groups_pb2.CommitOffsetsResponse(error=problem))
    outcome = groups_pb2.PartitionOutcome(error=problem)
    one = serve(commit(), version, lambda question: groups_pb2.CommitOffsetsResponse(results=[outcome]))
    assert codes(whole) == codes(one) == [answered]


def test_topics_that_do_not_exist_are_refused() -> None:
    def reply(question: object) -> object:
        if isinstance(question, data_plane_pb2.MetadataRequest):
            missing = Error(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return data_plane_pb2.MetadataResponse(topics=[data_plane_pb2.TopicMetadata(name="none", error=missing)])
        return groups_pb2.CommitOffsetsResponse(results=[groups_pb2.PartitionOutcome()])

    assert codes(serve(commit("none", "t"), 3, reply)) == [KafkaError.UNKNOWN_TOPIC_OR_PARTITION, 0]  # type: ignore[arg-type]


def test_a_transaction_has_a_name() -> None:
    served = serve(commit(transactional_id=""), 3)
    assert codes(served) == [KafkaError.INVALID_REQUEST]
    assert not served.questions


def unstable(question: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse:
    """Partition 0 has a committed offset, partition 1 a pending one."""
    assert question.require_stable
    return groups_pb2.FetchOffsetsResponse(
        offsets=[groups_pb2.CommittedOffset(topic_id=T, topic="t", offset=5, leader_epoch=1)],
        unstable=[
            groups_pb2.PartitionOutcome(
                topic_id=T, topic="t", partition=1, error=Error(code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            )
        ],
    )


@pytest.mark.parametrize("all_topics", [False, True])
@pytest.mark.parametrize("version", [7, 8, 10])
def test_unstable_offsets_are_told(version: int, all_topics: bool) -> None:
    old = [OffsetFetchRequestTopic("t", [0, 1])]
    new = [OffsetFetchRequestTopics("t", T, [0, 1])]
    group = OffsetFetchRequestGroup("g", topics=None if all_topics else new)
    request = OffsetFetchRequest("g", None if all_topics else old, [group], require_stable=True)
    answer = serve(request, version, unstable).answer
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [
        (5, 0),
        (-1, KafkaError.UNSTABLE_OFFSET_COMMIT),
    ]
