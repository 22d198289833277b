"""To Kafka's clients, too, a topic that one may not describe does not exist: byte by byte, in every version."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from google.protobuf.message import Message as ProtoMessage
from kafka_batches import kafka_batch
from quiet_cluster import TOPIC
from restricted_cluster import Restricted
from rights import rule

from quorumlog.server.kafka.codec import (
    config_requests,
    fetch_requests,
    fetch_responses,
    metadata_requests,
    position_requests,
    produce_requests,
    topic_partition_requests,
    topic_requests,
    transaction_requests,
)
from quorumlog.server.kafka.codec.administration import (
    acl_requests,
    log_dir_requests,
    placement_requests,
    quorum_requests,
)
from quorumlog.server.kafka.codec.administration.transaction_requests import DescribeProducersRequest, ProducersTopic
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.groups import commit_requests, committed_requests, consumer_group_requests
from quorumlog.server.kafka.codec.primitives import KafkaMessage, UnencodableMessageError, encode
from quorumlog.server.kafka.handlers.dispatch import SERVED, served_versions
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import acls_pb2, admin_pb2, groups_pb2
from quorumlog.wire.request_limits import MAX_ITEMS

SECRET, ALICE = "secret", "User:alice"
ALL, DESCRIBE, DESCRIBE_CONFIGS, TOPICS, GROUPS = (
    acls_pb2.ACL_OPERATION_ALL,
    acls_pb2.ACL_OPERATION_DESCRIBE,
    acls_pb2.ACL_OPERATION_DESCRIBE_CONFIGS,
    acls_pb2.ACL_RESOURCE_TOPIC,
    acls_pb2.ACL_RESOURCE_GROUP,
)
#: Groups: one that alice may use, and one that she may not.
OWN, OTHERS = "g", "not-hers"
#: One more that she may use, and in which she has a member.
JOINED = "joined"
#: Requests that one test makes.
TOGETHER = 10
WALL_MS = 1_700_000_000_000
BATCH = kafka_batch([(b"key", b"value", WALL_MS, [])])
#: Its records cannot be read.
DAMAGED = BATCH[:-6] + bytes(6)
_TOPIC, _OTHER_TYPE = 2, 4
_ANY_PATTERN, _MATCH, _LITERAL, _PREFIXED, _ALLOW = 1, 2, 3, 4, 3

Make = Callable[[bytes], KafkaMessage]


def produce(*partitions: int, records: bytes | None = BATCH, acks: int = -1, transaction: str | None = None) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        data = [produce_requests.PartitionProduceData(each, records) for each in partitions]
        topics = [produce_requests.TopicProduceData(SECRET, topic_id, data)]
        return produce_requests.ProduceRequest(transaction, acks, 1_000, topics)

    return make


def fetch(*places: tuple[int, int], replica: int = -1) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [
            fetch_requests.FetchPartition(partition, -1, offset, partition_max_bytes=1_000)
            for partition, offset in places
        ]
        topics = [fetch_requests.FetchTopic(SECRET, topic_id, partitions)]
        return fetch_requests.FetchRequest(replica_id=replica, max_wait_ms=500, topics=topics)

    return make


def offsets(*places: tuple[int, int], replica: int = -1) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [position_requests.ListOffsetsPartition(partition, -1, time) for partition, time in places]
        topics = [position_requests.ListOffsetsTopic(SECRET, partitions)]
        return position_requests.ListOffsetsRequest(replica, 0, topics)

    return make


def metadata(*, by_id: bool, operations: bool = False) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        wanted = metadata_requests.MetadataRequestTopic
        secret = wanted(topic_id, None) if by_id else wanted(name=SECRET)
        request = metadata_requests.MetadataRequest([secret, wanted(name=TOPIC), wanted(name="no/name")])
        request.include_topic_authorized_operations = operations
        return request

    return make


def commit(group: str, member: str = "", generation: int = -1) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [commit_requests.OffsetCommitRequestPartition(each, 5, -1, "") for each in (0, 0, -1)]
        topics = [commit_requests.OffsetCommitRequestTopic(SECRET, partitions)]
        return commit_requests.OffsetCommitRequest(group, generation, member, None, -1, topics)

    return make


def commit_in_transaction(group: str) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [commit_requests.TxnOffsetCommitRequestPartition(each, 5, -1, "") for each in (0, 0, -1)]
        topics = [commit_requests.TxnOffsetCommitRequestTopic(SECRET, partitions)]
        return commit_requests.TxnOffsetCommitRequest("writer", group, 1, 0, topics=topics)

    return make


def adding(*topics: str) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        named = [transaction_requests.AddPartitionsToTxnTopic(topic, [0, 0, -1]) for topic in topics]
        return transaction_requests.AddPartitionsToTxnRequest("writer", 1, 0, named)

    return make


def committed(group: str) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        old = committed_requests.OffsetFetchRequestTopic(SECRET, [0, 1])
        new = committed_requests.OffsetFetchRequestGroup(
            group, topics=[committed_requests.OffsetFetchRequestTopics(SECRET, topic_id, [0, 1])]
        )
        return committed_requests.OffsetFetchRequest(group, [old], [new])

    return make


def all_committed(topic_id: bytes) -> KafkaMessage:
    group = committed_requests.OffsetFetchRequestGroup(OWN, topics=None)
    return committed_requests.OffsetFetchRequest(OWN, None, [group])


def forget(group: str) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [commit_requests.OffsetDeleteRequestPartition(each) for each in (0, 7)]
        topics = [commit_requests.OffsetDeleteRequestTopic(SECRET, partitions)]
        return commit_requests.OffsetDeleteRequest(group, topics)

    return make


def creation(*, checks_only: bool) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        return topic_requests.CreateTopicsRequest([topic_requests.CreatableTopic(SECRET, 1, 1)], 1_000, checks_only)

    return make


def deletion(name: str | None, *, by_id: bool) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        states = [topic_requests.DeleteTopicState(name, topic_id if by_id else bytes(16))]
        states.append(topic_requests.DeleteTopicState(TOPIC))
        return topic_requests.DeleteTopicsRequest(states, [SECRET, TOPIC], 1_000)

    return make


def growth(topic_id: bytes) -> KafkaMessage:
    wanted = [topic_requests.CreatePartitionsTopic(name, 9, None) for name in (SECRET, TOPIC)]
    return topic_requests.CreatePartitionsRequest(wanted, 1_000)


def truncation(*places: tuple[int, int]) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [topic_requests.DeleteRecordsPartition(*each) for each in places]
        return topic_requests.DeleteRecordsRequest([topic_requests.DeleteRecordsTopic(SECRET, partitions)], 1_000)

    return make


def description(*keys: str) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        wanted = [
            config_requests.DescribeConfigsResource(kind, name, keys or None)
            for kind, name in ((_TOPIC, SECRET), (_TOPIC, TOPIC), (_OTHER_TYPE, SECRET))
        ]
        return config_requests.DescribeConfigsRequest(wanted, include_synonyms=True)

    return make


def replacement(**values: str) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        settings = [
            config_requests.AlterConfigsRequestAlterableConfig(key.replace("_", "."), value)
            for key, value in values.items()
        ]
        change = config_requests.AlterConfigsRequestAlterConfigsResource(_TOPIC, SECRET, settings)
        return config_requests.AlterConfigsRequest([change])

    return make


def change(operation: int, name: str, value: str | None) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        setting = config_requests.IncrementalAlterConfigsRequestAlterableConfig(name, operation, value)
        wanted = config_requests.IncrementalAlterConfigsRequestAlterConfigsResource(_TOPIC, SECRET, [setting])
        return config_requests.IncrementalAlterConfigsRequest([wanted])

    return make


def epoch_ends(*places: tuple[int, int, int], replica: int = -1) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [position_requests.OffsetForLeaderPartition(*each) for each in places]
        topics = [position_requests.OffsetForLeaderTopic(SECRET, partitions)]
        return position_requests.OffsetForLeaderEpochRequest(replica, topics)

    return make


def active_producers(*numbers: int) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        return DescribeProducersRequest([ProducersTopic(SECRET, numbers)])

    return make


def page(*names: str, limit: int = 2_000, begin: tuple[str, int] | None = None) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        wanted = [topic_partition_requests.DescribedTopicRequest(each) for each in names]
        cursor = None if begin is None else topic_partition_requests.PageBegin(*begin)
        return topic_partition_requests.DescribeTopicPartitionsRequest(wanted, limit, cursor)

    return make


def election(*partitions: int, kind: int = 0) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        wanted = [placement_requests.ElectableTopic(name, partitions) for name in (SECRET, TOPIC)]
        return placement_requests.ElectLeadersRequest(kind, wanted, 1_000)

    return make


def move(*wishes: tuple[int, list[int] | None], keeps_count: bool = False) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        partitions = [placement_requests.ReassignablePartition(*each) for each in wishes]
        topics = [placement_requests.ReassignableTopic(name, partitions) for name in (SECRET, TOPIC)]
        return placement_requests.AlterPartitionReassignmentsRequest(1_000, not keeps_count, topics)

    return make


def moves(topics: dict[str, list[int]] | None) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        named = placement_requests.ListPartitionReassignmentsTopics
        wanted = None if topics is None else [named(*each) for each in topics.items()]
        return placement_requests.ListPartitionReassignmentsRequest(1_000, wanted)

    return make


def log_dirs(topics: dict[str, list[int]] | None) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        named = log_dir_requests.DescribableLogDirTopic
        return log_dir_requests.DescribeLogDirsRequest(
            None if topics is None else [named(*each) for each in topics.items()]
        )

    return make


def rules(name: str | None, pattern: int) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        return acl_requests.DescribeAclsRequest(_TOPIC, name, pattern, None, None, 1, 1)

    return make


def rule_creation(host: str = "*", *, operation: int = ALL) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        wanted = acl_requests.AclCreation(_TOPIC, SECRET, _LITERAL, ALICE, host, operation, _ALLOW)
        return acl_requests.CreateAclsRequest([wanted])

    return make


def rule_deletion(name: str | None, pattern: int) -> Make:
    def make(topic_id: bytes) -> KafkaMessage:
        return acl_requests.DeleteAclsRequest([acl_requests.DeleteAclsFilter(_TOPIC, name, pattern, None, None, 1, 1)])

    return make


def membership(
    group: str,
    names: list[str] | None,
    *,
    pattern: str | None = None,
    epoch: int = 0,
    owned: list[int] | None = None,
    assignor: str | None = None,
) -> Make:
    """Returns the maker of a heartbeat. Unless it joins, its member is unknown, so that answers are independent."""
    member = "m" if epoch == 0 else "stranger"

    def make(topic_id: bytes) -> KafkaMessage:
        rows = None if owned is None else [consumer_group_requests.OwnedTopicPartitions(topic_id, owned)]
        return consumer_group_requests.ConsumerGroupHeartbeatRequest(
            group,
            member,
            epoch,
            None,
            None,
            30_000,
            names,
            pattern,
            assignor,
            [] if epoch == 0 and rows is None else rows,
        )

    return make


def group_description(*groups: str, operations: bool = False) -> Make:
    return lambda topic_id: consumer_group_requests.ConsumerGroupDescribeRequest(groups, operations)


#: What names a topic. Each is made of the id that the topic has, or had; all but the newest versions name it by name.
NAMING: dict[str, Make] = {
    "Produce": produce(0),
    "Produce twice to a partition": produce(0, 0),
    "Produce to no partition": produce(7, -1),
    "Produce nothing": produce(0, records=None),
    "Produce without a batch": produce(0, records=b"no batch"),
    "Produce damaged records": produce(0, records=DAMAGED),
    "Produce in a transaction": produce(0, transaction="t"),
    "Produce without an answer": produce(0, acks=0),
    "Produce to more partitions than the limit": produce(*range(MAX_ITEMS + 1)),
    "Fetch": fetch((0, 0)),
    "Fetch twice of a partition": fetch((0, 0), (0, 0)),
    "Fetch from an impossible offset": fetch((0, -3), (0, 10_000), (-1, 0), (7, 0)),
    "Fetch as a replica": fetch((0, 0), replica=1),
    "ListOffsets": offsets((0, -1), (1, -2), (7, 5)),
    "ListOffsets of impossible times": offsets((0, -7), (0, -6), (1, -5), (1, -4), (-1, -3)),
    "ListOffsets twice of a partition": offsets((0, -1), (0, -1)),
    "ListOffsets as a replica": offsets((0, -1), replica=1),
    "Metadata": metadata(by_id=False),
    "Metadata with what is allowed": metadata(by_id=False, operations=True),
    "Metadata by id": metadata(by_id=True, operations=True),
    "Metadata of all": lambda topic_id: metadata_requests.MetadataRequest(None),
    "OffsetCommit": commit(OWN),
    "OffsetCommit of a stranger": commit(OWN, "stranger", 5),
    "OffsetCommit of another group": commit(OTHERS),
    "TxnOffsetCommit": commit_in_transaction(OWN),
    "TxnOffsetCommit of another group": commit_in_transaction(OTHERS),
    "AddPartitionsToTxn": adding(SECRET),
    "AddPartitionsToTxn beside others": adding(TOPIC, SECRET),
    "OffsetFetch": committed(OWN),
    "OffsetFetch of all": all_committed,
    "OffsetFetch of another group": committed(OTHERS),
    "OffsetDelete": forget(OWN),
    "OffsetDelete of another group": forget(OTHERS),
    "CreateTopics": creation(checks_only=False),
    "CreateTopics only to check": creation(checks_only=True),
    "DeleteTopics": deletion(SECRET, by_id=False),
    "DeleteTopics by id": deletion(None, by_id=True),
    "DeleteTopics by name and id": deletion(SECRET, by_id=True),
    "CreatePartitions": growth,
    "DeleteRecords": truncation((0, -1)),
    "DeleteRecords of impossible places": truncation((0, 5), (0, 5), (-1, 5), (7, -9)),
    "DescribeConfigs": description(),
    "DescribeConfigs of a key": description("retention.ms"),
    "ListConfigResources": lambda topic_id: config_requests.ListConfigResourcesRequest(),
    "AlterConfigs": replacement(retention_ms="1000"),
    "AlterConfigs to the defaults": replacement(),
    "AlterConfigs without effect": replacement(segment_bytes="1000"),
    "AlterConfigs to what is wrong": replacement(no_such_key="1"),
    "IncrementalAlterConfigs": change(0, "retention.ms", "1000"),
    "IncrementalAlterConfigs without effect": change(0, "segment.bytes", "1000"),
    "IncrementalAlterConfigs to what is wrong": change(2, "retention.ms", "1"),
    "OffsetForLeaderEpoch": epoch_ends((0, -1, 0), (1, 0, 1), (7, -1, 0)),
    "OffsetForLeaderEpoch of impossible epochs": epoch_ends((0, 99, 99), (-1, -9, -9), (1, -1, -1)),
    "OffsetForLeaderEpoch twice of a partition": epoch_ends((0, -1, 0), (0, -1, 0)),
    "OffsetForLeaderEpoch as a replica": epoch_ends((0, -1, 0), replica=1),
    "DescribeProducers": active_producers(0, 1),
    "DescribeProducers of impossible partitions": active_producers(0, 0, -1, 7),
    "DescribeTopicPartitions": page(SECRET, TOPIC, "no/name"),
    "DescribeTopicPartitions of all": page(),
    "DescribeTopicPartitions of all with little room": page(limit=1),
    "DescribeTopicPartitions with little room": page(SECRET, TOPIC, limit=1),
    "DescribeTopicPartitions without room": page(SECRET, "secret2", limit=0),
    "DescribeTopicPartitions where one more has no room": page("a", TOPIC, SECRET, "z", limit=2),
    "DescribeTopicPartitions from it on": page(begin=(SECRET, 0)),
    "DescribeTopicPartitions from within it": page(SECRET, TOPIC, limit=1, begin=(SECRET, 1)),
    "DescribeTopicPartitions from beyond it": page(SECRET, begin=(SECRET, 7)),
    "DescribeTopicPartitions from before it": page(limit=2, begin=(SECRET[:-1], 1)),
    "DescribeTopicPartitions from nowhere": page(SECRET, begin=(SECRET, -1)),
    "ElectLeaders": election(0, 1),
    "ElectLeaders of no partition": election(7, -1, 0, 0),
    "ElectLeaders at any price": election(0, kind=1),
    "ElectLeaders of another kind": election(0, kind=9),
    "ElectLeaders of all": lambda topic_id: placement_requests.ElectLeadersRequest(0, None, 1_000),
    "AlterPartitionReassignments": move((0, [2, 3, 1])),
    "AlterPartitionReassignments to fewer nodes": move((0, [2]), keeps_count=True),
    "AlterPartitionReassignments that is cancelled": move((0, None), (7, None)),
    "AlterPartitionReassignments to no node": move((0, []), (1, [9]), (-1, [1, 1])),
    "AlterPartitionReassignments twice of a partition": move((0, [1]), (0, [2])),
    "ListPartitionReassignments": moves({SECRET: [0, 1, 7]}),
    "ListPartitionReassignments of all": moves(None),
    "ListPartitionReassignments of nothing": moves({}),
    "DescribeQuorum": lambda _: quorum_requests.DescribeQuorumRequest(
        [quorum_requests.NamedQuorumTopic(SECRET, [quorum_requests.NamedQuorumPartition(0)])]
    ),
    "DescribeLogDirs": log_dirs({SECRET: [0, 1]}),
    "DescribeLogDirs of no partition": log_dirs({SECRET: [7, -1], TOPIC: [0]}),
    "DescribeLogDirs of all": log_dirs(None),
    "DescribeLogDirs of nothing": log_dirs({}),
    "DescribeLogDirs of more than the limit": log_dirs({SECRET: list(range(MAX_ITEMS + 1))}),
    "DescribeAcls": rules(SECRET, _LITERAL),
    "DescribeAcls that match": rules(SECRET, _MATCH),
    "DescribeAcls of all": rules(None, _ANY_PATTERN),
    "CreateAcls": rule_creation(),
    "CreateAcls for a host": rule_creation("127.0.0.1"),
    "CreateAcls of no operation": rule_creation(operation=99),
    "DeleteAcls": rule_deletion(SECRET, _LITERAL),
    "DeleteAcls of a prefix": rule_deletion(SECRET[:3], _PREFIXED),
    "DeleteAcls of all": rule_deletion(None, _ANY_PATTERN),
    "ConsumerGroupHeartbeat": membership(OTHERS, [SECRET]),
    "ConsumerGroupHeartbeat in one's group": membership(JOINED, [SECRET, TOPIC]),
    "ConsumerGroupHeartbeat by a pattern": membership(JOINED, None, pattern="sec.*"),
    "ConsumerGroupHeartbeat by an invalid pattern": membership(JOINED, None, pattern="("),
    "ConsumerGroupHeartbeat that owns it": membership(JOINED, [SECRET], epoch=5, owned=[0, 1]),
    "ConsumerGroupHeartbeat that owns too much": membership(JOINED, [SECRET], epoch=1, owned=[-1, 7, 7]),
    "ConsumerGroupHeartbeat by no assignor": membership(JOINED, [SECRET], assignor="none"),
    "ConsumerGroupHeartbeat of one who leaves": membership(JOINED, None, epoch=-1),
    "ConsumerGroupDescribe": group_description(OWN, OTHERS),
    "ConsumerGroupDescribe with what is allowed": group_description(OWN, OTHERS, OWN, operations=True),
}
#: Those that name no topic, or in bytes only that a node hands on unread.
NAMELESS = {
    "InitProducerId", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions", "ListTransactions",
    "DescribeCluster", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
    "ListGroups", "DescribeGroups", "DeleteGroups", "SaslHandshake", "SaslAuthenticate",
    "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials", "AlterUserScramCredentials",
}  # fmt: skip


def test_every_api_that_names_topics_is_compared() -> None:
    compared = {what.partition(" ")[0] for what in NAMING}
    assert {APIS[key].name for key in SERVED} == compared | NAMELESS
    assert not compared & NAMELESS


class Told(NamedTuple):
    """The answer to a client, and the kinds of requests that the node received on the way.

    Each of them takes time; test_hidden_topics.py compares how a node handles a single one.
    """

    answer: bytes
    questions: tuple[str, ...]

    def about(self, former: bytes, topic_id: bytes) -> Told:
        """The same where another id was asked for, which the answer repeats."""
        answer = self.answer.replace(former, topic_id).replace(former.hex().encode(), topic_id.hex().encode())
        return self._replace(answer=answer)


class Link(SimKafkaLink):
    """A connection that takes note of what the node is asked."""

    questions: list[str]

    def __init__(self, name: str, cluster: SimCluster, node: int, scheduler: Scheduler) -> None:
        self.questions = []
        super().__init__(name, cluster, node, scheduler)

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[ProtoMessage], None]) -> int:
        self.questions.append(type(message).__name__)
        return super().ask(message, client_id, on_reply)


class Rig(Restricted):
    """Nodes that serve Kafka's clients, one of which is alice, who sees one topic and may use one group."""

    def __init__(self) -> None:
        super().__init__(7, kafka=(1, 2, 3))
        self.allow(
            rule(ALICE, DESCRIBE, TOPICS, TOPIC),
            rule(ALICE, DESCRIBE_CONFIGS, TOPICS, TOPIC),
            rule(ALICE, ALL, GROUPS, OWN),
            rule(ALICE, ALL, GROUPS, JOINED),
        )
        self._links: dict[int, Link] = {}
        for group in (OWN, OTHERS, JOINED):
            self.until(lambda group=group: self._coordinator(group) is not None, 20)  # type: ignore[misc]
        self.run(5)  # Everything else has come to rest, too: leaders, addresses, who coordinates.

    def _coordinator(self, group: str) -> int | None:
        request = groups_pb2.FindCoordinatorsRequest(group_ids=[group])
        (found,) = self.ask("admin", request, groups_pb2.FindCoordinatorsResponse).coordinators
        return None if found.HasField("error") else found.node_id

    def create_secret(self) -> bytes:
        """A topic that keeps the newest record of each key, of which an offset is committed."""
        self.create(SECRET, partitions=2)
        compacted = admin_pb2.AlterTopicConfig(name=SECRET, set={"cleanup.policy": "compact"})
        request = admin_pb2.AlterConfigsRequest(topics=[compacted], timeout_ms=3_000)
        answer = self.ask("admin", request, admin_pb2.AlterConfigsResponse)
        assert not answer.results[0].HasField("error"), answer
        self.run(1)
        return self.topic_id(SECRET)

    def delete_secret(self) -> None:
        request = admin_pb2.DeleteTopicsRequest(names=[SECRET], timeout_ms=5_000)
        answer = self.ask("admin", request, admin_pb2.DeleteTopicsResponse)
        assert not answer.results[0].HasField("error"), answer
        self.run(1)

    def told(self, message: KafkaMessage, version: int, node: int) -> Told:
        """Returns alice's answer, or the end of her connection, with the requests that the node received for it."""
        link = self._links.get(node)
        if link is None or link.end is not None:
            link = self._links[node] = Link("alice", self.cluster, node, self.scheduler)
        link.questions.clear()
        number = link.send(message, version)
        self.until(lambda: number in link.answers or link.end is not None, 10)
        answer = repr(link.end).encode() if link.end is not None else b"".join(encode(link.answers[number], version))
        return Told(answer, tuple(link.questions))

    def told_in_session(self, topic_id: bytes, version: int, node: int) -> tuple[Told, ...]:
        """Returns her answers in a fetch session, one per request, without the session's id, which always differs."""
        link, reported = Link("alice", self.cluster, node, self.scheduler), []

        def ask(number: int, epoch: int, partitions: list[int], forgotten: list[int]) -> fetch_responses.FetchResponse:
            wanted = [fetch_requests.FetchPartition(each, -1, 0, partition_max_bytes=1_000) for each in partitions]
            request = fetch_requests.FetchRequest(
                max_wait_ms=100,
                session_id=number,
                session_epoch=epoch,
                topics=[fetch_requests.FetchTopic(SECRET, topic_id, wanted)] if wanted else [],
                forgotten_topics_data=[fetch_requests.ForgottenTopic(SECRET, topic_id, forgotten)] if forgotten else [],
            )
            link.questions.clear()
            sent = link.send(request, version)
            self.until(lambda: sent in link.answers, 10)
            answer = link.answers[sent]
            assert isinstance(answer, fetch_responses.FetchResponse)
            reported.append(Told(b"".join(encode(replace(answer, session_id=0), version)), tuple(link.questions)))
            return answer

        number = ask(0, 0, [0, 7], []).session_id
        ask(number, 1, [], [])
        ask(number, 2, [1, 0], [7])
        ask(number, 3, [], [0, 1])
        ask(number, 4, [0], [])
        return tuple(reported)

    def told_by_all(self, make: Make, topic_id: bytes) -> dict[tuple[int, int], Told]:
        """The same of each version and each node."""
        return {
            (version, node): self.told(make(topic_id), version, node)
            for version in versions_of(make(topic_id))
            for node in self.cluster.node_ids
        }


def versions_of(message: KafkaMessage) -> list[int]:
    """Those that are served and in which the message can be said."""
    table, kind = served_versions(), type(message)

    def can_be_said(version: int) -> bool:
        try:
            encode(message, version)
        except UnencodableMessageError:
            return False
        return True

    served = (each for each in range(kind.LOWEST, kind.HIGHEST + 1) if table.find(kind.API_KEY, each) is not None)
    return [each for each in served if can_be_said(each)]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("first", range(0, len(NAMING), TOGETHER))
def test_kafkas_clients_are_told_nothing_of_a_topic_that_is_hidden_from_them(rig: Rig, first: int) -> None:
    """Several requests share a topic: to create and delete one takes longer than their answers."""
    naming = dict(itertools.islice(NAMING.items(), first, first + TOGETHER))
    made_up = b"\x07" * 16

    def told(topic_id: bytes) -> dict[str, dict[tuple[int, int], Told]]:
        return {what: rig.told_by_all(make, topic_id) for what, make in naming.items()}

    before = told(made_up)
    topic_id = rig.create_secret()
    made_up_while_there = told(made_up)
    while_there = told(topic_id)
    rig.delete_secret()
    afterwards = told(topic_id)
    for what in naming:
        assert before[what] == made_up_while_there[what], what
        assert while_there[what] == afterwards[what], what
        about = {key: each.about(topic_id, made_up) for key, each in while_there[what].items()}
        assert about == made_up_while_there[what], what


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_of_fetches_tells_nothing_of_a_topic_that_is_hidden(rig: Rig, version: int) -> None:
    made_up = b"\x07" * 16

    def told(topic_id: bytes) -> list[tuple[Told, ...]]:
        return [
            tuple(each.about(topic_id, made_up) for each in rig.told_in_session(topic_id, version, node))
            for node in rig.cluster.node_ids
        ]

    before = told(made_up)
    topic_id = rig.create_secret()
    assert told(made_up) == before
    assert told(topic_id) == before
    rig.delete_secret()
    assert told(topic_id) == before


def test_who_sees_a_topic_and_may_not_change_it_is_told_so_whatever_the_change(rig: Rig) -> None:
    for settings in ({}, {"segment.bytes": "1000"}):
        configs = [config_requests.AlterConfigsRequestAlterableConfig(*each) for each in settings.items()]
        wanted = config_requests.AlterConfigsRequestAlterConfigsResource(_TOPIC, TOPIC, configs)
        answer, _ = rig.told(config_requests.AlterConfigsRequest([wanted]), 2, 1)
        assert KafkaError.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big") in answer, settings
