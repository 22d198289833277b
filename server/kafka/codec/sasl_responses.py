"""Kafka's messages: authentication, responses.

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
    pack_bytes,
    pack_compact_bytes,
    pack_compact_nullable_string,
    pack_nullable_string,
    pack_string_array,
    skip_tags,
    unpack_bytes,
    unpack_compact_bytes,
    unpack_compact_nullable_string,
    unpack_nullable_string,
    unpack_string_array,
)

_H = Struct(">h")
_Q = Struct(">q")


@dataclass(slots=True)
class SaslHandshakeResponse:
    """API 17, version 1."""

    API_KEY: ClassVar[int] = 17
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32768

    error_code: int = 0
    mechanisms: Sequence[str] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[SaslHandshakeResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.mechanisms, at, left = unpack_string_array(data, at, left)
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_H.pack(self.error_code))
        parts.append(pack_string_array(self.mechanisms))


@dataclass(slots=True)
class SaslAuthenticateResponse:
    """API 36, versions 0 to 2."""

    API_KEY: ClassVar[int] = 36
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0  # from version 1

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[SaslAuthenticateResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.auth_bytes, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if version >= 1:
            (each.session_lifetime_ms,) = _Q.unpack_from(data, at)
            at += 8
        else:
            each.session_lifetime_ms = 0
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        parts.append(_H.pack(self.error_code))
        parts.append(
            pack_compact_nullable_string(self.error_message) if compact else pack_nullable_string(self.error_message)
        )
        parts.append(pack_compact_bytes(self.auth_bytes) if compact else pack_bytes(self.auth_bytes))
        if version >= 1:
            parts.append(_Q.pack(self.session_lifetime_ms))
        if compact:
            parts.append(b"\0")
