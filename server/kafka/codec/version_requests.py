"""Kafka's messages: supported APIs and versions, requests.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorumlog.server.kafka.codec.primitives import (
    Buffer,
    new,
    pack_compact_string,
    pack_string,
    skip_tags,
    unpack_compact_string,
    unpack_string,
)


@dataclass(slots=True)
class ApiVersionsRequest:
    """API 18, versions 0 to 4."""

    API_KEY: ClassVar[int] = 18
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    client_software_name: str = ""  # from version 3
    client_software_version: str = ""  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ApiVersionsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        if version >= 3:
            each.client_software_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.client_software_name = ""
        if version >= 3:
            each.client_software_version, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.client_software_version = ""
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        if version >= 3:
            parts.append(
                pack_compact_string(self.client_software_name) if compact else pack_string(self.client_software_name)
            )
        if version >= 3:
            parts.append(
                pack_compact_string(self.client_software_version)
                if compact
                else pack_string(self.client_software_version)
            )
        if compact:
            parts.append(b"\0")
