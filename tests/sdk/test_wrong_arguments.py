"""Wrong arguments to every public method of every client: an error of ours, in one line, before anything is done.

``CALLS`` says for each method how it is called rightly; each of its arguments is then replaced by junk. ``ROWS`` are
particular mistakes with the error and the words that are due. A method or an option that is missing here fails a test.
Everything is done with the synchronous clients and with those for asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    Consumer,
    GroupIdNotFoundError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    Producer,
    ProducerNameNotFoundError,
    QuorumlogError,
    RecordTooLargeError,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    TopicAlreadyExistsError,
    TopicPartition,
    TransactionToken,
    UnknownTopicOrPartitionError,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.admin import async_admin, topic_changes
from quorumlog.sdk.admin.config import AdminOptions
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from quorumlog.sdk.cluster import cluster
from quorumlog.sdk.consumer.config import ConsumerOptions
from quorumlog.sdk.errors import InvalidRequestError
from quorumlog.sdk.producer.config import ProducerOptions
from quorumlog.sdk.transaction_views import TransactionPlace

pytestmark = pytest.mark.cluster

TP = TopicPartition("orders", 0)
ALTER_USERS = "Admin.alter_user_scram_credentials"
QUOTAS = "Admin.alter_client_quotas"
ALICE = UserScramCredentialUpsertion("alice", "not-a-secret", iterations=4_096)
READS = ACL("User:alice", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "orders"))
KINDS = {"Admin": (Admin, AsyncAdmin), "Consumer": (Consumer, AsyncConsumer), "Producer": (Producer, AsyncProducer)}
OPTIONS = {"Admin": AdminOptions, "Consumer": ConsumerOptions, "Producer": ProducerOptions}
PATIENCE: dict[str, dict[str, Any]] = {
    "Admin": {"request_timeout_ms": 5_000},
    "Consumer": {"request_timeout_ms": 2_000},
    "Producer": {"max_block_ms": 500, "delivery_timeout_ms": 5_000},
}
#: Where the nodes have to answer, however busy they are.
MORE_PATIENCE: dict[str, dict[str, Any]] = {name: dict.fromkeys(options, 60_000) for name, options in PATIENCE.items()}

#: How each method is called rightly. What it changes, and what would wait, is left out.
CALLS: dict[str, dict[str, Any]] = {
    "Admin.close": {"timeout": 1},
    "Admin.alter_group_offsets": {"group_id": "g", "offsets": {TP: 0}},
    "Admin.alter_user_scram_credentials": {"alterations": [UserScramCredentialDeletion("nobody")]},
    "Admin.describe_user_scram_credentials": {"users": ["nobody"]},
    "Admin.revoke": {"serials": ["1f"]},
    "Admin.restore": {"serials": ["1f"]},
    "Admin.describe_revocations": {},
    "Admin.alter_client_quotas": {"quotas": {"User:nobody": {"request_rate": None}}},
    "Admin.alter_node_settings": {"settings": {"log_level": None}, "node_id": 1, "validate_only": True},
    "Admin.describe_node_settings": {"node_id": 1},
    "Admin.describe_client_quotas": {"principals": ["User:nobody"]},
    "Admin.create_acls": {"acls": [READS]},
    "Admin.list_transactions": {
        "states": ["Ongoing"], "producer_ids": [5], "longer_than_ms": 1, "name_pattern": "x",
    },
    "Admin.describe_transactions": {"transactional_ids": ["x"]},
    "Admin.abort_transaction": {"transactional_id": "x", "place": TransactionPlace(1, 1)},
    "Admin.describe_producers": {"partition": TP},
    "Admin.describe_acls": {"acl_filter": ACLFilter("User:nobody")},
    "Admin.delete_acls": {"acl_filters": [ACLFilter("User:nobody")]},
    "Admin.check_acl": {
        "operation": ACLOperation.READ, "resource": ResourcePattern(ResourceType.TOPIC, "orders"),
        "principal": "User:alice",
    },
    "Admin.create_topics": {"new_topics": [NewTopic("x", replication_factor=1)], "validate_only": True},
    "Admin.alter_configs": {"configs": {"orders": {"retention.ms": 86_400_000}}, "validate_only": True},
    "Admin.create_partitions": {"topic_partitions": {"orders": 6}, "validate_only": True},
    "Admin.delete_group_offsets": {"group_id": "g", "partitions": [TP]},
    "Admin.delete_groups": {"group_ids": ["nope"]},
    "Admin.delete_producers": {"names": ["nope"], "claimed_before_ms": 1},
    "Admin.delete_topics": {"topics": ["nope"]},
    "Admin.describe_configs": {"topics": ["orders"]},
    "Admin.delete_records": {"records_to_delete": {TP: 0}},
    "Admin.describe_cluster": {},
    "Admin.describe_groups": {"group_ids": ["g"]},
    "Admin.describe_node": {},
    "Admin.describe_nodes": {},
    "Admin.describe_quorum": {},
    "Admin.drain_node": {
        "node_id": 1,
        "to": 2,
        "together": [3],
        "throttle_bytes_per_second": 1 << 20,
        "validate_only": True,
    },
    "Admin.undrain_node": {"node_id": 1},
    "Admin.replace_disk": {"node_id": 1, "throttle_bytes_per_second": 1 << 20, "validate_only": True},
    "Admin.remove_node": {"node_id": 1, "validate_only": True},
    "Admin.alter_quorum": {"add": [1], "remove": [2], "validate_only": True},
    "Admin.upgrade_features": {"validate_only": True},
    "Admin.describe_topics": {"topics": ["orders"]},
    "Admin.elect_leaders": {"partitions": [TP]},
    "Admin.list_group_offsets": {"group_id": "g", "partitions": [TP]},
    "Admin.list_groups": {"states": ["Stable"]},
    "Admin.list_partition_reassignments": {},
    "Admin.list_producers": {"prefix": "n"},
    "Admin.list_topics": {},
    "Admin.watch_cluster": {"address": None},
    "Admin.reassign_partitions": {
        "reassignments": {TP: [1, 2, 3]}, "throttle_bytes_per_second": 1 << 20, "validate_only": True
    },
    "Admin.rebalance_partitions": {"most_moves": 1, "throttle_bytes_per_second": 1 << 20, "validate_only": True},
    "Consumer.assign": {"partitions": [TP]},
    "Consumer.assignment": {},
    "Consumer.beginning_offsets": {"partitions": [TP]},
    "Consumer.close": {"autocommit": True, "timeout": 1},
    "Consumer.commit": {"offsets": {TP: 0}},
    "Consumer.commit_async": {"offsets": {TP: 0}, "callback": None},
    "Consumer.committed": {"partition": TP, "metadata": False},
    "Consumer.end_offsets": {"partitions": [TP]},
    "Consumer.group_metadata": {},
    "Consumer.highwater": {"partition": TP},
    "Consumer.offsets_for_times": {"timestamps": {TP: 0}},
    "Consumer.partitions_for_topic": {"topic": "orders"},
    "Consumer.pause": {"partitions": TP},
    "Consumer.metrics": {},
    "Consumer.paused": {},
    "Consumer.poll": {"timeout_ms": 1, "max_records": 1},
    "Consumer.poll_arrow": {"timeout_ms": 1, "max_records": 1},
    "Consumer.position": {"partition": TP},
    "Consumer.resume": {"partitions": TP},
    "Consumer.seek": {"partition": TP, "offset": 0},
    "Consumer.seek_to_beginning": {"partitions": TP},
    "Consumer.seek_to_end": {"partitions": TP},
    "Consumer.subscribe": {"topics": ["orders"], "pattern": None, "listener": None},
    "Consumer.subscription": {},
    "Consumer.topics": {},
    "Consumer.unsubscribe": {},
    "Producer.close": {},
    "Producer.end_epoch": {"timeout": 1},
    "Producer.flush": {"timeout": 1},
    "Producer.metrics": {},
    "Producer.explain": {"topic": "orders", "value": b"v", "key": None, "headers": [("trace", b"1")], "partition": 0,
                         "timestamp_ms": None},
    "Producer.partitions_for": {"topic": "orders"},
    "Producer.transaction": {"consumer": None, "work": None},
    "Producer.finish": {},
    "Producer.send": {
        "topic": "orders", "value": b"v", "key": b"k", "headers": [("h", b"v")], "partition": 0, "timestamp_ms": 1,
    },
    "Producer.send_many": {
        "topic": "orders", "values": [b"v"], "keys": [b"k"], "headers": [[("h", b"v")]], "partition": 0,
        "timestamps_ms": [1],
    },
    "Producer.send_arrow": {"topic": "orders", "data": pa.table({"value": [b"v"]}), "partition": 0},
}  # fmt: skip
#: Only the clients for asyncio have these.
ASYNC_ONLY = {"Producer.start", "Consumer.start", "Producer.send_and_wait"}

JUNK: tuple[Any, ...] = (
    None, True, -1, 1.5, 2**31, 2**63, 10**40, float("nan"), "", "x", "\udcff", "a\nb", b"", b"\xff", object(),
    [], ["x"], [None], [5], (), ("other",), {}, {"x": 1},
    TP, ("orders", "0"), ("orders", -1), ("orders", 2**31), ("orders", True), (5, 0), ("\udcff", 0),
    [("orders", 2**40)], [("h", "v")], [("\udcff", b"v")],
    {TP: "x"}, {TP: -2}, {TP: 2**63}, {TP: None}, {TP: True}, {("orders", -1): 0},
    {"orders": {"retention.ms": object()}}, {"orders": {5: 6}}, {"orders": NewPartitions(2**40)},
    {"orders": NewPartitions(6, [["x"]])}, {"orders": NewPartitions(6, 5)},  # type: ignore[list-item,arg-type]
    [NewTopic("x", num_partitions=2**31)], [NewTopic("x", num_partitions=1.5)],  # type: ignore[arg-type]
    [NewTopic(5)], [NewTopic("\udcff")], [NewTopic("x", topic_configs={5: 6})],  # type: ignore[arg-type,dict-item]
    [NewTopic("x", replica_assignments=5)], [NewTopic("x", replica_assignments={0: 5})],  # type: ignore[arg-type,dict-item]
    [NewTopic("x", replica_assignments={"x": [1]})],  # type: ignore[dict-item]
    pa.table({"price": [1]}), pa.table({"value": [1]}), pa.table({}),
)  # fmt: skip


def options_for(call: str) -> dict[str, Any]:
    """Returns the arguments that the client must be made with so that the call makes sense."""
    if call in ("Consumer.commit", "Consumer.commit_async", "Consumer.committed"):
        return {"group_id": "g"}
    return {
        "Producer.transaction": {"transactional_id": "t"},
        "Producer.finish": {"joins": TransactionToken("t", 1, 0)},
    }.get(call, {})


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


@pytest.fixture(scope="module")
def servers(quorumlog_cluster: LocalCluster) -> str:
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", num_partitions=3)])
        admin.alter_group_offsets("g", {TP: 0})
    return quorumlog_cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not known now does not exist: none is created in the meantime."""
    monkeypatch.setattr(async_admin, "UNKNOWN_TOPIC_GRACE_S", 0)
    monkeypatch.setattr(topic_changes, "UNKNOWN_TOPIC_GRACE_S", 0)
    monkeypatch.setattr(cluster, "_UNKNOWN_TOPIC_GRACE_S", 0)


@pytest.fixture(autouse=True)
def nothing_fails_in_the_background(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


class Client:
    """One client, called in the same way whether it is for asyncio or not."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, method: str, arguments: Mapping[str, Any]) -> Any:
        bound = getattr(self.client, method)
        positional = [arguments["partitions"]] if _takes_several(bound) and arguments else []
        result = bound(*positional, **({} if positional else arguments))
        result = await result if isinstance(result, Awaitable) and not hasattr(result, "add_done_callback") else result
        if method in ("send", "commit_async"):
            return await result
        return result


def _takes_several(bound: Callable[..., Any]) -> bool:
    return any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in inspect.signature(bound).parameters.values())


@pytest_asyncio.fixture(params=["sync", "asyncio"])
async def make(request: pytest.FixtureRequest, servers: str) -> AsyncIterator[Callable[..., Client]]:
    """Makes clients of one kind; closes them all."""
    made: list[Any] = []

    def client(name: str, **options: Any) -> Client:
        kind = KINDS[name][request.param == "asyncio"]
        made.append(kind(**({"bootstrap_servers": servers} | PATIENCE[name] | options)))
        return Client(made[-1])

    yield client
    for one in made:
        closing = one.close()
        if isinstance(closing, Awaitable):
            await closing


def test_every_method_is_in_the_table() -> None:
    for name, (sync, asynchronous) in KINDS.items():
        expected = {call.partition(".")[2] for call in CALLS if call.startswith(f"{name}.")}
        assert methods(sync) == expected, f"{name}: say in CALLS how each method is called"
        only = {call.partition(".")[2] for call in ASYNC_ONLY if call.startswith(f"{name}.")}
        assert methods(asynchronous) - only == expected, f"Async{name} has other methods than {name}"


@pytest.mark.parametrize("call", [call for call, arguments in CALLS.items() if arguments])
async def test_junk_is_taken_or_refused_with_an_error_of_ours(call: str, make: Callable[..., Client]) -> None:
    name, _, method = call.partition(".")
    client = make(name, **options_for(call))
    if name == "Consumer" and method != "assign":
        await client.call("assign", {"partitions": [TP]})
    for argument in CALLS[call].keys() - {"validate_only", "autocommit", "metadata"}:  # Anything is true or false.
        for junk in JUNK:
            if argument.startswith("timeout") and type(junk) is int and junk > 1:
                continue  # It would be waited for.
            if method == "delete_topics" and junk == ("orders", "0"):
                continue  # The others need the topic.
            try:
                await client.call(method, CALLS[call] | {argument: junk})
            except QuorumlogError as error:
                refusal = error.message
            except Exception as error:
                raise AssertionError(f"{call}({argument}={junk!r}) raised {error!r}") from error
            else:
                continue
            finally:
                if method == "close":
                    client = make(name)
            assert refusal.isprintable(), (argument, junk)
            assert len(refusal) > 15, (argument, junk, refusal)


@pytest.mark.parametrize("name", KINDS)
def test_junk_as_an_option_is_taken_or_refused_with_an_error_of_ours(name: str) -> None:
    for kind in KINDS[name]:
        for option in OPTIONS[name].__annotations__:
            for junk in (*JUNK, "5", float("inf"), -(10**40)):
                try:
                    made = kind(**{option: junk})
                except QuorumlogError as error:
                    refusal = error.message
                except Exception as error:
                    raise AssertionError(f"{kind.__name__}({option}={junk!r}) raised {error!r}") from error
                else:
                    closing = made.close()
                    if isinstance(closing, Awaitable):
                        asyncio.run(closing)  # type: ignore[arg-type]
                    continue
                assert option.split("_")[0] in refusal, (option, junk, refusal)
                assert refusal.isprintable(), (option, junk, refusal)
        with pytest.raises(IllegalArgumentError, match="did you mean 'client_id'"):
            kind(clientid="x")


NOWHERE = TopicPartition("orders", 7)
UNKNOWN = TopicPartition("nope", 0)
ILLEGAL = TopicPartition("not/allowed", 0)

#: Method, arguments in place of the right ones, error, words.
ROWS: list[tuple[str, dict[str, Any], type[QuorumlogError], str]] = [
    ("Admin.create_topics", {"new_topics": [NewTopic("not/allowed")]}, InvalidTopicError, "letters"),
    ("Admin.create_topics", {"new_topics": [NewTopic("y", num_partitions=0)]}, InvalidPartitionsError, "0 partitions"),
    ("Admin.create_topics", {"new_topics": [NewTopic("x"), NewTopic("x")]}, IllegalArgumentError, "twice"),
    ("Admin.create_topics", {"new_topics": NewTopic("x")}, IllegalArgumentError, "list of NewTopic"),
    ("Admin.create_topics", {"new_topics": ["x"]}, IllegalArgumentError, "NewTopic objects, not str"),
    ("Admin.create_topics", {"new_topics": [NewTopic("orders")]}, TopicAlreadyExistsError, "exists"),
    (
        "Admin.create_topics", {"new_topics": [NewTopic("y", replication_factor=4)]},
        InvalidReplicationFactorError, "use factor 3",
    ),
    (
        "Admin.create_topics", {"new_topics": [NewTopic("y", topic_configs={"retention": 1})]},
        InvalidConfigError, "did you mean retention.ms",
    ),
    ("Admin.alter_configs", {"configs": {"orders": {"retention": 1}}}, InvalidConfigError, "did you mean retention.ms"),
    ("Admin.alter_configs", {"configs": {"nope": {"retention.ms": 1}}}, UnknownTopicOrPartitionError, "nope"),
    ("Admin.create_partitions", {"topic_partitions": {"orders": 2}}, InvalidPartitionsError, "orders"),
    ("Admin.create_partitions", {"topic_partitions": {"orders": "6"}}, IllegalArgumentError, "NewPartitions"),
    ("Admin.delete_topics", {"topics": "orders"}, IllegalArgumentError, "list of names"),
    ("Admin.delete_topics", {"topics": ["nope"]}, UnknownTopicOrPartitionError, "nope"),
    (ALTER_USERS, {"alterations": ALICE}, IllegalArgumentError, "give a list of"),
    (ALTER_USERS, {"alterations": []}, IllegalArgumentError, "give 1 to 1000"),
    (ALTER_USERS, {"alterations": ["alice"]}, IllegalArgumentError, "holds a str"),
    (ALTER_USERS, {"alterations": [replace(ALICE, user=5)]}, IllegalArgumentError, "user 5"),
    (ALTER_USERS, {"alterations": [replace(ALICE, user="*")]}, InvalidRequestError, "user name *"),
    (
        ALTER_USERS, {"alterations": [replace(ALICE, user="User:alice")]},
        InvalidRequestError, "without User:",
    ),
    (ALTER_USERS, {"alterations": [ALICE, ALICE]}, InvalidRequestError, "named twice"),
    (ALTER_USERS, {"alterations": [replace(ALICE, password="")]}, IllegalArgumentError, "0 ch"),
    (ALTER_USERS, {"alterations": [replace(ALICE, password=b"x")]}, IllegalArgumentError, "text"),
    (
        ALTER_USERS, {"alterations": [replace(ALICE, password="a\nb")]},
        IllegalArgumentError, "line break",
    ),
    (ALTER_USERS, {"alterations": [replace(ALICE, iterations=9)]}, IllegalArgumentError, "4096"),
    (
        ALTER_USERS, {"alterations": [replace(ALICE, for_super_user=True)]},
        PolicyViolationError, "only a super user",
    ),
    ("Admin.describe_user_scram_credentials", {"users": "alice"}, IllegalArgumentError, "list of texts"),
    ("Admin.describe_user_scram_credentials", {"users": [5]}, IllegalArgumentError, "not text"),
    ("Admin.revoke", {"serials": "1f"}, IllegalArgumentError, "list of texts"),
    ("Admin.revoke", {"serials": ["x"]}, InvalidRequestError, "hexadecimal digits"),
    ("Admin.revoke", {"serials": []}, IllegalArgumentError, "say which serials"),
    ("Admin.revoke", {"principals": ["alice"]}, InvalidRequestError, "not User: and a name"),
    ("Admin.restore", {"principals": [5]}, IllegalArgumentError, "not text"),
    (QUOTAS, {"quotas": ["User:alice"]}, IllegalArgumentError, "map principals"),
    (QUOTAS, {"quotas": {}}, IllegalArgumentError, "give 1 to 1000"),
    (QUOTAS, {"quotas": {5: {}}}, IllegalArgumentError, "principal 5"),
    (QUOTAS, {"quotas": {"User:alice": 5}}, IllegalArgumentError, "map keys"),
    (QUOTAS, {"quotas": {"User:alice": {}}}, InvalidRequestError, "no change requested"),
    (QUOTAS, {"quotas": {"User:alice": {5: 1}}}, IllegalArgumentError, "called 5"),
    (QUOTAS, {"quotas": {"User:alice": {"request_rate": "5"}}}, IllegalArgumentError, "give a number"),
    (QUOTAS, {"quotas": {"User:alice": {"request_rate": True}}}, IllegalArgumentError, "give a number"),
    (QUOTAS, {"quotas": {"User:alice": {"request_rate": 10**400}}}, IllegalArgumentError, "give a number"),
    (QUOTAS, {"quotas": {"User:alice": {"request_rate": 0}}}, InvalidRequestError, "give 1 to"),
    (QUOTAS, {"quotas": {"User:alice": {"request_percentage": 50}}}, InvalidRequestError, "no quota"),
    (QUOTAS, {"quotas": {"alice": {"request_rate": 5}}}, InvalidRequestError, "principal 'alice'"),
    ("Admin.describe_client_quotas", {"principals": "User:alice"}, IllegalArgumentError, "list of texts"),
    ("Admin.describe_client_quotas", {"principals": [5]}, IllegalArgumentError, "principal 5"),
    ("Admin.create_acls", {"acls": READS}, IllegalArgumentError, "list of ACL"),
    ("Admin.create_acls", {"acls": []}, IllegalArgumentError, "at least one ACL"),
    ("Admin.create_acls", {"acls": ["Read"]}, IllegalArgumentError, "not an ACL"),
    ("Admin.create_acls", {"acls": [replace(READS, principal="alice")]}, InvalidRequestError, "User: and a name"),
    ("Admin.create_acls", {"acls": [replace(READS, operation="READ")]}, IllegalArgumentError, "a valid ACLOperation"),
    (
        "Admin.create_acls", {"acls": [replace(READS, operation=ACLOperation.ANY)]}, InvalidRequestError,
        "choose from All",
    ),
    (
        "Admin.create_acls",
        {"acls": [replace(READS, resource_pattern=ResourcePattern(ResourceType.CLUSTER, "mine"))]},
        InvalidRequestError, "kafka-cluster",
    ),
    ("Admin.describe_acls", {"acl_filter": READS}, IllegalArgumentError, "not an ACLFilter"),
    (
        "Admin.describe_acls",
        {"acl_filter": ACLFilter(resource_pattern=ResourcePatternFilter(pattern_type=ACLResourcePatternType.MATCH))},
        InvalidRequestError, "MATCH needs",
    ),
    ("Admin.delete_acls", {"acl_filters": []}, IllegalArgumentError, "at least one ACLFilter"),
    ("Admin.delete_acls", {"acl_filters": ACLFilter()}, IllegalArgumentError, "list of ACLFilter"),
    ("Admin.check_acl", {"operation": ACLOperation.ALL}, InvalidRequestError, "one after the other"),
    ("Admin.check_acl", {"resource": "orders"}, IllegalArgumentError, "not a ResourcePattern"),
    ("Admin.delete_producers", {"names": ["nope"]}, ProducerNameNotFoundError, "producer name 'nope' does not exist"),
    ("Admin.delete_producers", {"names": "nope"}, IllegalArgumentError, "list of names"),
    ("Admin.delete_producers", {"names": [""]}, IllegalArgumentError, "not a name"),
    ("Admin.delete_producers", {"names": ["x" * 250]}, InvalidRequestError, "249 characters"),
    ("Admin.delete_producers", {"claimed_before_ms": 0}, IllegalArgumentError, "milliseconds since 1970"),
    ("Admin.list_producers", {"prefix": 5}, IllegalArgumentError, "start with 5"),
    ("Admin.describe_configs", {"topics": ["nope"]}, UnknownTopicOrPartitionError, "nope"),
    ("Admin.delete_records", {"records_to_delete": {TP: 10**6}}, OffsetOutOfRangeError, "1000000"),
    ("Admin.delete_records", {"records_to_delete": {TP: -2}}, IllegalArgumentError, "-2"),
    ("Admin.delete_records", {"records_to_delete": {NOWHERE: 0}}, InvalidPartitionsError, "no partition 7"),
    ("Admin.delete_records", {"records_to_delete": {UNKNOWN: 0}}, UnknownTopicOrPartitionError, "'nope'"),
    ("Admin.describe_topics", {"topics": "orders"}, IllegalArgumentError, "list of names"),
    ("Admin.describe_topics", {"topics": ["nope"]}, UnknownTopicOrPartitionError, "create it first"),
    ("Admin.describe_topics", {"topics": ["not/allowed"]}, InvalidTopicError, "letters"),
    ("Admin.alter_group_offsets", {"offsets": {TP: -1}}, IllegalArgumentError, "offset from 0 on"),
    ("Admin.alter_group_offsets", {"offsets": {TP: OffsetAndMetadata(0, b"x")}}, IllegalArgumentError, "give text"),
    ("Admin.alter_group_offsets", {"offsets": {TP: OffsetAndMetadata(0, "", -1)}}, IllegalArgumentError, "epoch"),
    ("Admin.alter_group_offsets", {"offsets": {TP: 10**6}}, OffsetOutOfRangeError, "it has "),
    ("Admin.alter_group_offsets", {"offsets": {NOWHERE: 0}}, InvalidPartitionsError, "no partition 7"),
    ("Admin.alter_group_offsets", {"offsets": [TP]}, IllegalArgumentError, "mapping"),
    ("Admin.delete_group_offsets", {"partitions": [UNKNOWN]}, UnknownTopicOrPartitionError, "'nope'"),
    ("Admin.delete_groups", {"group_ids": ["nope"]}, GroupIdNotFoundError, "there is no group nope"),
    ("Admin.describe_groups", {"group_ids": ["x" * 250]}, InvalidGroupIdError, "249 characters"),
    ("Admin.list_group_offsets", {"group_id": "x" * 250}, InvalidGroupIdError, "249 characters"),
    ("Admin.delete_groups", {"group_ids": "g"}, IllegalArgumentError, "list of ids"),
    ("Admin.describe_groups", {"group_ids": [""]}, IllegalArgumentError, "not an id"),
    ("Admin.list_group_offsets", {"group_id": 5}, IllegalArgumentError, "group 5"),
    ("Admin.list_group_offsets", {"partitions": [NOWHERE]}, InvalidPartitionsError, "no partition 7"),
    ("Admin.list_groups", {"states": ["Sleeping"]}, IllegalArgumentError, "choose among Empty, Assigning"),
    ("Admin.list_groups", {"states": "Stable"}, IllegalArgumentError, "give a list"),
    ("Admin.reassign_partitions", {"reassignments": {TP: [1, 2, 9]}}, InvalidReplicaAssignmentError, "9"),
    ("Admin.rebalance_partitions", {"most_moves": 0}, IllegalArgumentError, "at least 1"),
    ("Admin.rebalance_partitions", {"throttle_bytes_per_second": 1_000}, InvalidRequestError, "too slow"),
    ("Admin.rebalance_partitions", {"throttle_bytes_per_second": "1MB"}, IllegalArgumentError, "whole number of bytes"),
    ("Admin.reassign_partitions", {"reassignments": {TP: ["1"]}}, IllegalArgumentError, "node ids"),
    ("Admin.reassign_partitions", {"reassignments": {TP: [1, 2]}}, InvalidReplicationFactorError, "2"),
    ("Consumer.assign", {"partitions": TP}, IllegalArgumentError, "'orders' is not a TopicPartition"),
    ("Consumer.assign", {"partitions": [NOWHERE]}, InvalidPartitionsError, "it has 0 to 2"),
    ("Consumer.assign", {"partitions": [UNKNOWN]}, UnknownTopicOrPartitionError, "'nope'"),
    ("Consumer.assign", {"partitions": [ILLEGAL]}, InvalidTopicError, "letters"),
    ("Consumer.commit", {"offsets": {TP: -1}}, IllegalArgumentError, "from 0 on"),
    ("Consumer.commit", {"offsets": {TP: "5"}}, IllegalArgumentError, "must be an offset"),
    ("Consumer.commit", {"offsets": 5}, IllegalArgumentError, "mapping from TopicPartition"),
    ("Consumer.commit", {"offsets": {NOWHERE: 0}}, InvalidPartitionsError, "no partition 7"),
    ("Consumer.commit", {"offsets": {UNKNOWN: 0}}, UnknownTopicOrPartitionError, "'nope'"),
    (
        "Consumer.commit", {"offsets": {TP: OffsetAndMetadata(1, "x" * 5000)}},
        OffsetMetadataTooLargeError, "4096",
    ),
    ("Consumer.commit_async", {"callback": "print"}, IllegalArgumentError, "function"),
    ("Consumer.committed", {"partition": NOWHERE}, InvalidPartitionsError, "no partition 7"),
    ("Consumer.committed", {"partition": "orders"}, IllegalArgumentError, "not a TopicPartition"),
    ("Consumer.subscribe", {"topics": "orders"}, IllegalArgumentError, "list of names"),
    ("Consumer.subscribe", {"topics": []}, IllegalArgumentError, "either topics or a pattern"),
    ("Consumer.subscribe", {"pattern": "o.*"}, IllegalArgumentError, "either topics or a pattern"),
    ("Consumer.subscribe", {"topics": [], "pattern": "o.*"}, IllegalArgumentError, "group_id"),
    ("Consumer.subscribe", {"listener": print}, IllegalArgumentError, "ConsumerRebalanceListener"),
    ("Consumer.end_offsets", {"partitions": [UNKNOWN]}, UnknownTopicOrPartitionError, "'nope'"),
    ("Consumer.beginning_offsets", {"partitions": [NOWHERE]}, InvalidPartitionsError, "no partition 7"),
    ("Consumer.offsets_for_times", {"timestamps": {TP: -1}}, IllegalArgumentError, "milliseconds"),
    ("Consumer.poll", {"timeout_ms": -1}, IllegalArgumentError, "timeout_ms"),
    ("Consumer.poll", {"max_records": 0}, IllegalArgumentError, "max_records"),
    ("Consumer.seek", {"partition": NOWHERE}, IllegalStateError, "orders-7 is not assigned"),
    ("Consumer.seek", {"offset": -1}, IllegalArgumentError, "offset"),
    ("Consumer.seek", {"offset": 2**63}, IllegalArgumentError, "offset"),
    ("Consumer.pause", {"partitions": NOWHERE}, IllegalStateError, "not assigned"),
    ("Producer.send", {"topic": "nope"}, UnknownTopicOrPartitionError, "create it first"),
    ("Producer.send", {"topic": "not/allowed"}, InvalidTopicError, "letters"),
    ("Producer.send", {"value": "text"}, IllegalArgumentError, "value_serializer"),
    ("Producer.send", {"key": 5}, IllegalArgumentError, "key_serializer"),
    ("Producer.send", {"partition": 7}, InvalidPartitionsError, "it has 0 to 2"),
    ("Producer.send", {"value": b"x" * 2_000_000}, RecordTooLargeError, "max_request_size"),
    ("Producer.send", {"headers": {"h": 5}}, IllegalArgumentError, "header 'h' has a value of int"),
    ("Producer.send", {"timestamp_ms": -1}, IllegalArgumentError, "milliseconds"),
    ("Producer.send_many", {"values": b"v"}, IllegalArgumentError, "give a list"),
    ("Producer.send_many", {"keys": [b"k", b"k"]}, IllegalArgumentError, "keys has 2 elements and values has 1"),
    ("Producer.send_arrow", {"data": [b"v"]}, IllegalArgumentError, "pyarrow"),
    ("Producer.send_arrow", {"data": pa.table({"price": [1]})}, IllegalArgumentError, "key, value, timestamp"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "wrong", "error", "words"), ROWS, ids=[f"{row[0]}({str(row[1])[:40]})" for row in ROWS]
)
async def test_a_mistake_gets_its_error_and_a_line_that_helps(
    call: str, wrong: dict[str, Any], error: type[QuorumlogError], words: str, make: Callable[..., Client]
) -> None:
    name, _, method = call.partition(".")
    client = make(name, **(MORE_PATIENCE[name] | options_for(call)))
    if name == "Consumer":
        await client.call("assign", {"partitions": [TP]})
    with pytest.raises(QuorumlogError) as caught:
        await client.call(method, CALLS[call] | wrong)
    assert type(caught.value) is error, caught.value
    assert words in caught.value.message
    assert caught.value.message.isprintable()


async def test_what_needs_a_group_says_so(make: Callable[..., Client]) -> None:
    client = make("Consumer")
    for method in ("commit", "commit_async", "committed", "group_metadata"):
        with pytest.raises(IllegalStateError, match="give group_id"):
            await client.call(method, CALLS[f"Consumer.{method}"])


async def test_subscriptions_and_assignments_by_hand_exclude_each_other(make: Callable[..., Client]) -> None:
    client = make("Consumer", group_id="g")
    await client.call("assign", {"partitions": [TP]})
    with pytest.raises(IllegalStateError, match="unsubscribe before"):
        await client.call("subscribe", {"topics": ["orders"]})
    await client.call("unsubscribe", {})
    await client.call("subscribe", {"topics": ["orders"]})
    with pytest.raises(IllegalStateError, match="unsubscribe before"):
        await client.call("assign", {"partitions": [TP]})
    assert await client.call("subscription", {}) == {"orders"}


async def test_a_consumer_with_nothing_to_read_says_so(make: Callable[..., Client]) -> None:
    client = make("Consumer")
    for method in ("poll", "poll_arrow", "seek_to_end", "position"):
        with pytest.raises(IllegalStateError, match="call assign"):
            await client.call(method, CALLS[f"Consumer.{method}"])


@pytest.mark.parametrize("call", [call for call in CALLS if not call.endswith((".close", ".metrics", ".paused"))])
async def test_a_closed_client_says_so(call: str, make: Callable[..., Client]) -> None:
    name, _, method = call.partition(".")
    client = make(name)
    await client.call("close", {})
    await client.call("close", {})
    with pytest.raises(IllegalStateError, match="closed"):
        await client.call(method, CALLS[call])
