"""Keys of topics' configurations as Kafka's clients know them: ours, and Kafka's own that mean nothing here."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.metadata.topic_config import is_kafkas_own
from quorumlog.v1 import admin_pb2

#: Where a value comes from (``DescribeConfigsResponse.ConfigSource``).
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
_BOOLEAN, _STRING, _INT, _SHORT, _LONG, _DOUBLE, _LIST = range(1, 8)
#: Of what type a value is (``DescribeConfigsResponse.ConfigType``).
TYPES = {
    "retention.ms": _LONG,
    "retention.bytes": _LONG,
    "cleanup.policy": _LIST,
    "delete.retention.ms": _LONG,
    "min.cleanable.dirty.ratio": _DOUBLE,
    "max.message.bytes": _INT,
    "min.insync.replicas": _INT,
    "message.timestamp.type": _STRING,
}
UNKNOWN_TYPE = 0
#: Keys of what there is not, with the one value that asks for none of it: Kafka's default, which tools send.
_ONLY = {
    "unclean.leader.election.enable": "false",
    "remote.storage.enable": "false",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
}
_MAX_MESSAGE_BYTES = "max.message.bytes"
#: What Kafka counts of a batch beyond its message, and tells with its default.
_BATCH_OVERHEAD_BYTES = 12


class RefusedConfigError(Exception):
    """What a client asks for is refused before the node is asked. The message says why."""

    def __init__(self, message: str, code: KafkaError = KafkaError.INVALID_CONFIG) -> None:
        super().__init__(message)
        self.code = code


def is_without_effect(name: str) -> bool:
    """Whether a key is Kafka's, and means nothing here."""
    return name in _ONLY or is_kafkas_own(name)


def effective(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The keys that mean something here, with their values. One without a value has its default.

    Raises:
        RefusedConfigError: a key asks for what there is not, or is there twice.
    """
    found: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            continue
        only = _ONLY.get(name)
        if only is not None and value.strip().lower() != only:
            raise RefusedConfigError(f"{name} is not supported: leave it out, or set it to {only}")
        if name in found:
            raise RefusedConfigError(f"{name} is named twice", KafkaError.INVALID_REQUEST)
        if not is_without_effect(name):
            found[name] = value
    return found


def shown_value(entry: admin_pb2.ConfigEntry, *, default: bool = False) -> str:
    """A value as Kafka's clients are told it.

    Arguments:
        default: the one that holds when none is set.
    """
    value = entry.default_value if default else entry.value
    if entry.name == _MAX_MESSAGE_BYTES and (default or entry.is_default):
        return str(int(value) + _BATCH_OVERHEAD_BYTES)
    return value
