"""Versions from which the mapping of an API differs: one request below each limit, and one at it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quorumlog.server.kafka import handlers as mapping
from quorumlog.server.kafka.codec import (
    config_requests,
    fetch_requests,
    metadata_requests,
    produce_requests,
    topic_requests,
    transaction_requests,
)
from quorumlog.server.kafka.codec.administration import placement_requests
from quorumlog.server.kafka.codec.groups import (
    commit_requests,
    committed_requests,
    consumer_group_requests,
    group_requests,
    membership_requests,
)
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches, FetchSessionSpace
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode, LeaderHint
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry
from tests.support.kafka_steps import TOPIC_IDS, Reply, Served, refuse_all, serve

T, U = TOPIC_IDS["t"], TOPIC_IDS["u"]
NOWHERE = b"\x07" * 16
ROWS: list[Any] = [(b"key", b"value" * 50, 1_700_000_000_000, [])]
_COMPARED = re.compile(r"call\.version (?:<=|>=|<|>|==) (\w+)")


class Limit(NamedTuple):
    """A version from which on something is different.

    Arguments:
        version: the first one.
        message: names a topic differently by name and by id, so that one sees which of them counts.
        observe: what is different.
        below, at: what that is before the version, and from it on.
        reply: of the node.
    """

    version: int
    message: KafkaMessage
    observe: Callable[[Served], object]
    below: object
    at: object
    reply: Reply = refuse_all


def fetch_of(topic_id: bytes = U, session_epoch: int = -1) -> KafkaMessage:
    partition = fetch_requests.FetchPartition(0, -1, 5, partition_max_bytes=1_000)
    topic = fetch_requests.FetchTopic("t", topic_id, [partition])
    return fetch_requests.FetchRequest(min_bytes=1, session_epoch=session_epoch, topics=[topic])


def fetched(**said: Any) -> Reply:
    """Returns the reply of a node that has the same result for each partition."""

    def reply(question: Any) -> data_plane_pb2.FetchResponse:
        results = [
            data_plane_pb2.FetchResult(topic_id=each.topic_id, partition=each.partition, **said)
            for each in question.partitions
        ]
        return data_plane_pb2.FetchResponse(results=results)

    return reply


def two_nodes(question: Any) -> admin_pb2.DescribeNodeResponse | data_plane_pb2.MetadataResponse:
    """The reply of a node that may be described, in a cluster of two."""
    if isinstance(question, admin_pb2.DescribeNodeRequest):
        return admin_pb2.DescribeNodeResponse()
    return data_plane_pb2.MetadataResponse(brokers=[data_plane_pb2.BrokerMetadata(node_id=number) for number in (1, 2)])


def first_fetched(came: Served) -> Any:
    return came.answer.responses[0].partitions[0]


def codec_of(came: Served) -> KafkaCodec:
    return KafkaCodec(first_fetched(came).records[22] & 7)


def refuse_with(kind: Callable[..., Any], code: ErrorCode.ValueType) -> Reply:
    return lambda question: kind(error=Error(code=code, message="why"))


def produce_both(records: bytes) -> KafkaMessage:
    data = produce_requests.PartitionProduceData(0, records)
    return produce_requests.ProduceRequest(None, -1, 1_000, [produce_requests.TopicProduceData("t", U, [data])])


def produced(
    question: Any, code: ErrorCode.ValueType = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
) -> data_plane_pb2.ProduceResponse:
    error = Error(code=code)
    results = [
        data_plane_pb2.ProduceResult(topic_id=each.topic_id, partition=each.partition, error=error)
        for each in question.batches
    ]
    return data_plane_pb2.ProduceResponse(results=results)


def produce_nowhere() -> KafkaMessage:
    data = produce_requests.PartitionProduceData(0, kafka_batch(ROWS))
    return produce_requests.ProduceRequest(None, -1, 1_000, [produce_requests.TopicProduceData("t", NOWHERE, [data])])


def commit_of() -> KafkaMessage:
    partition = commit_requests.OffsetCommitRequestPartition(0, 5, -1, "")
    topic = commit_requests.OffsetCommitRequestTopic("t", U, [partition])
    return commit_requests.OffsetCommitRequest("g", 3, "m", None, -1, [topic])


def txn_commit_of() -> KafkaMessage:
    partition = commit_requests.TxnOffsetCommitRequestPartition(0, 5, -1, "")
    topic = commit_requests.TxnOffsetCommitRequestTopic("t", [partition])
    return commit_requests.TxnOffsetCommitRequest("writer", "g", 7, 1, topics=[topic])


def txn_errors(came: Served) -> list[int]:
    return [each.error_code for topic in came.answer.topics for each in topic.partitions]


def committed_of(topics: list[Any] | None = None) -> KafkaMessage:
    """Returns an OffsetFetch request for two groups, one of them in the fields used before version 8."""
    old = [committed_requests.OffsetFetchRequestTopic("t", [0])] if topics is None else topics
    new = committed_requests.OffsetFetchRequestTopics("t", U, [0])
    group = committed_requests.OffsetFetchRequestGroup("many", topics=[new])
    return committed_requests.OffsetFetchRequest("one", old, [group])


def group_errors(came: Served) -> tuple[int, list[int]]:
    """Returns the error of a group's committed offsets, and those of its partitions."""
    codes = [each.error_code for topic in came.answer.topics for each in topic.partitions]
    return came.answer.error_code, codes


def heartbeat_without_id() -> KafkaMessage:
    return consumer_group_requests.ConsumerGroupHeartbeatRequest(
        "g", "", 0, rebalance_timeout_ms=5_000, subscribed_topic_names=["t"], topic_partitions=[]
    )


def deletion() -> KafkaMessage:
    return topic_requests.DeleteTopicsRequest([topic_requests.DeleteTopicState(None, U)], ["t"], 1_000)


def creation() -> KafkaMessage:
    return topic_requests.CreateTopicsRequest([topic_requests.CreatableTopic("new", 1, 1)], 1_000)


def created(question: Any) -> Any:
    if isinstance(question, admin_pb2.CreateTopicsRequest):
        return admin_pb2.CreateTopicsResponse(results=[admin_pb2.CreateTopicResult(name="new", topic_id=NOWHERE)])
    return data_plane_pb2.MetadataResponse() if isinstance(question, data_plane_pb2.MetadataRequest) else None


def described_nowhere(question: Any) -> Any:
    error = Error(code=ErrorCode.GROUP_ID_NOT_FOUND)
    return groups_pb2.DescribeGroupsResponse(groups=[groups_pb2.GroupDescription(group_id="g", error=error)])


ABORTABLE = refuse_with(groups_pb2.CommitOffsetsResponse, ErrorCode.TRANSACTION_ABORTABLE)
LOADING = refuse_with(groups_pb2.FetchOffsetsResponse, ErrorCode.SERVER_BUSY)
JOIN = membership_requests.JoinGroupRequest("g", 1_000, 1_000, "m", None, "consumer")
LEAVE = membership_requests.LeaveGroupRequest("g", "old", [membership_requests.MemberIdentity("new")])
BUSY_FETCH = Error(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderHint(node_id=2, leader_epoch=7))
ZSTD = stored_kafka_entry(kafka_batch(ROWS * 100, KafkaCodec.ZSTD), 5)
GONE = KafkaError.UNKNOWN_TOPIC_OR_PARTITION, KafkaError.UNKNOWN_TOPIC_ID

#: By module and constant, followed by the case if a constant limits several things.
LIMITS: dict[str, Limit] = {
    "cluster._NONE_MEANS_ALL": Limit(
        1, metadata_requests.MetadataRequest([]), lambda came: came.questions[0].all_topics, True, False
    ),
    "cluster._LEAVES_NAME_OUT": Limit(
        12,
        metadata_requests.MetadataRequest([metadata_requests.MetadataRequestTopic(NOWHERE, None)]),
        lambda came: came.answer.topics[0].name,
        "",
        None,
        lambda question: data_plane_pb2.MetadataResponse(),
    ),
    "commits._ERROR_OF_GROUP": Limit(2, committed_of(), group_errors, (0, [14]), (14, []), LOADING),
    "commits._ERROR_OF_GROUP of all": Limit(2, committed_of([]), group_errors, (0, []), (14, []), LOADING),
    "commits._MANY_GROUPS": Limit(8, committed_of(), lambda came: came.questions[0].group_id, "one", "many"),
    "commits._ADDS_GROUP": Limit(5, txn_commit_of(), lambda came: came.questions[0].adds_group, False, True),
    "commits._KNOWS_ABORTABLE": Limit(4, txn_commit_of(), txn_errors, [48], [120], ABORTABLE),
    "commits._MEMBER_EPOCHS": Limit(
        9,
        commit_of(),
        lambda came: came.answer.topics[0].partitions[0].error_code,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.STALE_MEMBER_EPOCH,
        refuse_with(groups_pb2.CommitOffsetsResponse, ErrorCode.STALE_MEMBER_EPOCH),
    ),
    "commits._TOPIC_IDS commits": Limit(10, commit_of(), lambda came: came.questions[0].offsets[0].topic_id, T, U),
    "commits._TOPIC_IDS looks up": Limit(10, committed_of(), lambda came: came.questions[0].topics[0].topic_id, T, U),
    "consumer_groups._BRINGS_ID": Limit(
        1, heartbeat_without_id(), lambda came: [each.full for each in came.questions], [True], []
    ),
    "fetch.BY_ID": Limit(13, fetch_of(), lambda came: came.questions[0].partitions[0].topic_id, T, U),
    "fetch._FIRST_WITH_SESSIONS": Limit(
        7, fetch_of(session_epoch=0), lambda came: came.answer.session_id > 0, False, True, fetched(high_watermark=9)
    ),
    "fetch._FIRST_WITH_SESSIONS refuses": Limit(
        7,
        fetch_requests.FetchRequest(replica_id=3, topics=fetch_of().topics),  # type: ignore[attr-defined]
        lambda came: (came.answer.error_code, len(came.answer.responses)),
        (KafkaError.NONE, 1),
        (KafkaError.INVALID_REQUEST, 0),
    ),
    "fetched_partition.BY_ID": Limit(
        13,
        fetch_of(NOWHERE),
        lambda came: first_fetched(came).error_code,
        *GONE,
        fetched(error=Error(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    ),
    "fetched_partition._READS_ZSTD": Limit(
        10, fetch_of(), codec_of, KafkaCodec.NONE, KafkaCodec.ZSTD, fetched(entries=[ZSTD])
    ),
    "fetched_partition._NAMES_NODES": Limit(
        16,
        fetch_of(),
        lambda came: [(each.node_id, each.host) for each in came.answer.node_endpoints],
        [],
        [(2, "node-2")],
        fetched(error=BUSY_FETCH),
    ),
    "topic_configs._NAMES_TYPES": Limit(
        1,
        config_requests.ListConfigResourcesRequest([4]),
        lambda came: [(each.resource_name, each.resource_type) for each in came.answer.config_resources],
        [],
        [("1", 4), ("2", 4)],
        two_nodes,
    ),
    "groups._SAYS_NOT_FOUND": Limit(
        6,
        group_requests.DescribeGroupsRequest(["g"]),
        lambda came: [(each.error_code, each.group_state) for each in came.answer.groups],
        [(KafkaError.NONE, "Dead")],
        [(KafkaError.GROUP_ID_NOT_FOUND, "Dead")],
        described_nowhere,
    ),
    "memberships._MANY_KEYS": Limit(
        4,
        membership_requests.FindCoordinatorRequest("old", 0, ["new", "other"]),
        lambda came: list(came.questions[0].group_ids),
        ["old"],
        ["new", "other"],
    ),
    "memberships._MANY_LEAVE": Limit(
        3, LEAVE, lambda came: [each.member_id for each in came.questions[0].members], ["old"], ["new"]
    ),
    "memberships._NAMED_FIRST": Limit(4, JOIN, lambda came: came.questions[0].can_be_named_first, False, True),
    "memberships._NULL_PROTOCOL": Limit(
        7,
        JOIN,
        lambda came: came.answer.protocol_name,
        "",
        None,
        refuse_with(groups_pb2.JoinClassicGroupResponse, ErrorCode.NOT_COORDINATOR),
    ),
    "memberships._SKIPS_ASSIGNMENT": Limit(9, JOIN, lambda came: came.questions[0].can_skip_assignment, False, True),
    "placement._SAYS_ELECTION": Limit(
        1,
        placement_requests.ElectLeadersRequest(1, [placement_requests.ElectableTopic("t", [0])], 1_000),
        lambda came: len(came.questions),
        1,
        0,
    ),
    "produce._BY_ID": Limit(
        13, produce_both(kafka_batch(ROWS)), lambda came: came.questions[0].batches[0].topic_id, T, U
    ),
    "produce._BY_ID refuses": Limit(
        13,
        produce_nowhere(),
        lambda came: came.answer.responses[0].partition_responses[0].error_code,
        *GONE,
        produced,
    ),
    "produce._ADDS_PARTITIONS": Limit(
        12, produce_both(kafka_batch(ROWS)), lambda came: came.questions[0].adds_partitions, False, True
    ),
    "produce._ABORTABLE": Limit(
        11,
        produce_nowhere(),
        lambda came: came.answer.responses[0].partition_responses[0].error_code,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.TRANSACTION_ABORTABLE,
        partial(produced, code=ErrorCode.TRANSACTION_ABORTABLE),
    ),
    "transactions._RAISES_EPOCH": Limit(
        5,
        transaction_requests.EndTxnRequest("id", 7, 1, True),
        lambda came: came.questions[0].raises_epoch,
        False,
        True,
    ),
    "topics._BY_ID": Limit(
        6,
        deletion(),
        lambda came: [(list(each.names), list(each.topic_ids)) for each in came.questions],
        [(["t"], [])],
        [(["u"], [U])],
    ),
    "topics._SAYS_CREATED": Limit(
        5,
        creation(),
        lambda came: [isinstance(each, admin_pb2.DescribeConfigsRequest) for each in came.questions],
        [False, False],
        [False, False, True],
        created,
    ),
}
#: Tested by test_lifetimes_are_told_from_version_one in test_kafka_sign_in.py.
ELSEWHERE = {"sign_in._TELLS_LIFETIME"}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_hold_on_both_sides(name: str) -> None:
    limit = LIMITS[name]
    assert limit.below != limit.at
    for version, expected in ((limit.version - 1, limit.below), (limit.version, limit.at)):
        came = serve(limit.message, version, limit.reply, fetches=ConnectionFetches(FetchSessionSpace()))
        assert limit.observe(came) == expected, version


def test_every_limit_is_in_the_table() -> None:
    found = set()
    for path in Path(mapping.__file__).parent.rglob("*.py"):
        found |= {f"{path.stem}.{constant}" for constant in _COMPARED.findall(path.read_text())}
    assert {name.split()[0] for name in LIMITS} | ELSEWHERE == found


@pytest.mark.parametrize("version", [2, 7])
def test_busy_coordinators_are_no_empty_groups(version: int) -> None:
    """A busy coordinator returns an error, not an empty group: otherwise a consumer would start at the beginning or the
    end."""
    message = committed_requests.OffsetFetchRequest("one", None)
    assert group_errors(serve(message, version, LOADING)) == (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, [])


def test_busy_coordinators_are_named_by_group() -> None:
    wanted = [committed_requests.OffsetFetchRequestGroup(each, topics=None) for each in ("a", "b")]
    came = serve(committed_requests.OffsetFetchRequest(groups=wanted), 8, LOADING)
    assert [(each.group_id, each.error_code, list(each.topics)) for each in came.answer.groups] == [
        ("a", KafkaError.COORDINATOR_LOAD_IN_PROGRESS, []),
        ("b", KafkaError.COORDINATOR_LOAD_IN_PROGRESS, []),
    ]


OMITTED = {
    "instance_id": (None, "i", "instance_id"),
    "rack_id": (None, "r", "rack"),
    "rebalance_timeout_ms": (-1, 5_000, "rebalance_timeout_ms"),
    "subscribed_topic_names": (None, ["t"], "topics"),
    "subscribed_topic_regex": (None, "t.*", "topic_pattern"),
    "server_assignor": (None, "range", "assignor"),
    "topic_partitions": (None, [consumer_group_requests.OwnedTopicPartitions(T, [0])], "owned"),
}


@pytest.mark.parametrize("name", OMITTED)
def test_heartbeats_keep_what_they_omit(name: str) -> None:
    """A field that is null in a later heartbeat keeps its value from an earlier one."""
    said = {field: value for field, (_, value, _) in OMITTED.items()}
    for value, omits in ((OMITTED[name][0], True), (OMITTED[name][1], False)):
        said[name] = value
        message = consumer_group_requests.ConsumerGroupHeartbeatRequest("g", "m", 5, **said)
        (question,) = serve(message, 1).questions
        omitted = {field.name for field, _ in question.omitted.ListFields()}
        assert omitted == ({OMITTED[name][2]} if omits else set())
        assert bool(getattr(question, OMITTED[name][2])) is not omits


def test_first_heartbeats_omit_nothing() -> None:
    """A first heartbeat omits nothing: a member that joins does not want what it leaves out."""
    (question,) = serve(heartbeat_without_id(), 0).questions
    assert not question.omitted.ListFields() and question.full


def test_names_of_omissions_are_complete() -> None:
    fields = {field.name for field in groups_pb2.HeartbeatOmissions.DESCRIPTOR.fields}
    assert fields == {name for _, _, name in OMITTED.values()}


# -- what answers carry over ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 12, 13, 17])
@pytest.mark.parametrize(("pauses_ms", "throttle_ms"), [((0, 0), 100), ((50, 0), 100), ((300, 700), 700)])
def test_busy_fetches_are_throttled(version: int, pauses_ms: tuple[int, int], throttle_ms: int) -> None:
    """Fetches that a busy node refuses are throttled: otherwise all consumers would retry at once, and keep it busy."""
    pauses = dict(enumerate(pauses_ms))
    partitions = [fetch_requests.FetchPartition(number, -1, 5, partition_max_bytes=1_000) for number in pauses]
    message = fetch_requests.FetchRequest(topics=[fetch_requests.FetchTopic("t", T, partitions)])

    def busy(question: Any) -> data_plane_pb2.FetchResponse:
        return data_plane_pb2.FetchResponse(
            results=[
                data_plane_pb2.FetchResult(
                    topic_id=each.topic_id,
                    partition=each.partition,
                    error=Error(code=ErrorCode.SERVER_BUSY, throttle_time_ms=pauses[each.partition]),
                )
                for each in question.partitions
            ]
        )

    answer = serve(message, version, busy).answer
    assert answer.throttle_time_ms == throttle_ms
    assert [each.error_code for each in answer.responses[0].partitions] == [KafkaError.NONE] * 2


def test_append_times_are_told() -> None:
    def appended(question: Any) -> data_plane_pb2.ProduceResponse:
        (batch,) = question.batches
        result = data_plane_pb2.ProduceResult(
            topic_id=batch.topic_id, base_offset=7, log_append_time_ms=1_700_000_000_123, log_start_offset=3
        )
        return data_plane_pb2.ProduceResponse(results=[result])

    answer = serve(produce_both(kafka_batch(ROWS)), 12, appended).answer.responses[0].partition_responses[0]
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (7, 1_700_000_000_123, 3)
