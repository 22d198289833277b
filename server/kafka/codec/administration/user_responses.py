"""Kafka's messages: users with passwords, responses.

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
    pack_compact_nullable_string,
    pack_compact_string,
    skip_tags,
    unpack_compact_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
)

_BI = Struct(">bi")
_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    """API 50, version 0."""

    API_KEY: ClassVar[int] = 50
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: Sequence[DescribeUserScramCredentialsResult] = ()

    @classmethod
    def read(
        cls, data: bytes, at: int, version: int, left: int
    ) -> tuple[DescribeUserScramCredentialsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.results, at, left = _read_describe_user_scram_credentials_results(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(pack_compact_nullable_string(self.error_message))
        _write_describe_user_scram_credentials_results(parts, self.results, version)
        parts.append(b"\0")


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    """``results``, version 0."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: Sequence[CredentialInfo] = ()


@dataclass(slots=True)
class CredentialInfo:
    """``credential_infos``, version 0."""

    mechanism: int = 0
    iterations: int = 0


def _read_describe_user_scram_credentials_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeUserScramCredentialsResult], int, int]:
    elements, at, left = unpack_compact_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(DescribeUserScramCredentialsResult)
        each.user, at = unpack_compact_string(data, at)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.credential_infos, at, left = _read_credential_infos(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_describe_user_scram_credentials_results(
    parts: list[Buffer], values: Sequence[DescribeUserScramCredentialsResult], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.user))
        parts.append(_H.pack(each.error_code))
        parts.append(pack_compact_nullable_string(each.error_message))
        _write_credential_infos(parts, each.credential_infos, version)
        parts.append(b"\0")


def _read_credential_infos(data: bytes, at: int, version: int, left: int) -> tuple[list[CredentialInfo], int, int]:
    elements, at, left = unpack_compact_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(CredentialInfo)
        each.mechanism, each.iterations = _BI.unpack_from(data, at)
        at += 5
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_credential_infos(parts: list[Buffer], values: Sequence[CredentialInfo], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_BI.pack(each.mechanism, each.iterations))
        parts.append(b"\0")


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    """API 51, version 0."""

    API_KEY: ClassVar[int] = 51
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    results: Sequence[AlterUserScramCredentialsResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterUserScramCredentialsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.results, at, left = _read_alter_user_scram_credentials_results(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_I.pack(self.throttle_time_ms))
        _write_alter_user_scram_credentials_results(parts, self.results, version)
        parts.append(b"\0")


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    """``results``, version 0."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = ""


def _read_alter_user_scram_credentials_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterUserScramCredentialsResult], int, int]:
    elements, at, left = unpack_compact_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(AlterUserScramCredentialsResult)
        each.user, at = unpack_compact_string(data, at)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = unpack_compact_nullable_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_alter_user_scram_credentials_results(
    parts: list[Buffer], values: Sequence[AlterUserScramCredentialsResult], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.user))
        parts.append(_H.pack(each.error_code))
        parts.append(pack_compact_nullable_string(each.error_message))
        parts.append(b"\0")
