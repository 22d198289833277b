"""Every field of a node's reply counts: another value changes the response to the client, or a question to the node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.message_factory import GetMessageClass

from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.handlers.dispatch import SERVED
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches, FetchSessionSpace
from quorumlog.v1 import errors_pb2
from tests.server.kafka.test_kafka_request_fields import OF_SIGN_IN, sample
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry
from tests.support.kafka_steps import TOPIC_IDS, Served, serve

#: Values by message and field where those by type would keep others from counting.
VALUES: dict[str, Any] = {
    "ConfigEntry.name": "retention.ms",
    "FetchResult.entries": stored_kafka_entry(kafka_batch([(b"k", b"v", 5, [])]), 1),
    "ListOffsetsResult.entry": stored_kafka_entry(kafka_batch([(b"k", b"v", 5, [])]), 1),
    "OngoingReassignment.witnesses": 9,
}
#: Fields by which requests ask for more than the sample does.
ASKS: dict[str, dict[str, Any]] = {
    "Metadata": {"include_topic_authorized_operations": True},
    "DescribeConfigs": {"include_documentation": True, "include_synonyms": True},
    "DescribeTopicPartitions": {"cursor": None},
}
#: Messages of which Kafka's protocol has nothing: traces, other kinds of group, what only counts changes.
FOREIGN = {"BatchTrace", "ReplicaTrace", "TransactionGroup", "TransactionPlace"}
#: Fields that Kafka's protocol does not have, or that repeat the request.
FOREIGN_FIELDS = """
    ActiveProducer.coordinator AlterClientQuotasResponse.altered AlterUserScramCredentialsResponse.created
    AlterUserScramCredentialsResponse.deleted BrokerMetadata.broker_epoch BrokerMetadata.directory_id
    BrokerMetadata.feature_level BrokerMetadata.leaving BrokerMetadata.lost BrokerMetadata.machine
    BrokerMetadata.returning BrokerMetadata.version BrokerMetadata.witness_only CommittedOffset.commit_number
    CommittedOffset.commit_timestamp_ms CommittedOffset.committer CommittedOffset.topic CreateAclsResponse.created
    DeleteAclsResponse.deleted DescribeAclsResponse.applied_index
    DescribeProducersResponse.high_watermark DescribeProducersResponse.last_stable_offset
    DescribeTransactionResponse.cause DescribeTransactionResponse.coordinator
    DescribeTransactionResponse.coordinator_node DescribeTransactionResponse.groups DescribeTransactionResponse.place
    DescribeTransactionResponse.writers EndTransactionResponse.markers_committed
    FetchResponse.correlation_id FetchResult.compacted_offset FetchResult.leader_epoch GroupAssignment.version
    GroupCoordinator.broker_epoch GroupCoordinator.group_id GroupCoordinator.leader_epoch GroupCoordinator.partition
    GroupHeartbeatResponse.correlation_id GroupListing.members InitProducerIdResponse.note
    ListGroupsResponse.coordinators ListTransactionsResponse.coordinators MemberDescription.present
    MetadataResponse.applied_index
    MetadataResponse.controller_id MetadataResponse.error MetadataResponse.feature_level
    MetadataResponse.image_age_ms OngoingReassignment.bytes_per_second PartitionMetadata.group_id
    PartitionMetadata.partition_epoch PartitionMetadata.witness PartitionOutcome.partition PartitionOutcome.topic
    PartitionOutcome.topic_id
    ProduceResponse.correlation_id ProduceResponse.trace ProduceResult.leader_epoch ProduceResult.next_sequence
    ReassignmentResult.partition ReassignmentResult.topic TopicMetadata.configs TopicPartitions.first_partitions
    TransactionListing.started_ms TransactionTopic.topic_id
    UserScramCredential.changed_ms UserScramCredential.for_super_user
"""
#: By API: messages and fields that count only for other APIs, or in other states of a group.
ELSEWHERE: dict[str, str] = {
    "Fetch": "FetchResponse.error",
    "ListOffsets": "ListOffsetsResult.epoch ListOffsetsResult.timestamp_ms",
    "OffsetForLeaderEpoch": "ListOffsetsResult.entry ListOffsetsResult.leader_epoch ListOffsetsResult.timestamp_ms",
    # A partition is not in both lists; test_kafka_offsets_in_transactions.py has the second one.
    "OffsetFetch": "FetchOffsetsResponse.unstable PartitionOutcome.error",
    "Metadata": "BrokerMetadata.fenced_lately",
    "DescribeCluster": "TopicMetadata PartitionMetadata MetadataResponse.topics BrokerMetadata.fenced_lately",
    "ConsumerGroupHeartbeat": "TopicPartitions.topic",
    "ConsumerGroupDescribe": "CommittedOffset GroupDescription.coordinator GroupDescription.generation"
    " GroupDescription.has_offsets GroupDescription.leader GroupDescription.offsets GroupDescription.protocol"
    " GroupDescription.protocol_type MemberDescription.classic_assignment MemberDescription.classic_metadata",
    "DescribeGroups": "CommittedOffset GroupDescription.assignment_epoch GroupDescription.coordinator"
    " GroupDescription.generation GroupDescription.group_epoch GroupDescription.has_offsets GroupDescription.leader"
    " GroupDescription.offsets GroupDescription.protocol GroupDescription.protocol_type"
    " MemberDescription.classic_assignment MemberDescription.member_epoch MemberDescription.rack"
    " MemberDescription.target MemberDescription.topic_pattern MemberDescription.topics TopicPartitions.partitions"
    " TopicPartitions.topic TopicPartitions.topic_id",
    "CreateTopics": "BrokerMetadata TopicMetadata PartitionMetadata MetadataResponse ConfigEntry.default_value"
    " ConfigEntry.documentation",
    "DeleteTopics": "DeleteTopicsResponse.results TopicResult.name",
    "CreatePartitions": "CreatePartitionsResponse.results TopicResult.name",
    "AlterConfigs": "AlterConfigsResponse.results TopicResult.name",
    "IncrementalAlterConfigs": "AlterConfigsResponse.results TopicResult.name",
    # Shown while the transaction is open; test_transactions_of_kafkas_clients.py has such a one.
    "DescribeTransactions": "TransactionTopic.partitions",
    "ListTransactions": "ProducerIdentity.producer_epoch",
    "ListPartitionReassignments": "OngoingReassignment.witnesses",
    "DescribeTopicPartitions": "BrokerMetadata.fenced_lately BrokerMetadata.host BrokerMetadata.port"
    " BrokerMetadata.rack MetadataResponse.cluster_id",
}


def value_of(field: FieldDescriptor, number: int) -> Any:
    """Returns a scalar for a field: that of the sample (0), or another one (1)."""
    given = VALUES.get(f"{field.containing_type.name}.{field.name}")
    if given is not None and number == 0:
        return given
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return (list(TOPIC_IDS.values()) if field.type == FieldDescriptor.TYPE_BYTES else list(TOPIC_IDS))[number]
        case FieldDescriptor.CPPTYPE_BOOL:
            return bool(number)
        case FieldDescriptor.CPPTYPE_ENUM:
            return field.enum_type.values[number + 1].number
        case _:
            return number + 1


def filled(kind: Descriptor, *, depth: int = 0) -> ProtoMessage:
    """Returns a message with a value in each field except errors."""
    message: Any = GetMessageClass(kind)()
    for field in kind.fields:
        if field.message_type is errors_pb2.Error.DESCRIPTOR or depth > 5:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["retention.ms"] = value_of(field.message_type.fields_by_name["value"], 0)
        elif field.message_type is not None:
            inner = filled(field.message_type, depth=depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).append(value_of(field, 0))
        else:
            setattr(message, field.name, value_of(field, 0))
    return message


def changed(message: Any) -> Iterator[tuple[str, Any]]:
    """Yields the message with one field changed at a time, after the name of that field."""
    for field in message.DESCRIPTOR.fields:
        what = f"{message.DESCRIPTOR.name}.{field.name}"
        other = type(message).FromString(message.SerializeToString())
        if field.message_type is errors_pb2.Error.DESCRIPTOR:
            getattr(other, field.name).code = errors_pb2.ErrorCode.CORRUPT_MESSAGE
            yield what, other
        elif field.is_repeated or field.message_type is not None:
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                held = getattr(message, field.name)
                for inner, part in changed(held[0] if field.is_repeated else held):
                    whole = type(message).FromString(message.SerializeToString())
                    (getattr(whole, field.name)[0] if field.is_repeated else getattr(whole, field.name)).CopyFrom(part)
                    yield inner, whole
            other.ClearField(field.name)
            yield what, other
        else:
            setattr(other, field.name, value_of(field, 1))
            yield what, other


def response_of(question: ProtoMessage) -> Descriptor:
    name = question.DESCRIPTOR.name.removesuffix("Request") + "Response"
    return question.DESCRIPTOR.file.message_types_by_name[name]


def served(message: Any, version: int, replies: dict[str, ProtoMessage]) -> Served:
    """Returns the result of a request; the node replies by the name of the question, otherwise with filled fields."""

    def reply(question: ProtoMessage) -> ProtoMessage:
        return replies.get(question.DESCRIPTOR.name) or filled(response_of(question))

    try:
        return serve(
            message, version, reply, fetches=ConnectionFetches(FetchSessionSpace()), creates_topics=True, most=20
        )
    except (KeyError, ValueError, IndexError, StopIteration) as problem:
        return Served([], None, repr(problem))  # Replies that do not fit their questions.


def untold_fields(key: int) -> set[str]:
    kind = APIS[key].request
    message, version = replace(sample(kind), **ASKS.get(APIS[key].name, {})), kind.HIGHEST
    base = served(message, version, {})
    assert base.answer is not None or key == 1, base
    untold = set()
    for question in base.questions:
        for what, other in changed(filled(response_of(question))):
            if served(message, version, {question.DESCRIPTOR.name: other}) == base:
                untold.add(what)
    return untold


@pytest.mark.parametrize("key", [key for key in SERVED if key not in OF_SIGN_IN], ids=lambda key: APIS[key].name)
def test_every_reply_field_counts(key: int) -> None:
    elsewhere = ELSEWHERE.get(APIS[key].name, "").split()
    ignored = {each for each in untold_fields(key) if not {each, each.split(".")[0]} & {*FOREIGN, *elsewhere}}
    print("UNTOLD", APIS[key].name, sorted(ignored - {*FOREIGN_FIELDS.split()}))
    assert ignored <= {*FOREIGN_FIELDS.split()}
