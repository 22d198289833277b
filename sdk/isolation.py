"""Isolation levels: which records of transactions a reader gets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from quorumlog.v1 import data_plane_pb2

#: ``read_committed``: records of committed transactions, and those outside of transactions, up to the last stable
#: offset: the first offset of the oldest open transaction. ``read_uncommitted``: all records.
IsolationLevel = Literal["read_committed", "read_uncommitted"]

#: The values in requests. Nodes of a version without transactions ignore them.
LEVELS: Mapping[IsolationLevel, data_plane_pb2.IsolationLevel.ValueType] = MappingProxyType(
    {
        "read_committed": data_plane_pb2.ISOLATION_LEVEL_READ_COMMITTED,
        "read_uncommitted": data_plane_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
    }
)
