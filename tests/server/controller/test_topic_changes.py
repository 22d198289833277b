"""Deletion, new partitions and configuration of topics: permitted changes, and the outcome of races."""

import pytest
from limited import limit
from test_controller import SECOND, Cluster, new_topic

from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.topic_config import CONFIG_KEYS, describe_topic_config
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode


class Topics(Cluster):
    """A controller that receives changes of topics."""

    def assign(self, *replicas: tuple[int, ...], name: str = "orders", **fields: int) -> errors_pb2.Error:
        topic = admin_pb2.NewTopic(name=name, num_partitions=-1, replication_factor=-1)
        topic.MergeFrom(admin_pb2.NewTopic(**fields))  # type: ignore[arg-type]
        topic.replica_assignments.extend(admin_pb2.ReplicaAssignment(replicas=nodes) for nodes in replicas)
        return self.create(topic)[0].error

    def delete(self, *names: str) -> list[errors_pb2.Error]:
        response = self.ask(delete_topics=admin_pb2.DeleteTopicsRequest(names=names))
        return [result.error for result in response.delete_topics.results]

    def grow(self, name: str, total: int, *replicas: tuple[int, ...], dry: bool = False) -> errors_pb2.Error:
        wanted = admin_pb2.NewPartitions(name=name, total_count=total)
        wanted.replica_assignments.extend(admin_pb2.ReplicaAssignment(replicas=nodes) for nodes in replicas)
        request = admin_pb2.CreatePartitionsRequest(topics=[wanted], validate_only=dry)
        return self.ask(create_partitions=request).create_partitions.results[0].error

    def alter(self, name: str, *clear: str, dry: bool = False, **values: str) -> errors_pb2.Error:
        named = {key.replace("_", "."): value for key, value in values.items()}
        change = admin_pb2.AlterTopicConfig(name=name, set=named, clear=clear)
        request = admin_pb2.AlterConfigsRequest(topics=[change], validate_only=dry)
        return self.ask(alter_configs=request).alter_configs.results[0].error

    def replicas(self, name: str = "orders") -> list[tuple[int, ...]]:
        return [partition.replicas for partition in self.image.topics[name].partitions]


@pytest.fixture
def topics() -> Topics:
    made = Topics()
    assert made.create(new_topic())[0].error.code == ErrorCode.NONE
    return made


def internal(cluster: Topics) -> None:
    """Creates an internal topic, as only the cluster itself can."""
    body = log.CreateTopic(name="__groups", topic_id=b"i" * 16, partitions=[log.ReplicaSet(replicas=[1, 2, 3])])
    cluster.image.apply(cluster.image.applied_index + 1, log.MetadataCommand(create_topic=body))


# -- assignments --------------------------------------------------------------------------------------------------


def test_replicas_go_where_the_request_says() -> None:
    topics = Topics()
    assert topics.assign((2, 1, 3), (3, 2, 1)).code == ErrorCode.NONE
    assert topics.replicas() == [(2, 1, 3), (3, 2, 1)]
    assert topics.assign((2,), (3,), name="single", num_partitions=2, replication_factor=1).code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("replicas", "line"),
    [
        ([(1, 2, 2)], "partition 0 on nodes 1,2,2: a node cannot hold two replicas"),
        ([(1, 2, 3), ()], "partition 1 on nodes none: every partition needs at least one replica"),
        ([(1, 2, 3), (1,)], "partition 1 on nodes 1: every partition of a topic has as many replicas as the others"),
        ([(1, 2, 9)], "node 9 is not registered; the nodes are 1, 2, 3"),
        ([(1,)] * 3, "2 partitions are requested, but 3 are assigned"),
    ],
)
def test_a_senseless_assignment_is_refused_in_one_line(replicas: list[tuple[int, ...]], line: str) -> None:
    fields = {"num_partitions": 2} if len(replicas) == 3 else {}
    problem = Topics().assign(*replicas, **fields)
    assert problem.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert line in problem.message
    assert "\n" not in problem.message


def test_an_assignment_follows_the_rules_of_every_topic() -> None:
    topics = Topics(topics=TopicLimits(topic_partitions=2))
    assert topics.assign((1, 2), (1, 2, 3)).code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert topics.assign((1,), (2,), (3,)).code == ErrorCode.INVALID_PARTITIONS
    assert topics.assign((1, 2, 3), replication_factor=1).code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    topics.beat(1, 3)
    topics.run_until(topics.now + 4_000_000, beating=(1, 3))
    assert topics.fenced() == [2]
    assert topics.assign((2,)).message.startswith("partition 0 on nodes 2: node 2 is down")
    assert topics.assign((2, 1, 3)).code == ErrorCode.NONE


# -- deletion -----------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_and_its_name_is_free(topics: Topics) -> None:
    before = topics.image.topics["orders"]
    groups = set(topics.image.partitions)
    assert topics.delete("orders")[0].code == ErrorCode.NONE
    assert not topics.image.topics
    assert not topics.image.partitions
    assert before.topic_id not in topics.image.topics_by_id
    assert topics.create(new_topic())[0].error.code == ErrorCode.NONE
    again = topics.image.topics["orders"]
    assert again.topic_id != before.topic_id
    assert min(topics.image.partitions) > max(groups)
    assert all(topics.image.topic_table.was_deleted(group) for group in groups)
    copy = MetadataImage.from_snapshot(topics.image.to_snapshot())
    assert all(copy.topic_table.was_deleted(group) for group in groups)
    assert not any(copy.topic_table.was_deleted(group) for group in topics.image.partitions)


def test_a_deletion_frees_a_name_that_collided() -> None:
    topics = Topics()
    topics.create(new_topic("a.b"))
    topics.delete("a.b")
    assert topics.create(new_topic("a_b"))[0].error.code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["__debezium-heartbeat.shop", "__groups-1", "__", "__own", "_._groups"])
def test_underscored_names_are_ordinary(topics: Topics, name: str) -> None:
    """Only exact names are reserved: tools create topics of their own whose names start with ``__``."""
    assert topics.create(new_topic(name))[0].error.code == ErrorCode.NONE
    assert not topics.image.topics[name].is_internal
    assert topics.grow(name, 4).code == ErrorCode.NONE
    assert topics.alter(name, retention_ms="1000").code == ErrorCode.NONE
    assert topics.delete(name)[0].code == ErrorCode.NONE


def test_what_cannot_be_deleted_is_refused_and_the_others_are_deleted(topics: Topics) -> None:
    internal(topics)
    codes = [problem.code for problem in topics.delete("nope", "__groups", "orders")]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC, ErrorCode.NONE]
    assert [problem.code for problem in topics.delete("__groups", "__groups")] == [ErrorCode.INVALID_REQUEST] * 2
    assert list(topics.image.topics) == ["__groups"]


def test_a_delayed_change_never_hits_the_next_topic_of_the_name(topics: Topics) -> None:
    delayed = [
        topics.decide(delete_topics=admin_pb2.DeleteTopicsRequest(names=["orders"])),
        topics.decide(
            create_partitions=admin_pb2.CreatePartitionsRequest(
                topics=[admin_pb2.NewPartitions(name="orders", total_count=9)]
            )
        ),
        topics.decide(
            alter_configs=admin_pb2.AlterConfigsRequest(
                topics=[admin_pb2.AlterTopicConfig(name="orders", set={"retention.ms": "1"})]
            )
        ),
    ]
    topics.delete("orders")
    topics.create(new_topic())
    kinds = ("delete_topics", "create_partitions", "alter_configs")
    for kind, decision in zip(kinds, delayed, strict=True):
        (result,) = getattr(topics.commit(decision), kind).results
        assert (result.name, result.error.code) == ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(topics.replicas()) == 3
    assert topics.image.topics["orders"].configs == {}


def test_a_leader_of_a_deleted_partition_is_told_and_nothing_else_happens(topics: Topics) -> None:
    group = min(topics.image.partitions)
    topics.delete("orders")
    report = peer_pb2.LeaderReport(group=group, leader_epoch=1)
    body = peer_pb2.ReportLeaders(node_id=1, broker_epoch=topics.epoch(1), reports=[report])
    (result,) = topics.ask(report_leaders=body).partition_changes.results
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- partitions ---------------------------------------------------------------------------------------------------


def test_a_topic_gains_partitions_behind_those_that_it_has(topics: Topics) -> None:
    before = topics.replicas()
    assert topics.grow("orders", 5).code == ErrorCode.NONE
    assert topics.replicas()[:3] == before
    assert [partition.number for partition in topics.image.topics["orders"].partitions] == [0, 1, 2, 3, 4]
    assert topics.grow("orders", 6, (3, 1, 2)).code == ErrorCode.NONE
    assert topics.replicas()[5] == (3, 1, 2)


def test_what_cannot_grow_is_refused_in_one_line(topics: Topics) -> None:
    internal(topics)
    for wrong, code, line in (
        (("orders", 3), ErrorCode.INVALID_PARTITIONS, "has 3 partitions, 3 are requested: request more than it has"),
        (("orders", 2), ErrorCode.INVALID_PARTITIONS, "request more than it has"),
        (("orders", 2_001), ErrorCode.INVALID_PARTITIONS, "1 to 2000 are allowed"),
        (("orders", 5, (1, 2, 3)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 partitions are added"),
        (("orders", 4, (1, 2)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 3 on nodes 1,2: every partition of"),
        (("nope", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic nope does not exist"),
        (("__groups", 4), ErrorCode.INVALID_TOPIC, "belongs to the cluster itself"),
    ):
        problem = topics.grow(*wrong)
        assert (problem.code, line in problem.message) == (code, True), problem


def test_of_two_additions_under_way_the_first_in_the_log_wins(topics: Topics) -> None:
    request = admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name="orders", total_count=4)])
    first, second = topics.decide(create_partitions=request), topics.decide(create_partitions=request)
    assert not topics.commit(first).create_partitions.results[0].HasField("error")
    lost = topics.commit(second).create_partitions.results[0].error
    assert (lost.code, lost.message) == (
        ErrorCode.INVALID_PARTITIONS,
        "topic orders has 4 partitions by now: look again",
    )


def test_a_node_takes_no_more_replicas_than_it_may() -> None:
    topics = Topics(topics=TopicLimits(node_replicas=4))
    topics.create(new_topic())
    assert "node 1 would hold 5 replicas, at most 4" in topics.grow("orders", 5).message
    assert topics.grow("orders", 4, dry=True).code == ErrorCode.NONE
    assert len(topics.replicas()) == 3
    assert topics.grow("orders", 4).code == ErrorCode.NONE


# -- configuration ------------------------------------------------------------------------------------------------


def test_single_keys_are_set_and_cleared(topics: Topics) -> None:
    assert topics.alter("orders", retention_ms=" 5 ", max_message_bytes="2048").code == ErrorCode.NONE
    assert topics.alter("orders", "retention.ms", min_insync_replicas="2").code == ErrorCode.NONE
    assert topics.image.topics["orders"].configs == {"max.message.bytes": "2048", "min.insync.replicas": "2"}
    assert topics.alter("orders", "max.message.bytes", dry=True).code == ErrorCode.NONE
    assert "max.message.bytes" in topics.image.topics["orders"].configs


def test_a_senseless_change_is_refused_in_one_line(topics: Topics) -> None:
    internal(topics)
    invalid = ErrorCode.INVALID_CONFIG
    assert topics.alter("orders").message == "no key to set or clear: name at least one"
    assert "is both set and cleared" in topics.alter("orders", "retention.ms", retention_ms="1").message
    assert "did you mean retention.ms?" in topics.alter("orders", "retention.mss").message
    assert "expected an integer number of milliseconds" in topics.alter("orders", retention_ms="week").message
    assert "more than the replication factor 3" in topics.alter("orders", min_insync_replicas="4").message
    assert topics.alter("orders", retention_ms="-2").code == invalid
    assert topics.alter("__groups", retention_ms="1").code == ErrorCode.INVALID_TOPIC
    assert topics.alter("nope", retention_ms="1").code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topics.image.topics["orders"].configs == {}


def test_every_key_is_described_with_unit_and_range() -> None:
    described = {key.name: key for key in describe_topic_config({"retention.ms": "5"})}
    assert set(described) == set(CONFIG_KEYS)
    assert (described["retention.ms"].value, described["retention.ms"].default) == ("5", "604800000")
    assert [key.name for key in described.values() if key.is_set] == ["retention.ms"]
    assert described["message.timestamp.type"].value == "CreateTime"
    assert "One of: CreateTime, LogAppendTime." in described["message.timestamp.type"].doc
    assert "A number of bytes, from 1024 to 8388608." in described["max.message.bytes"].doc
    assert all(CONFIG_KEYS[name].parse(key.default) is not None for name, key in described.items())


# -- quotas -------------------------------------------------------------------------------------------------------


def asked_by(topics: Topics, principal: str, **body: object) -> list[errors_pb2.Error]:
    response = topics.ask(principal=principal, **body)
    kind = response.WhichOneof("body")
    assert kind is not None
    return [result.error for result in getattr(response, kind).results]


def creation(*names: str, partitions: int = 4, dry: bool = False) -> admin_pb2.CreateTopicsRequest:
    wanted = [new_topic(name, partitions) for name in names]
    return admin_pb2.CreateTopicsRequest(topics=wanted, validate_only=dry)


def test_who_is_over_the_quota_of_partition_changes_is_told_so_topic_by_topic(topics: Topics) -> None:
    limit(topics.image, "User:alice", controller_mutation_rate=2)
    first, second, third = asked_by(topics, "User:alice", create_topics=creation("a", "b", "c", partitions=2))
    assert (first.code, second.code, third.code) == (0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert (third.retriable, third.definite, third.throttle_time_ms) == (True, True, 1_000)
    assert "c" not in topics.image.topics
    deletion = admin_pb2.DeleteTopicsRequest(names=["a"])
    growth = admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name="a", total_count=5)])
    for kind in ({"delete_topics": deletion}, {"create_partitions": growth}):
        assert asked_by(topics, "User:alice", **kind)[0].code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    topics.now += SECOND
    assert asked_by(topics, "User:alice", create_partitions=growth)[0].code == ErrorCode.NONE
    topics.now += SECOND
    assert asked_by(topics, "User:alice", delete_topics=deletion)[0].throttle_time_ms == 500, "three were added"
    topics.now += SECOND // 2
    assert asked_by(topics, "User:alice", delete_topics=deletion)[0].code == ErrorCode.NONE
    topics.now += 2 * SECOND
    later = asked_by(topics, "User:alice", create_topics=creation("d"))[0]
    assert later.throttle_time_ms == 500, "a deleted topic counts with all its partitions"


def test_other_principals_dry_runs_and_configurations_are_not_held_up(topics: Topics) -> None:
    limit(topics.image, "User:alice", controller_mutation_rate=1)
    for _ in range(3):
        assert asked_by(topics, "User:alice", create_topics=creation("dry", partitions=9, dry=True))[0].code == 0
    assert asked_by(topics, "User:alice", create_topics=creation("a", partitions=9))[0].code == ErrorCode.NONE
    assert asked_by(topics, "User:alice", create_topics=creation("b"))[0].code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert asked_by(topics, "User:alice", create_topics=creation("b", dry=True))[0].code == ErrorCode.NONE
    change = admin_pb2.AlterConfigsRequest(topics=[admin_pb2.AlterTopicConfig(name="a", set={"retention.ms": "60000"})])
    assert asked_by(topics, "User:alice", alter_configs=change)[0].code == ErrorCode.NONE
    assert asked_by(topics, "User:bob", create_topics=creation("b"))[0].code == ErrorCode.NONE


def test_what_fails_is_not_counted(topics: Topics) -> None:
    limit(topics.image, "User:*", controller_mutation_rate=1)
    for _ in range(5):
        failed = asked_by(topics, "User:alice", create_topics=creation("orders"))[0]
        assert failed.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert asked_by(topics, "User:alice", create_topics=creation("a"))[0].code == ErrorCode.NONE
    assert asked_by(topics, "", create_topics=creation("b"))[0].code == ErrorCode.NONE
    throttled = asked_by(topics, "User:ANONYMOUS", create_topics=creation("c"))[0]
    assert throttled.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED, "all clients without an identity are one principal"


def test_coordinators_that_nodes_ask_for_are_made_whatever_the_quotas_say(topics: Topics) -> None:
    limit(topics.image, "User:*", controller_mutation_rate=0.1)
    assert asked_by(topics, "", create_topics=creation("a", partitions=50))[0].code == ErrorCode.NONE
    assert asked_by(topics, "", create_topics=creation("b"))[0].code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    made = topics.ask(create_coordinators=peer_pb2.CreateCoordinators()).create_topics.results[0]
    assert made.error.code == ErrorCode.NONE
    assert "__groups" in topics.image.topics
