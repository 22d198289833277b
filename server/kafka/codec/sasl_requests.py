"""Kafka's messages: authentication, requests.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorumlog.server.kafka.codec.primitives import (
    Buffer,
    new,
    pack_bytes,
    pack_compact_bytes,
    pack_string,
    skip_tags,
    unpack_bytes,
    unpack_compact_bytes,
    unpack_string,
)


@dataclass(slots=True)
class SaslHandshakeRequest:
    """API 17, version 1."""

    API_KEY: ClassVar[int] = 17
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32768

    mechanism: str = ""

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[SaslHandshakeRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.mechanism, at = unpack_string(data, at)
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(pack_string(self.mechanism))


@dataclass(slots=True)
class SaslAuthenticateRequest:
    """API 36, versions 0 to 2."""

    API_KEY: ClassVar[int] = 36
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    auth_bytes: bytes = b""

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[SaslAuthenticateRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        each.auth_bytes, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        parts.append(pack_compact_bytes(self.auth_bytes) if compact else pack_bytes(self.auth_bytes))
        if compact:
            parts.append(b"\0")
