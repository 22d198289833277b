"""Kafka's messages: users with passwords, requests.

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
    pack_compact_bytes,
    pack_compact_count,
    pack_compact_string,
    skip_tags,
    unpack_compact_array,
    unpack_compact_bytes,
    unpack_compact_nullable_array,
    unpack_compact_string,
)

_B = Struct(">b")
_BI = Struct(">bi")


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    """API 50, version 0."""

    API_KEY: ClassVar[int] = 50
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    users: Sequence[DescribedUserName] | None = ()

    @classmethod
    def read(
        cls, data: bytes, at: int, version: int, left: int
    ) -> tuple[DescribeUserScramCredentialsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.users, at, left = _read_described_user_names(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        _write_described_user_names(parts, self.users, version)
        parts.append(b"\0")


@dataclass(slots=True)
class DescribedUserName:
    """``users``, version 0."""

    name: str = ""


def _read_described_user_names(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedUserName] | None, int, int]:
    elements, at, left = unpack_compact_nullable_array(data, at, 2, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(DescribedUserName)
        each.name, at = unpack_compact_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_user_names(parts: list[Buffer], values: Sequence[DescribedUserName] | None, version: int) -> None:
    if values is None:
        parts.append(pack_compact_count(-1))
        return
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(b"\0")


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    """API 51, version 0."""

    API_KEY: ClassVar[int] = 51
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterUserScramCredentialsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.deletions, at, left = _read_scram_credential_deletions(data, at, version, left)
        each.upsertions, at, left = _read_scram_credential_upsertions(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        _write_scram_credential_deletions(parts, self.deletions, version)
        _write_scram_credential_upsertions(parts, self.upsertions, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ScramCredentialDeletion:
    """``deletions``, version 0."""

    name: str = ""
    mechanism: int = 0


@dataclass(slots=True)
class ScramCredentialUpsertion:
    """``upsertions``, version 0."""

    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""


def _read_scram_credential_deletions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ScramCredentialDeletion], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ScramCredentialDeletion)
        each.name, at = unpack_compact_string(data, at)
        (each.mechanism,) = _B.unpack_from(data, at)
        at += 1
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_scram_credential_deletions(
    parts: list[Buffer], values: Sequence[ScramCredentialDeletion], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(_B.pack(each.mechanism))
        parts.append(b"\0")


def _read_scram_credential_upsertions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ScramCredentialUpsertion], int, int]:
    elements, at, left = unpack_compact_array(data, at, 9, left)
    found = []
    for _ in range(elements):
        each = new(ScramCredentialUpsertion)
        each.name, at = unpack_compact_string(data, at)
        each.mechanism, each.iterations = _BI.unpack_from(data, at)
        at += 5
        each.salt, at = unpack_compact_bytes(data, at)
        each.salted_password, at = unpack_compact_bytes(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_scram_credential_upsertions(
    parts: list[Buffer], values: Sequence[ScramCredentialUpsertion], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(_BI.pack(each.mechanism, each.iterations))
        parts.append(pack_compact_bytes(each.salt))
        parts.append(pack_compact_bytes(each.salted_password))
        parts.append(b"\0")
