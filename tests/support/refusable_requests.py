"""Requests at the port for Kafka's clients that a node may refuse; each returns its outcome."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count
from typing import Any

from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from quorumlog.local import LocalCluster
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.command_line import until
from tests.support.kafka_batches import KafkaRow, changed, kafka_batch, with_checksum
from tests.support.kafka_oracle import their_class
from tests.support.kafka_requests import KafkaConnection

USER, PASSWORD = "alice", "canary-4c1f-kafka"
NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 20_000
TOPIC, COMPACTED = "orders", "latest"
#: Where the fields of a batch start that attempts change, and its records.
LAST_OFFSET, ATTRIBUTES, RECORD_COUNT, RECORDS = 23, 21, 57, 61
ROWS: list[KafkaRow] = [(b"k", b"value %d" % number, NOW_MS, [("trace", b"1")]) for number in range(3)]
#: Numbers of resources, ACLs and quotas in Kafka's protocol.
TOPIC_RESOURCE, NODE_RESOURCE = 2, 4
LITERAL, WRITE, DESCRIBE, CREATE_TOKENS, ALLOW = 3, 4, 8, 13, 3

CLOSED, LOGGED, MISSING = "the connection is closed", "the node logs it", "they do not exist"
IGNORED = "ignored"


class Rig:
    """A node with TLS and sign-in, and a signed-in connection to its port for Kafka's clients."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._numbers = count(1)
        self._connection = self.connect()

    @property
    def own(self) -> dict[str, Any]:
        """Options of quorumlog's own clients."""
        return {"bootstrap_servers": self.cluster.bootstrap_servers, **self.cluster.client_tls}

    @property
    def node_ca(self) -> str:
        assert self.cluster.certificates is not None
        return str(self.cluster.certificates.node_ca)

    def connect(self, *, sign_in: bool = True) -> KafkaConnection:
        """Returns another connection."""
        connection = KafkaConnection(self.cluster.kafka_bootstrap_servers, self.node_ca)
        if sign_in:
            connection.sign_in(USER, PASSWORD)
        return connection

    def close(self) -> None:
        self._connection.__exit__(None, None, None)

    def ask(self, name: str, version: int, **content: Any) -> Any:
        return self._connection.ask(name, version, **content)

    def new_name(self) -> str:
        return f"topic-{next(self._numbers)}"


#: Tries something and returns the outcome: the name of an error, ``NONE`` on success, or a phrase above.
Attempt = Callable[[Rig], set[str]]


def named(code: int) -> set[str]:
    return {KafkaError(code).name}


def producing(*batches: bytes, topic: str = TOPIC, transactional_id: str | None = None) -> Attempt:
    """Writes batches into partition 0 as the records of one request."""

    def attempt(rig: Rig) -> set[str]:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": b"".join(batches)}]}]
        answer = rig.ask(
            "Produce", 9, transactional_id=transactional_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data
        )
        return named(answer.responses[0].partition_responses[0].error_code)

    return attempt


def altered(at: int, form: str, value: int) -> Attempt:
    """Writes a batch with another value in its header."""
    return producing(changed(kafka_batch(ROWS), at, form, value))


def recoded(records: bytes, codec: KafkaCodec) -> Attempt:
    """Writes a batch that names a codec, with these bytes as its records."""
    batch = bytearray(kafka_batch(ROWS)[:RECORDS] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES, codec)
    return producing(with_checksum(bytes(batch)))


def old_batch(magic: int) -> bytes:
    """Records in message format 0 or 1."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 20)
    assert builder.append(0, NOW_MS, b"key", b"value")
    return bytes(builder.build())


def creating(name: str = "", **configs: str) -> Attempt:
    """Creates a topic, by default one of a new name. In keys, a dot is written as an underscore."""

    def attempt(rig: Rig) -> set[str]:
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        wanted = {"name": name or rig.new_name(), "num_partitions": 1, "replication_factor": 1, "configs": settings}
        return named(rig.ask("CreateTopics", 7, topics=[wanted], timeout_ms=TIMEOUT_MS).topics[0].error_code)

    return attempt


def setting(key: str, value: str, resource: int = TOPIC_RESOURCE, name: str = TOPIC) -> Attempt:
    """Changes one setting."""

    def attempt(rig: Rig) -> set[str]:
        change = {
            "resource_type": resource,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": 0, "value": value}],
        }
        return named(rig.ask("IncrementalAlterConfigs", 1, resources=[change]).responses[0].error_code)

    return attempt


def replacing(key: str, value: str, resource: int, name: str) -> Attempt:
    """Replaces all settings with one."""

    def attempt(rig: Rig) -> set[str]:
        change = {"resource_type": resource, "resource_name": name, "configs": [{"name": key, "value": value}]}
        return named(rig.ask("AlterConfigs", 2, resources=[change]).responses[0].error_code)

    return attempt


def granting(resource: int = TOPIC_RESOURCE, host: str = "*", operation: int = WRITE) -> Attempt:
    """Creates an ACL."""

    def attempt(rig: Rig) -> set[str]:
        creation = {
            "resource_type": resource,
            "resource_name": "granted",
            "resource_pattern_type": LITERAL,
            "principal": "User:bob",
            "host": host,
            "operation": operation,
            "permission_type": ALLOW,
        }
        return named(rig.ask("CreateAcls", 3, creations=[creation]).results[0].error_code)

    return attempt


def limiting(entity_type: str, key: str) -> Attempt:
    """Sets a quota."""

    def attempt(rig: Rig) -> set[str]:
        entity = [{"entity_type": entity_type, "entity_name": "127.0.0.1"}]
        entry = {"entity": entity, "ops": [{"key": key, "value": 1e6, "remove": False}]}
        return named(rig.ask("AlterClientQuotas", 1, entries=[entry], validate_only=False).entries[0].error_code)

    return attempt


def password(mechanism: int = 1, iterations: int = 4_096, salt: int = 16, user: str = "bob") -> Attempt:
    """Sets a password of a user, hashed as Kafka's tools do."""

    def attempt(rig: Rig) -> set[str]:
        wanted = {
            "name": user,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"s" * salt,
            "salted_password": b"h" * (32 if mechanism == 1 else 64),
        }
        return named(rig.ask("AlterUserScramCredentials", 0, upsertions=[wanted]).results[0].error_code)

    return attempt


def electing(kind: int) -> Attempt:
    """Elects a leader: the preferred one (0), or an unclean one (1)."""

    def attempt(rig: Rig) -> set[str]:
        places = [{"topic": TOPIC, "partitions": [0]}]
        answer = rig.ask("ElectLeaders", 2, election_type=kind, topic_partitions=places, timeout_ms=TIMEOUT_MS)
        return named(answer.replica_election_results[0].partition_result[0].error_code)

    return attempt


def fetching(version: int, **content: Any) -> Attempt:
    """Fetches without naming a partition."""
    return lambda rig: named(rig.ask("Fetch", version, max_wait_ms=0, topics=[], **content).error_code)


def describing(name: str) -> Attempt:
    """Looks for a topic, by its name and in the list of all topics."""

    def attempt(rig: Rig) -> set[str]:
        (topic,) = rig.ask("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=True).topics
        listed = {each.name for each in rig.ask("Metadata", 12, topics=None).topics}
        is_missing = topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION and name not in listed
        return {MISSING} if is_missing else named(topic.error_code)

    return attempt


def shaking_hands(mechanism: str, version: int = 1) -> Attempt:
    """Starts to authenticate."""

    def attempt(rig: Rig) -> set[str]:
        with rig.connect(sign_in=False) as connection:
            found = named(connection.ask("SaslHandshake", version, mechanism=mechanism).error_code)
            return found | ({CLOSED} if connection.is_closed() else set())

    return attempt


def unserved(name: str, version: int, *, sign_in: bool = True, **content: Any) -> Attempt:
    """Sends a request that the node does not serve, and waits for the line in its log."""

    def attempt(rig: Rig) -> set[str]:
        log = rig.cluster.log_path(1)
        line = f'reason="API {their_class(f"{name}Request").API_KEY} in version {version}"'
        before = log.read_text().count(line)
        with rig.connect(sign_in=sign_in) as connection:
            try:
                connection.ask(name, version, **content)
            except ConnectionError:
                until(lambda: log.read_text().count(line) > before, f"{name} is logged")
                return {CLOSED, LOGGED}
        return {"NONE"}

    return attempt
