"""Configurations of nodes and of their loggers: described, and changed at run time (KIP-226, KIP-412).

Settings have the names of files; those with the same meaning in Kafka have Kafka's, and are accepted with either. A
resource without a name is the record of all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from quorumlog.server.config.dynamic_settings import LOGGERS, logger_key, logger_of, problem_with_value
from quorumlog.server.config.settings import Settings
from quorumlog.server.kafka.codec.config_requests import DescribeConfigsRequest, DescribeConfigsResource
from quorumlog.server.kafka.codec.config_responses import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from quorumlog.server.kafka.handlers.configs.config_keys import RefusedConfigError
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.observability.log_levels import LogLevels
from quorumlog.v1 import node_settings_pb2 as pb

#: Kafka's numbers of these types of resources.
BROKER, BROKER_LOGGER = 4, 8
#: Sources of values, and their types, by Kafka's numbers.
_DYNAMIC_NODE, _DYNAMIC_DEFAULT, _NODE_CONFIG, _DEFAULT, _DYNAMIC_LOGGER = 2, 3, 4, 5, 6
_SOURCES: dict[int, int] = {
    pb.NODE_SETTING_SOURCE_NODE: _DYNAMIC_NODE,
    pb.NODE_SETTING_SOURCE_CLUSTER: _DYNAMIC_DEFAULT,
    pb.NODE_SETTING_SOURCE_DEFAULT: _DEFAULT,
}
_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7
#: By our name: Kafka's name of a setting with the same meaning and unit.
_KAFKA_NAMES = {
    "kafka_max_connections_per_ip": "max.connections.per.ip",
    "compaction_bytes_per_second": "log.cleaner.io.max.bytes.per.second",
    "leader_imbalance_check_interval_seconds": "leader.imbalance.check.interval.seconds",
}
_OUR_NAMES = {kafka: ours for ours, kafka in _KAFKA_NAMES.items()}
#: What limits copies here: Kafka's tool for moves sets these for each move.
_THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_ROOT_LOGGER = "root"
#: By Kafka's name of a level.
_LEVELS = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}
_SHOWN_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_SET, _DELETE = 0, 1
_MAX_NODE_ID = 2**31 - 1
#: Number of partitions of a topic whose creator does not specify it.
_PARTITIONS = 1


class _Setting(NamedTuple):
    name: str
    value: str
    kind: int
    documentation: str


def describe_node(
    call: KafkaCall[DescribeConfigsRequest], resource: DescribeConfigsResource
) -> Steps[DescribeConfigsResult]:
    """Describes the settings or the loggers of the node that serves the request, or the record of all nodes.

    It has no settings of other nodes.
    """
    name, kind = resource.resource_name, resource.resource_type
    result = DescribeConfigsResult(KafkaError.NONE, None, kind, name, configs=())
    if name != str(call.cluster.node_id) and (name or kind == BROKER_LOGGER):
        result.error_code = KafkaError.INVALID_REQUEST
        result.error_message = (
            f"this is node {call.cluster.node_id}, which describes only itself: send the request to each node"
        )
        return result
    # Denied clients must not see the settings.
    reply = yield from ask(pb.DescribeNodeSettingsRequest(), pb.DescribeNodeSettingsResponse)
    if reply.HasField("error"):
        result.error_code, result.error_message = kafka_code(reply.error), reply.error.message
        return result
    keys = resource.configuration_keys
    if kind == BROKER_LOGGER:
        shown = [_logger(call.message, *each) for each in _logger_levels(reply.settings)]
    elif not name:
        shown = [_default(call.message, *each) for each in _defaults(reply.records)]
    else:
        shown = [_told(call.message, each) for each in _settings(call)]
        shown += [_setting(call.message, each) for each in reply.settings]
    result.configs = [each for each in shown if not keys or each.name in keys]
    return result


def _kafka_name(name: str) -> str:
    return _KAFKA_NAMES.get(name, name)


def _type_of(name: str) -> int:
    field = Settings.model_fields.get(name)
    if field is None or field.annotation not in (bool, int):
        return _STRING
    return _BOOLEAN if field.annotation is bool else _LONG


def _setting(request: DescribeConfigsRequest, setting: pb.NodeSetting) -> DescribeConfigsResourceResult:
    name = _kafka_name(setting.name)
    values = [(each.value, _SOURCES.get(each.source, _NODE_CONFIG)) for each in setting.values]
    value, source = values[0]
    described = DescribeConfigsResourceResult(
        name,
        value,
        read_only=not setting.is_dynamic,
        config_source=source,
        config_type=_type_of(setting.name),
        documentation=setting.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        described.synonyms = [DescribeConfigsSynonym(name, *each) for each in values]
    return described


def _defaults(records: Iterable[pb.NodeSettingsRecord]) -> list[tuple[str, str]]:
    """Returns the names and values in the record of all nodes."""
    return sorted(item for each in records if not each.HasField("node_id") for item in each.values.items())


def _default(request: DescribeConfigsRequest, name: str, value: str) -> DescribeConfigsResourceResult:
    record = pb.NodeSettingValue(value=value, source=pb.NODE_SETTING_SOURCE_CLUSTER)
    return _setting(request, pb.NodeSetting(name=name, values=[record], is_dynamic=True))


def _logger_levels(settings: Iterable[pb.NodeSetting]) -> list[tuple[str, str]]:
    """Returns the loggers with their effective levels."""
    levels = LogLevels()
    found = {logger_of(each.name): each.values[0].value for each in settings}
    levels.follow({"": "info"} | {logger: level for logger, level in found.items() if logger is not None})
    return [(_ROOT_LOGGER, levels.level_of("")), *((logger, levels.level_of(logger)) for logger in LOGGERS)]


def _logger(request: DescribeConfigsRequest, name: str, level: str) -> DescribeConfigsResourceResult:
    shown = _SHOWN_LEVELS[level]
    described = DescribeConfigsResourceResult(name, shown, config_source=_DYNAMIC_LOGGER, config_type=_STRING)
    if request.include_synonyms:
        described.synonyms = [DescribeConfigsSynonym(name, shown, _DYNAMIC_LOGGER)]
    return described


def _settings(call: KafkaCall[DescribeConfigsRequest]) -> Iterator[_Setting]:
    node_id = call.cluster.node_id
    yield _Setting("node.id", str(node_id), _INT, "The node's id.")
    yield _Setting("broker.id", str(node_id), _INT, "The node's id.")
    address = call.cluster.kafka_address(node_id)
    if address is not None:
        host, port = address
        shown = f"[{host}]" if ":" in host else host
        yield _Setting(
            "advertised.listeners", f"KAFKA://{shown}:{port}", _LIST, "Address of the node for Kafka's clients."
        )
    yield _Setting(
        "auto.create.topics.enable",
        _flag(call.creates_topics),
        _BOOLEAN,
        "Create a topic when a client mentions it.",
    )
    yield _Setting("delete.topic.enable", _flag(True), _BOOLEAN, "Allow the deletion of topics.")
    yield _Setting(
        "unclean.leader.election.enable", _flag(False), _BOOLEAN, "Allow a replica that lacks records to become leader."
    )
    yield _Setting(
        "num.partitions", str(_PARTITIONS), _INT, "Number of partitions of a topic whose creator does not specify it."
    )
    yield _Setting(
        "default.replication.factor",
        str(call.cluster.default_replicas),
        _INT,
        "Replication factor of a topic whose creator does not specify it.",
    )


def _flag(holds: bool) -> str:
    return "true" if holds else "false"


def _told(request: DescribeConfigsRequest, setting: _Setting) -> DescribeConfigsResourceResult:
    described = DescribeConfigsResourceResult(
        setting.name,
        setting.value,
        read_only=True,
        config_source=_NODE_CONFIG,
        config_type=setting.kind,
        documentation=setting.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        described.synonyms = [DescribeConfigsSynonym(setting.name, setting.value, _NODE_CONFIG)]
    return described


# -- changes -------------------------------------------------------------------------------------------------------


def increments_of_node(
    kind: int, name: str, configs: Iterable[tuple[str, int, str | None]]
) -> pb.NodeSettingsAlteration:
    """Returns the change of a node's record, or of its loggers; one without changes has no effect.

    Arguments:
        kind, name: the resource.
        configs: keys with the number of the operation and the value.

    Raises:
        RefusedConfigError: the resource or a key cannot be changed so.
    """
    alteration = pb.NodeSettingsAlteration(node_id=_node_of(kind, name))
    for key, operation, value in configs:
        if operation == _DELETE:
            deleted = _key_of(kind, key)
            # Kafka's own tool clears limits of nodes after each move, whether it has set any or not.
            if deleted is not None:
                alteration.ops.add(key=deleted)
        elif operation != _SET:
            raise RefusedConfigError(f"{key} is not a list: use SET or DELETE", KafkaError.INVALID_REQUEST)
        else:
            _set(alteration, kind, key, value)
    if len({op.key for op in alteration.ops}) < len(alteration.ops):
        raise RefusedConfigError("the request names a key twice", KafkaError.INVALID_REQUEST)
    return alteration


def replacement_of_node(
    kind: int, name: str, configs: Iterable[tuple[str, str | None]], records: Iterable[pb.NodeSettingsRecord]
) -> pb.NodeSettingsAlteration:
    """Returns the change that replaces a node's record; levels of loggers are apart, and stay.

    Arguments:
        configs: keys with their values.
        records: the present records of all nodes.

    Raises:
        RefusedConfigError: the resource or a key cannot be changed so.
    """
    if kind == BROKER_LOGGER:
        raise RefusedConfigError("loggers are changed incrementally only", KafkaError.INVALID_REQUEST)
    alteration = increments_of_node(kind, name, ((key, _SET, value) for key, value in configs))
    kept = {op.key for op in alteration.ops}
    node = alteration.node_id if alteration.HasField("node_id") else None
    for record in records:
        if (record.node_id if record.HasField("node_id") else None) == node:
            gone = (key for key in sorted(record.values) if key not in kept and logger_of(key) is None)
            alteration.ops.extend(pb.NodeSettingOp(key=key) for key in gone)
    return alteration


def alter_nodes(
    changes: Mapping[tuple[int, str], pb.NodeSettingsAlteration], timeout_ms: int, *, validate_only: bool
) -> Steps[dict[tuple[int, str], tuple[KafkaError, str]]]:
    """Makes changes of nodes one after the other; returns the errors of those that are refused, by resource."""
    refused = {}
    for place, alteration in changes.items():
        if not alteration.ops:
            continue
        question = pb.AlterNodeSettingsRequest(
            alterations=[alteration], timeout_ms=timeout_ms, validate_only=validate_only
        )
        reply = yield from ask(question, pb.AlterNodeSettingsResponse)
        if reply.HasField("error"):
            refused[place] = kafka_code(reply.error), reply.error.message
    return refused


def _node_of(kind: int, name: str) -> int | None:
    """Returns the node of a resource; None for all nodes."""
    if not name and kind == BROKER:
        return None
    if not (name.isascii() and name.isdecimal()) or len(name) > 10 or int(name) > _MAX_NODE_ID:
        raise RefusedConfigError(f"{name[:40]!r} is not the id of a node", KafkaError.INVALID_REQUEST)
    return int(name)


def _key_of(kind: int, key: str) -> str | None:
    """Returns our name of a key; None if no such key exists."""
    if kind == BROKER_LOGGER:
        if key != _ROOT_LOGGER and key not in LOGGERS:
            return None
        return logger_key("" if key == _ROOT_LOGGER else key)
    ours = _OUR_NAMES.get(key, key)
    return ours if logger_of(ours) is not None or ours in Settings.model_fields else None


def _set(alteration: pb.NodeSettingsAlteration, kind: int, key: str, value: str | None) -> None:
    """Adds a value to a change."""
    if value is None:
        raise RefusedConfigError("a key has no value: set one, or use DELETE", KafkaError.INVALID_REQUEST)
    if key in _THROTTLES:
        raise RefusedConfigError(f"{key} is not supported: set replica_copy_bytes_per_second")
    ours = _key_of(kind, key) or (logger_key(key) if kind == BROKER_LOGGER else key)
    if kind == BROKER_LOGGER:
        level = _LEVELS.get(value.strip().upper())
        if level is None:
            raise RefusedConfigError(f"{value[:40]!r} is not a log level: set one of {', '.join(_LEVELS)}")
        value = level
    problem = problem_with_value(ours, value)
    if problem is not None:
        raise RefusedConfigError(problem)
    alteration.ops.add(key=ours, value=value)
