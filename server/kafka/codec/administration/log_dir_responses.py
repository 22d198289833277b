"""Kafka's messages: size of replicas on a node's disk, responses.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from quorumlog.server.kafka.codec.primitives import (
    Buffer,
    new,
    pack_compact_count,
    pack_compact_string,
    pack_count,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_string,
    unpack_string,
)

_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")
_IQQT = Struct(">iqq?")
_QQ = Struct(">qq")


@dataclass(slots=True)
class DescribeLogDirsResponse:
    """API 35, versions 1 to 4."""

    API_KEY: ClassVar[int] = 35
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    error_code: int = 0  # from version 3
    results: Sequence[DescribeLogDirsResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeLogDirsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        if version >= 3:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            each.error_code = 0
        each.results, at, left = _read_describe_log_dirs_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        if version >= 3:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_I.pack(self.throttle_time_ms))
        _write_describe_log_dirs_results(parts, self.results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeLogDirsResult:
    """``results``, versions 1 to 4."""

    error_code: int = 0
    log_dir: str = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: int = -1  # from version 4
    usable_bytes: int = -1  # from version 4


@dataclass(slots=True)
class DescribeLogDirsTopic:
    """``topics``, versions 1 to 4."""

    name: str = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


@dataclass(slots=True)
class DescribeLogDirsPartition:
    """``partitions``, versions 1 to 4."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


def _read_describe_log_dirs_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeLogDirsResult], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(DescribeLogDirsResult)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.log_dir, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.topics, at, left = _read_describe_log_dirs_topics(data, at, version, left)
        if version >= 4:
            each.total_bytes, each.usable_bytes = _QQ.unpack_from(data, at)
            at += 16
        else:
            each.total_bytes = -1
            each.usable_bytes = -1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_log_dirs_results(
    parts: list[Buffer], values: Sequence[DescribeLogDirsResult], version: int
) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(pack_compact_string(each.log_dir) if compact else pack_string(each.log_dir))
        _write_describe_log_dirs_topics(parts, each.topics, version)
        if version >= 4:
            parts.append(_QQ.pack(each.total_bytes, each.usable_bytes))
        if compact:
            parts.append(b"\0")


def _read_describe_log_dirs_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeLogDirsTopic], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(DescribeLogDirsTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_describe_log_dirs_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_log_dirs_topics(parts: list[Buffer], values: Sequence[DescribeLogDirsTopic], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_describe_log_dirs_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_describe_log_dirs_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeLogDirsPartition], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 21, left) if compact else unpack_array(data, at, 21, left)
    found = []
    for _ in range(elements):
        each = new(DescribeLogDirsPartition)
        each.partition_index, each.partition_size, each.offset_lag, each.is_future_key = _IQQT.unpack_from(data, at)
        at += 21
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_log_dirs_partitions(
    parts: list[Buffer], values: Sequence[DescribeLogDirsPartition], version: int
) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IQQT.pack(each.partition_index, each.partition_size, each.offset_lag, each.is_future_key))
        if compact:
            parts.append(b"\0")
