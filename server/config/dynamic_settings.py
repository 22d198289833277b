"""The settings that can be changed at run time, by records in the metadata: their keys, and their effective values.

A setting is here only if nodes may have different values of it: nothing that replicas apply depends on one. The others
are read when a node starts: the limit of connections, for example, is given to gRPC when a listener is opened.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from quorumlog.server.config.options import NodeOptions, SettingSource
from quorumlog.server.config.settings import Settings, SettingsError, parse_setting
from quorumlog.server.step.dynamic_values import DynamicValues

#: Number of bytes of the largest request at run time: with the rest of its message, it must fit into gRPC's limit.
MOST_REQUEST_BYTES = 120 << 20
LOG_LEVEL = "log_level"
_LOGGER_PREFIX = f"{LOG_LEVEL}."
#: The logs of a node, by the package that writes. The levels of ``server`` apply to all of its packages.
LOGGERS = (
    "server",
    "server.access",
    "server.controller",
    "server.groups",
    "server.hosting",
    "server.kafka",
    "server.node",
    "server.partition",
    "server.process",
    "server.replicas",
    "server.requests",
    "server.transport",
)


class _Target(NamedTuple):
    """The field of ``DynamicValues`` that a setting changes, and the factor between their units."""

    field: str
    factor: int = 1


#: By name of the setting. ``log_level`` and ``audit_log`` are apart: their records have values of another form.
_NUMBERS = {
    "max_request_bytes": _Target("request_bytes"),
    "replica_copy_bytes_per_second": _Target("copy_bytes_per_second"),
    "compaction_bytes_per_second": _Target("compaction_bytes_per_second"),
    "leader_imbalance_check_interval_seconds": _Target("imbalance_check_interval_us", 1_000_000),
    "scrub_bytes_per_second": _Target("scrub_bytes_per_second"),
    "kafka_max_connections_per_ip": _Target("kafka_connections_per_ip"),
    "offsets_retention_ms": _Target("offsets_retention_ms"),
}
_AUDIT_LOG = "audit_log"
#: Characters of an unknown name that are compared with known ones, and shown.
_COMPARED = 80
_SWITCH = {"on": True, "off": False}
#: Names of the settings that can be changed at run time.
DYNAMIC_SETTINGS = (LOG_LEVEL, _AUDIT_LOG, *_NUMBERS)


def logger_key(logger: str) -> str:
    """Returns the key of the level of a logger; "" is the key for all loggers without a level of their own."""
    return f"{_LOGGER_PREFIX}{logger}" if logger else LOG_LEVEL


def logger_of(key: str) -> str | None:
    """Returns the logger whose level a key sets, "" for the key of all; None for keys of other settings."""
    if key == LOG_LEVEL:
        return ""
    return key.removeprefix(_LOGGER_PREFIX) if key.startswith(_LOGGER_PREFIX) else None


def problem_with_key(key: str) -> str | None:
    """Returns why a key cannot be changed at run time, in one line; None if it can."""
    logger = logger_of(key)
    if logger:
        if logger in LOGGERS:
            return None
        # Cut: a client may send a name of megabytes.
        close = difflib.get_close_matches(logger[:_COMPARED], LOGGERS, 1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(LOGGERS)}"
        return f"unknown logger {logger[:_COMPARED]!r}: {hint}"
    if key in DYNAMIC_SETTINGS:
        return None
    if key in Settings.model_fields:
        return f"{key} cannot be changed at run time: set it in the node's file and restart it"
    wanted = key[:_COMPARED].replace("-", "_").replace(".", "_")
    # Part of a name is less similar to it than to another, shorter name.
    close = [name for name in DYNAMIC_SETTINGS if wanted and wanted in name]
    close = close or difflib.get_close_matches(wanted, Settings.model_fields, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(DYNAMIC_SETTINGS)}"
    return f"unknown setting {key[:_COMPARED]!r}: {hint}"


def problem_with_value(key: str, text: str) -> str | None:
    """Returns why a record cannot have this value, in one line; None if it can."""
    problem = problem_with_key(key)
    if problem is not None:
        return problem
    try:
        _parse(key, text)
    except SettingsError as wrong:
        return str(wrong)
    return None


def _parse(key: str, text: str) -> Any:
    """Returns the value of a record.

    Raises:
        SettingsError: it is not valid.
    """
    if logger_of(key) is not None:
        return parse_setting(LOG_LEVEL, text)
    if key == _AUDIT_LOG:
        if text not in _SWITCH:
            raise SettingsError(f"wrong value {text[:_COMPARED]!r} for {key}: expected on or off")
        return _SWITCH[text]
    value = parse_setting(key, text)
    if key == "max_request_bytes" and value > MOST_REQUEST_BYTES:
        raise SettingsError(
            f"wrong value {text[:_COMPARED]!r} for {key}: expected at most {MOST_REQUEST_BYTES} at run time"
        )
    return value


class RuntimeSettings:
    """The effective settings of one node: what was configured, changed by the record of all nodes and by its own.

    A value that this version does not accept was written by another version: it has no effect here.

    Arguments:
        options: the configured values.

    Attributes:
        values: the effective values.
    """

    def __init__(self, options: NodeOptions) -> None:
        self.configured = self.values = configured_values(options)

    def follow(self, records: Iterable[Mapping[str, str]]) -> list[str]:
        """Applies the records. Returns the keys without effect, because this version does not accept them.

        Arguments:
            records: values by key; a later record takes precedence.
        """
        values, levels, ignored = self.configured, dict(self.configured.log_levels), set[str]()
        for record in records:
            for key, text in record.items():
                if problem_with_value(key, text) is not None:
                    ignored.add(key)
                    continue
                value, logger = _parse(key, text), logger_of(key)
                if logger is not None:
                    levels[logger] = value
                elif key == _AUDIT_LOG:
                    values = replace(values, audited=value)
                else:
                    target = _NUMBERS[key]
                    values = replace(values, **{target.field: value * target.factor})
        self.values = replace(values, log_levels=levels)
        return sorted(ignored)


def configured_values(options: NodeOptions) -> DynamicValues:
    """Returns the values without any record."""
    return DynamicValues(
        request_bytes=options.limits.request_bytes,
        copy_bytes_per_second=options.limits.copy_bytes_per_second,
        compaction_bytes_per_second=options.limits.compaction_bytes_per_second,
        imbalance_check_interval_us=options.balance.check_interval_us,
        scrub_bytes_per_second=options.scrub.bytes_per_second,
        kafka_connections_per_ip=options.kafka_connections_per_ip,
        offsets_retention_ms=options.groups.offsets_retention_ms,
        audited=options.authorization.audited,
        log_levels={"": options.log_level},
    )


class ReportedSetting(NamedTuple):
    """A setting of a node, for reports.

    Arguments:
        values: with their sources, the effective one first.
    """

    name: str
    values: tuple[tuple[str, SettingSource], ...]
    is_dynamic: bool
    documentation: str


def report(options: NodeOptions, cluster: Mapping[str, str], node: Mapping[str, str]) -> list[ReportedSetting]:
    """Returns the settings of a node with their values and sources, by name.

    Arguments:
        cluster, node: the records of all nodes and of this one.
    """
    configured = {each.name: each.values for each in options.configured}
    records = ((node, SettingSource.NODE), (cluster, SettingSource.CLUSTER))
    reported = []
    for name in sorted({*configured, *cluster, *node}):
        recorded = [(record[name], source) for record, source in records if name in record]
        accepted = [(text, source) for text, source in recorded if problem_with_value(name, text) is None]
        values = (*accepted, *configured.get(name, ()))
        if values:
            is_dynamic = problem_with_key(name) is None
            reported.append(ReportedSetting(name, values, is_dynamic, _documentation(name)))
    return reported


def _documentation(name: str) -> str:
    described = Settings.model_fields[LOG_LEVEL if logger_of(name) is not None else name].description
    assert described, "every setting says what is expected"
    return f"{described}; at run time on or off" if name == _AUDIT_LOG else described
