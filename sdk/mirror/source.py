"""The source cluster of a mirror, accessed through confluent-kafka (librdkafka).

The library is imported only here: ``pip install 'quorumlog[mirror]'``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from quorumlog.sdk.errors import IllegalArgumentError, NetworkError, QuorumlogError, UnsupportedError
from quorumlog.sdk.mirror.security_script import SourceAcl
from quorumlog.sdk.types import Headers, TopicPartition
from quorumlog.wire.topic_names import is_internal

if TYPE_CHECKING:
    import confluent_kafka

SCHEME = "kafka://"
#: Time limits of the first request, and of each later one.
FIRST_ANSWER_WITHIN_S, ANSWER_WITHIN_S = 5.0, 30.0
#: Longest time that all its nodes may be unreachable before a mirror fails. The same command resumes later.
AWAY_AT_MOST_S = 60.0
#: Limit of librdkafka's buffer for a mirror, shared by all partitions.
BUFFERED_KIB = 64 << 10
_log = logging.getLogger(__name__)
_OURS = {
    "group.id": "quorumlog-mirror",
    "client.id": "quorumlog-mirror",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "queued.max.messages.kbytes": BUFFERED_KIB,
}


class SourceTopic(NamedTuple):
    """A topic of the source.

    Arguments:
        configs: explicitly set settings.
    """

    name: str
    partitions: int
    configs: Mapping[str, str]


class SourceRecord(NamedTuple):
    """A record of the source. ``timestamp_ms`` is None without a timestamp."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class Taken(NamedTuple):
    """The result of a read.

    Arguments:
        records: in the order of their offsets, partition by partition.
        at_end: the next offset, for partitions whose end was reached.
        removed: partitions whose log does not have the requested offset.
        unreadable: offset and reason, for partitions with a batch that cannot be read.
    """

    records: Sequence[SourceRecord]
    at_end: Mapping[TopicPartition, int]
    removed: Collection[TopicPartition]
    unreadable: Mapping[TopicPartition, tuple[int, str]] = MappingProxyType({})


class MirrorSource(Protocol):
    """A cluster to copy."""

    def cluster_id(self) -> str: ...
    def topics(self) -> list[SourceTopic]: ...
    def bounds(self, partition: TopicPartition) -> tuple[int, int]: ...
    def known_end(self, partition: TopicPartition) -> int | None: ...
    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...
    def take(self, most: int, timeout_s: float) -> Taken: ...
    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]: ...


class KafkaSource:
    """A Kafka cluster.

    Arguments:
        address: ``kafka://host:port[,host:port]``.
        properties: of librdkafka, such as ``{"security.protocol": "SSL"}``, for connecting to its nodes.

    Raises:
        IllegalArgumentError: the address is invalid, or librdkafka does not support a property.
        UnsupportedError: the library is not installed.
    """

    def __init__(self, address: str, properties: Mapping[str, str] | None = None) -> None:
        servers = address.removeprefix(SCHEME)
        if servers == address or not servers:
            raise IllegalArgumentError(
                f"{address!r} is not an address of a Kafka cluster, such as kafka://127.0.0.1:9092"
            )
        try:
            import confluent_kafka
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise UnsupportedError("confluent-kafka is not installed: pip install 'quorumlog[mirror]'") from None
        self._kafka = confluent_kafka
        self._address = address
        ours = [name for name in properties or {} if name in _OURS or name == "bootstrap.servers"]
        if ours:
            raise IllegalArgumentError(f"{ours[0]} is the mirror's own: leave it out")
        # librdkafka's log of lost connections is too detailed; lasting failures are reported once, as an error.
        quiet = {"log_level": 2, "error_cb": self._told_of_an_error}
        settings: dict[str, Any] = {**quiet, **(properties or {}), **_OURS, "bootstrap.servers": servers}
        self._away_since: float | None = None
        #: The internal topics of which the log has a line.
        self._told_own: list[str] = []
        try:
            self._consumer = confluent_kafka.Consumer(settings)
            left_out = (_OURS.keys() | {"error_cb"}) - {"client.id"}
            shared = {name: value for name, value in settings.items() if name not in left_out}
            self._admin = AdminClient(shared)
        except confluent_kafka.KafkaException as error:
            raise IllegalArgumentError(f"the Kafka client refuses its settings: {_said(error)}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def cluster_id(self) -> str:
        """Returns the id of the cluster.

        Raises:
            NetworkError: no node answers.
        """
        try:
            return str(self._admin.list_topics(timeout=FIRST_ANSWER_WITHIN_S).cluster_id)
        except self._kafka.KafkaException as error:
            raise NetworkError(f"{self._address} does not answer: is it up? ({_said(error)})") from None

    def topics(self) -> list[SourceTopic]:
        """Returns all topics except internal ones, which are logged."""
        admin: Any = import_module("confluent_kafka.admin")  # Its type stubs omit some exports.
        listed = self._asked(self._admin.list_topics, timeout=ANSWER_WITHIN_S).topics.values()
        own = sorted(topic.topic for topic in listed if is_internal(topic.topic))
        if own != self._told_own:
            self._told_own = own
            _log.warning("not copied, because they are the source cluster's own topics: %s", ", ".join(own))
        found = {topic.topic: len(topic.partitions) for topic in listed if not is_internal(topic.topic)}
        if not found:
            return []
        resources = [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name) for name in found]
        described = self._asked(self._admin.describe_configs, resources, request_timeout=ANSWER_WITHIN_S)
        configs: dict[str, dict[str, str]] = {}
        for resource, future in described.items():
            entries = self._asked(future.result, ANSWER_WITHIN_S).values()
            set_by_somebody = admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            configs[resource.name] = {
                entry.name: entry.value
                for entry in entries
                if entry.value is not None and _number(entry.source) == set_by_somebody
            }
        return [SourceTopic(name, count, configs.get(name, {})) for name, count in sorted(found.items())]

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first offset of a partition, and its end: the last stable offset."""
        place = self._kafka.TopicPartition(partition.topic, partition.partition)
        low, high = self._asked(self._consumer.get_watermark_offsets, place, timeout=ANSWER_WITHIN_S, cached=False)
        return int(low), int(high)

    def known_end(self, partition: TopicPartition) -> int | None:
        """Returns the end of a partition as the last read reported it, without a request; None if no read has."""
        place = self._kafka.TopicPartition(partition.topic, partition.partition)
        try:
            _, high = self._consumer.get_watermark_offsets(place, cached=True)
        except self._kafka.KafkaException:
            return None
        return int(high) if high >= 0 else None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads exactly these partitions, from these offsets on."""
        places = [self._kafka.TopicPartition(tp.topic, tp.partition, at) for tp, at in positions.items()]
        self._asked(self._consumer.assign, places)

    def take(self, most: int, timeout_s: float) -> Taken:
        """Returns records of the assigned partitions.

        Arguments:
            most: limit of records.
            timeout_s: how long to wait for that many.

        Raises:
            QuorumlogError: the cluster refuses to be read.
            NetworkError: none of its nodes has answered for ``AWAY_AT_MOST_S``.
        """
        codes = self._kafka.KafkaError
        unreadable: dict[TopicPartition, tuple[int, str]] = {}
        records: list[SourceRecord] = []
        at_end: dict[TopicPartition, int] = {}
        removed: set[TopicPartition] = set()
        messages = self._asked(self._consumer.consume, most, timeout_s)
        self._give_up_if_away(bool(messages))
        for message in messages:
            problem = message.error()
            if problem is None:
                records.append(_record(message))
                continue
            place = TopicPartition(message.topic(), message.partition())
            if problem.code() == codes._PARTITION_EOF:
                at_end[place] = message.offset()
            elif problem.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                removed.add(place)
            elif problem.code() in (codes._BAD_MSG, codes._BAD_COMPRESSION, codes.INVALID_MSG):
                unreadable.setdefault(place, (message.offset(), problem.str()))
            elif problem.code() in (codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION, codes.UNKNOWN_TOPIC_OR_PART):
                continue  # Deleted, or not known to every node yet: the next look at the topics shows it.
            elif not problem.retriable() and problem.code() not in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN):
                where = f"{place.topic}-{place.partition} at offset {message.offset()}" if place.topic else "it"
                raise QuorumlogError(f"{self._address}: {where} cannot be read: {problem.str()}", retriable=False)
        return Taken(records, at_end, removed, unreadable)

    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """Returns the committed offsets of groups, by group."""
        listed = self._asked(self._admin.list_consumer_groups(request_timeout=ANSWER_WITHIN_S).result)
        found: dict[str, dict[TopicPartition, int]] = {}
        for listing in listed.valid:
            wanted = [self._kafka.ConsumerGroupTopicPartitions(listing.group_id)]
            (future,) = self._admin.list_consumer_group_offsets(wanted, request_timeout=ANSWER_WITHIN_S).values()
            places = self._asked(future.result).topic_partitions or ()
            found[listing.group_id] = {
                TopicPartition(place.topic, place.partition): place.offset for place in places if place.offset >= 0
            }
        return found

    def users(self) -> list[str]:
        """Returns the names of users with a password.

        Raises:
            NetworkError: the cluster refuses the request, or does not answer.
        """
        future: Any = self._admin.describe_user_scram_credentials(request_timeout=ANSWER_WITHIN_S)
        return sorted(self._asked(future.result))

    def acls(self) -> list[SourceAcl]:
        """Returns all ACLs; none if the cluster does not enforce any.

        Raises:
            NetworkError: the cluster refuses the request, or does not answer.
        """
        admin: Any = import_module("confluent_kafka.admin")
        of_any = admin.AclBindingFilter(
            admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, None, None, admin.AclOperation.ANY,
            admin.AclPermissionType.ANY,
        )  # fmt: skip
        future = self._admin.describe_acls(of_any, request_timeout=ANSWER_WITHIN_S)
        try:
            found = future.result()
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError.SECURITY_DISABLED:
                return []
            raise NetworkError(f"{self._address}: {_said(error)}") from None
        return [
            SourceAcl(
                each.principal, each.host, each.operation.name, each.permission_type.name, each.restype.name,
                each.resource_pattern_type.name, each.name,
            )
            for each in found
        ]  # fmt: skip

    def _told_of_an_error(self, error: confluent_kafka.KafkaError) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN and self._away_since is None:
            self._away_since = time.monotonic()

    def _give_up_if_away(self, heard: bool) -> None:
        if heard:
            self._away_since = None
        elif self._away_since is not None and time.monotonic() - self._away_since >= AWAY_AT_MOST_S:
            self.cluster_id()  # No records may mean that none exist: the cluster still answers this request.
            self._away_since = None

    def _asked(self, question: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return question(*arguments, **named)
        except self._kafka.KafkaException as error:
            raise NetworkError(f"{self._address}: {_said(error)}") from None


def _record(message: confluent_kafka.Message) -> SourceRecord:
    # Fields of a message without an error, which the library's own types leave open.
    place: Any = message
    kind, at_ms = place.timestamp()
    headers = [(name, value) for name, value in place.headers() or ()]
    return SourceRecord(
        TopicPartition(place.topic(), place.partition()),
        place.offset(),
        at_ms if kind and at_ms >= 0 else None,
        place.key(),
        place.value(),
        headers,
    )


def _said(error: Exception) -> str:
    problem = error.args[0] if error.args else error
    return problem.str() if hasattr(problem, "str") else str(problem)


def _number(source: Any) -> int:
    return int(getattr(source, "value", source))
