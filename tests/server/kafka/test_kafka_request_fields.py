"""Every field of every request counts: another value changes a question to the node, or the response to the client.

No other test notices a field that is not carried over: a dry run would then make the change that it should only check,
or a member would lose part of its description.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from quorumlog.server.kafka.codec.administration.quota_requests import DescribeClientQuotasRequest
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.primitives import (
    NO_UUID,
    Buffer,
    KafkaMessage,
    UnencodableMessageError,
    decode,
    encode,
)
from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.handlers.dispatch import SERVED, served_versions
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches, FetchSessionSpace
from quorumlog.v1 import acls_pb2, admin_pb2, credentials_pb2, data_plane_pb2, groups_pb2, quotas_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from tests.support.kafka_batches import kafka_batch
from tests.support.kafka_steps import TOPIC_IDS, Served, serve

#: Requests of authentication, which has a state and tests of its own (test_kafka_sign_in.py).
OF_SIGN_IN = {SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY}
BATCHES = [kafka_batch([(b"key", value, 1, [])]) for value in (b"1", b"2")]

#: By class and field: the value in the sample, and another one. Other fields have values by their type.
VALUES: dict[str, tuple[Any, Any]] = {
    "AclCreation.host": ("*", "h"),
    "AclCreation.operation": (3, 4),
    "AclCreation.permission_type": (3, 2),
    "AclCreation.principal": ("User:a", "User:b"),
    "AclCreation.resource_pattern_type": (3, 4),
    "AclCreation.resource_type": (2, 3),
    "AlterConfigsRequestAlterConfigsResource.resource_type": (2, 4),
    "AlterConfigsRequestAlterableConfig.name": ("retention.ms", "retention.bytes"),
    "ConsumerGroupHeartbeatRequest.member_epoch": (5, 6),
    "CreatableReplicaAssignment.partition_index": (0, 1),
    "CreatableTopic.num_partitions": (-1, 5),
    "CreatableTopic.replication_factor": (-1, 2),
    "CreatableTopicConfig.name": ("retention.ms", "retention.bytes"),
    "DeleteAclsFilter.host_filter": ("*", "h"),
    "DeleteAclsFilter.operation": (3, 4),
    "DeleteAclsFilter.pattern_type_filter": (3, 4),
    "DeleteAclsFilter.permission_type": (3, 2),
    "DeleteAclsFilter.principal_filter": ("User:a", "User:b"),
    "DeleteAclsFilter.resource_type_filter": (2, 3),
    "DeleteTopicState.topic_id": (NO_UUID, TOPIC_IDS["u"]),
    "DescribeAclsRequest.host_filter": ("*", "h"),
    "DescribeAclsRequest.operation": (3, 4),
    "DescribeAclsRequest.pattern_type_filter": (3, 4),
    "DescribeAclsRequest.permission_type": (3, 2),
    "DescribeAclsRequest.principal_filter": ("User:a", "User:b"),
    "DescribeAclsRequest.resource_type_filter": (2, 3),
    "DescribeConfigsResource.configuration_keys": (["retention.ms"], ["retention.bytes"]),
    "DescribeConfigsResource.resource_type": (2, 4),
    "ElectLeadersRequest.election_type": (0, 1),
    "FetchReplicaState.replica_id": (-1, 5),
    "FetchRequest.replica_id": (-1, 5),
    "FetchRequest.session_epoch": (-1, 5),
    "FindCoordinatorRequest.key_type": (0, 1),
    "IncrementalAlterConfigsRequestAlterConfigsResource.resource_type": (2, 4),
    "IncrementalAlterConfigsRequestAlterableConfig.config_operation": (0, 1),
    "IncrementalAlterConfigsRequestAlterableConfig.name": ("retention.ms", "retention.bytes"),
    "InitProducerIdRequest.transactional_id": (None, "t"),
    "ListGroupsRequest.states_filter": (["Stable"], ["Empty"]),
    "ListGroupsRequest.types_filter": (["classic"], ["consumer"]),
    "ListTransactionsRequest.state_filters": (["Ongoing"], ["Empty"]),
    "ListOffsetsPartition.timestamp": (-1, -2),
    "ListOffsetsRequest.replica_id": (-1, 5),
    "MetadataRequestTopic.name": ("missing", "u"),
    "MetadataRequestTopic.topic_id": (NO_UUID, TOPIC_IDS["t"]),
    "OffsetForLeaderEpochRequest.replica_id": (-1, 5),
    "DescribeTopicPartitionsRequest.response_partition_limit": (2, 1),
    "PageBegin.partition_index": (1, 2),
    "PartitionProduceData.records": tuple(BATCHES),
    "ProduceRequest.acks": (-1, 1),
    "ProduceRequest.transactional_id": (None, "t"),
    "QuotaComponent.entity_type": ("user", "client-id"),
    "QuotaComponent.match_type": (0, 1),
    "AlterClientQuotasRequestEntityData.entity_type": ("user", "client-id"),
    "QuotaOperation.key": ("producer_byte_rate", "consumer_byte_rate"),
    "ScramCredentialDeletion.mechanism": (1, 2),
    "ScramCredentialUpsertion.iterations": (4_096, 5_000),
    "ScramCredentialUpsertion.mechanism": (1, 2),
    "ScramCredentialUpsertion.name": ("t2", "t3"),
    "ScramCredentialUpsertion.salt": (b"s" * 16, b"t" * 16),
    "ScramCredentialUpsertion.salted_password": (b"p" * 32, b"q" * 32),
}
_REPLICAS = "of brokers that fetch as replicas"
_IN_SESSIONS = "counts within a session only (test_kafka_fetch_sessions.py)"
#: By class and field: the reason why another value changes nothing.
UNUSED: dict[str, str] = {
    "FetchRequest.cluster_id": _REPLICAS,
    "FetchRequest.replica_state": "a consumer may leave out that it is one",
    "FetchReplicaState.replica_epoch": _REPLICAS,
    "FetchPartition.high_watermark": _REPLICAS,
    "FetchPartition.last_fetched_epoch": _REPLICAS,
    "FetchPartition.log_start_offset": _REPLICAS,
    "FetchPartition.replica_directory_id": _REPLICAS,
    "FetchRequest.forgotten_topics_data": _IN_SESSIONS,
    "FetchRequest.session_id": _IN_SESSIONS,
    "ForgottenTopic.partitions": _IN_SESSIONS,
    "ForgottenTopic.topic": _IN_SESSIONS,
    "ForgottenTopic.topic_id": _IN_SESSIONS,
    "OffsetCommitRequest.retention_time_ms": "a setting of the nodes has the retention",
}
#: Further samples of requests in which a field counts only beside certain others, by what they have instead.
FURTHER: dict[type, dict[str, Any]] = {
    DescribeClientQuotasRequest: {"components": []},
    InitProducerIdRequest: {"transactional_id": "t"},
}


def values_of(owner: type, name: str, hint: Any) -> tuple[Any, list[Any]]:
    """Returns the value of a field in the sample, and others."""
    if (given := VALUES.get(f"{owner.__name__}.{name}")) is not None:
        return given[0], [given[1]]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and type(None) in parts:
        inner = Buffer if memoryview in parts else next(part for part in parts if part is not type(None))
        value, others = values_of(owner, name, inner)
        return value, [*others, None]
    if origin is not None and issubclass(origin, Sequence):
        return [sample_of(owner, name, parts[0])], [[]]
    first, second = {
        int: (1, 2),
        bool: (False, True),
        str: ("t", "u"),
        bytes: (TOPIC_IDS["t"], TOPIC_IDS["u"]),
        Buffer: (b"one", b"other"),
        float: (1.0, 2.0),
    }.get(hint, (None, None))
    if first is not None:
        return first, [second]
    return sample(hint), []


def sample_of(owner: type, name: str, hint: Any) -> Any:
    return sample(hint) if is_dataclass(hint) else values_of(owner, f"{name}[]", hint)[0]


def sample(kind: type) -> Any:
    """Returns a message with a value in each field."""
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: values_of(kind, field.name, hints[field.name])[0] for field in fields(kind)})


def changed(message: Any) -> Iterator[tuple[str, Any]]:
    """Yields the message with one field changed at a time, after the class and name of that field."""
    kind = type(message)
    hints = typing.get_type_hints(kind)
    for field in fields(message):
        value = getattr(message, field.name)
        for other in values_of(kind, field.name, hints[field.name])[1]:
            yield f"{kind.__name__}.{field.name}", replace(message, **{field.name: other})
        if isinstance(value, list) and value and is_dataclass(value[0]):
            for what, inner in changed(value[0]):
                yield what, replace(message, **{field.name: [inner, *value[1:]]})
        elif is_dataclass(value):
            for what, inner in changed(value):
                yield what, replace(message, **{field.name: inner})


def replied(question: Any) -> Any:
    """Returns the reply of the node to questions whose answers depend on more than the question; None for others."""
    if isinstance(question, admin_pb2.DescribeConfigsRequest):
        entry = admin_pb2.ConfigEntry(name="retention.ms", value="1", default_value="2", documentation="doc")
        return admin_pb2.DescribeConfigsResponse(
            results=[admin_pb2.TopicConfigs(name=name, entries=[entry]) for name in question.names]
        )
    if isinstance(question, groups_pb2.DescribeGroupsRequest):
        return groups_pb2.DescribeGroupsResponse(
            groups=[groups_pb2.GroupDescription(group_id=each, state=1) for each in question.group_ids]
        )
    if isinstance(question, data_plane_pb2.MetadataRequest):
        fenced = data_plane_pb2.BrokerMetadata(node_id=2, host="two", port=1, fenced=True)
        response = data_plane_pb2.MetadataResponse(cluster_id="c", brokers=[fenced])
        for name in question.topics:
            topic = response.topics.add(name=name, topic_id=TOPIC_IDS.get(name, b""))
            if name in TOPIC_IDS:
                for number in range(3):
                    topic.partitions.add(partition=number, replicas=[1])
            else:
                topic.error.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response
    if isinstance(question, acls_pb2.DescribeAclsRequest):
        return acls_pb2.DescribeAclsResponse(acls=[acls_pb2.Acl(resource_name="t")])
    if isinstance(question, credentials_pb2.AlterUserScramCredentialsRequest):
        return credentials_pb2.AlterUserScramCredentialsResponse(deleted=len(question.deletions))
    if isinstance(question, quotas_pb2.DescribeClientQuotasRequest):
        return quotas_pb2.DescribeClientQuotasResponse(quotas=[quotas_pb2.ClientQuota(principal="User:t")])
    if isinstance(question, admin_pb2.ListReassignmentsRequest):
        moves = [
            admin_pb2.OngoingReassignment(topic=name, partition=number) for name in TOPIC_IDS for number in range(3)
        ]
        return admin_pb2.ListReassignmentsResponse(reassignments=moves)
    return None


def served(message: KafkaMessage, version: int) -> tuple[bytes, Served] | None:
    """Returns a message as a connection reads it, and its result; None if the version cannot carry it."""
    try:
        data = b"".join(encode(message, version))
    except UnencodableMessageError:
        return None
    read = decode(type(message), data, version)
    return data, serve(read, version, replied, fetches=ConnectionFetches(FetchSessionSpace()), creates_topics=True)


def unused_fields(kind: type[KafkaMessage]) -> set[str]:
    """Returns the fields of a request that make no difference in one of the versions that carry them."""
    unused = set()
    table = served_versions()
    samples = [sample(kind)] + ([replace(sample(kind), **FURTHER[kind])] if kind in FURTHER else [])
    for version in range(kind.LOWEST, kind.HIGHEST + 1):
        if table.find(kind.API_KEY, version) is None:
            continue
        carried, used = set(), set()
        for message in samples:
            base = served(message, version)
            assert base is not None, (kind, version)
            for what, other in changed(message):
                found = served(other, version)
                if found is not None and found[0] != base[0]:
                    (carried if found[1] == base[1] else used).add(what)
        unused |= carried - used
    return unused


def fields_of(kind: type) -> set[str]:
    return {what for what, _ in changed(sample(kind))}


@pytest.mark.parametrize("key", [key for key in SERVED if key not in OF_SIGN_IN], ids=lambda key: APIS[key].name)
def test_every_field_counts(key: int) -> None:
    kind = APIS[key].request
    assert {each: UNUSED.get(each, "") for each in unused_fields(kind)} == {
        each: why for each, why in UNUSED.items() if each in fields_of(kind)
    }
