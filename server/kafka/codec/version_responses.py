"""Kafka's messages: supported APIs and versions, responses.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from quorumlog.server.kafka.codec.primitives import (
    Buffer,
    check_end,
    new,
    pack_compact_count,
    pack_compact_string,
    pack_count,
    pack_tags,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_string,
    unpack_tags,
)

_H = Struct(">h")
_HH = Struct(">hh")
_HHH = Struct(">hhh")
_I = Struct(">i")
_Q = Struct(">q")
_T = Struct(">?")


@dataclass(slots=True)
class ApiVersionsResponse:
    """API 18, versions 0 to 4."""

    API_KEY: ClassVar[int] = 18
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    error_code: int = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: int = 0  # from version 1
    supported_features: Sequence[SupportedFeatureKey] = ()  # from version 3
    finalized_features_epoch: int = -1  # from version 3
    finalized_features: Sequence[FinalizedFeatureKey] = ()  # from version 3
    zk_migration_ready: bool = False  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ApiVersionsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.api_keys, at, left = _read_api_versions(data, at, version, left)
        if version >= 1:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.throttle_time_ms = 0
        each.supported_features = ()
        each.finalized_features_epoch = -1
        each.finalized_features = ()
        each.zk_migration_ready = False
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged:
                    begin, end = tagged[0]
                    each.supported_features, begin, left = _read_supported_feature_keys(data, begin, version, left)
                    check_end(begin, end)
                if 1 in tagged:
                    begin, end = tagged[1]
                    (each.finalized_features_epoch,) = _Q.unpack_from(data, begin)
                    begin += 8
                    check_end(begin, end)
                if 2 in tagged:
                    begin, end = tagged[2]
                    each.finalized_features, begin, left = _read_finalized_feature_keys(data, begin, version, left)
                    check_end(begin, end)
                if 3 in tagged:
                    begin, end = tagged[3]
                    (each.zk_migration_ready,) = _T.unpack_from(data, begin)
                    begin += 1
                    check_end(begin, end)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        parts.append(_H.pack(self.error_code))
        _write_api_versions(parts, self.api_keys, version)
        if version >= 1:
            parts.append(_I.pack(self.throttle_time_ms))
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if self.supported_features:
                inner: list[Buffer] = []
                _write_supported_feature_keys(inner, self.supported_features, version)
                tagged.append((0, inner))
            if self.finalized_features_epoch != -1:
                inner = []
                inner.append(_Q.pack(self.finalized_features_epoch))
                tagged.append((1, inner))
            if self.finalized_features:
                inner = []
                _write_finalized_feature_keys(inner, self.finalized_features, version)
                tagged.append((2, inner))
            if self.zk_migration_ready:
                inner = []
                inner.append(_T.pack(self.zk_migration_ready))
                tagged.append((3, inner))
            parts.append(pack_tags(tagged))


@dataclass(slots=True)
class ApiVersion:
    """``api_keys``, versions 0 to 4."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


@dataclass(slots=True)
class SupportedFeatureKey:
    """``supported_features``, versions 3 to 4."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0


@dataclass(slots=True)
class FinalizedFeatureKey:
    """``finalized_features``, versions 3 to 4."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


def _read_api_versions(data: bytes, at: int, version: int, left: int) -> tuple[list[ApiVersion], int, int]:
    compact = version >= 3
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(ApiVersion)
        each.api_key, each.min_version, each.max_version = _HHH.unpack_from(data, at)
        at += 6
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_api_versions(parts: list[Buffer], values: Sequence[ApiVersion], version: int) -> None:
    compact = version >= 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_HHH.pack(each.api_key, each.min_version, each.max_version))
        if compact:
            parts.append(b"\0")


def _read_supported_feature_keys(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[SupportedFeatureKey], int, int]:
    elements, at, left = unpack_compact_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(SupportedFeatureKey)
        each.name, at = unpack_compact_string(data, at)
        each.min_version, each.max_version = _HH.unpack_from(data, at)
        at += 4
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_supported_feature_keys(parts: list[Buffer], values: Sequence[SupportedFeatureKey], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(_HH.pack(each.min_version, each.max_version))
        parts.append(b"\0")


def _read_finalized_feature_keys(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[FinalizedFeatureKey], int, int]:
    elements, at, left = unpack_compact_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(FinalizedFeatureKey)
        each.name, at = unpack_compact_string(data, at)
        each.max_version_level, each.min_version_level = _HH.unpack_from(data, at)
        at += 4
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_finalized_feature_keys(parts: list[Buffer], values: Sequence[FinalizedFeatureKey], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(_HH.pack(each.max_version_level, each.min_version_level))
        parts.append(b"\0")
