"""Keys of topic configurations known to Kafka's clients: ours, and Kafka's own that have no effect here."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.metadata.topic_config import is_kafkas_own
from quorumlog.v1 import admin_pb2

#: Sources of a value (``DescribeConfigsResponse.ConfigSource``).
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
_BOOLEAN, _STRING, _INT, _SHORT, _LONG, _DOUBLE, _LIST = range(1, 8)
#: Types of values (``DescribeConfigsResponse.ConfigType``).
TYPES = {
    "retention.ms": _LONG,
    "retention.bytes": _LONG,
    "cleanup.policy": _LIST,
    "delete.retention.ms": _LONG,
    "min.compaction.lag.ms": _LONG,
    "max.compaction.lag.ms": _LONG,
    "min.cleanable.dirty.ratio": _DOUBLE,
    "max.message.bytes": _INT,
    "min.insync.replicas": _INT,
    "message.timestamp.type": _STRING,
}
UNKNOWN_TYPE = 0
#: Keys of unsupported features, with the only value that is accepted: Kafka's default, which tools send.
_ONLY = {
    "unclean.leader.election.enable": "false",
    "remote.storage.enable": "false",
}
_MAX_MESSAGE_BYTES = "max.message.bytes"
#: Kafka adds the overhead of a batch to the default that it reports.
_BATCH_OVERHEAD_BYTES = 12


class RefusedConfigError(Exception):
    """Raised if a client's request is refused before the node is asked. The message has the reason."""

    def __init__(self, message: str, code: KafkaError = KafkaError.INVALID_CONFIG) -> None:
        super().__init__(message)
        self.code = code


def is_list(name: str) -> bool:
    """True if the value of a key is a list."""
    return TYPES.get(name) == _LIST


def is_without_effect(name: str) -> bool:
    """True if a key is Kafka's and has no effect here."""
    return name in _ONLY or is_kafkas_own(name)


def effective(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Returns the keys that have an effect here, with their values. A key without a value keeps its default.

    Raises:
        RefusedConfigError: a key requests an unsupported feature, or occurs twice.
    """
    values: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            continue
        only = _ONLY.get(name)
        if only is not None and value.strip().lower() != only:
            raise RefusedConfigError(f"{name} is not supported: leave it out, or set it to {only}")
        if name in values:
            raise RefusedConfigError(f"the request names {name} twice", KafkaError.INVALID_REQUEST)
        if not is_without_effect(name):
            values[name] = value
    return values


def shown_value(entry: admin_pb2.ConfigEntry, *, default: bool = False) -> str:
    """Returns a value as reported to Kafka's clients.

    Arguments:
        default: return the default value instead of the current one.
    """
    value = entry.default_value if default else entry.value
    if entry.name == _MAX_MESSAGE_BYTES and (default or entry.is_default):
        return str(int(value) + _BATCH_OVERHEAD_BYTES)
    return value
