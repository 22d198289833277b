"""The row of a partition's table that says how far its state has come."""

from __future__ import annotations

import struct

META_ROW = b"m"
_META = struct.Struct("<QqqQ")


def encode_meta(applied: int, high_watermark: int, log_start_offset: int, table_index: int) -> bytes:
    """The meta row.

    Arguments:
        applied, table_index: entries up to which the state, and the table, are.
        high_watermark, log_start_offset: offsets.
    """
    return _META.pack(applied, high_watermark, log_start_offset, table_index)


def decode_meta(row: bytes | None) -> tuple[int, int, int, int]:
    """(applied index, high watermark, log start offset, table index) in a partition's meta row."""
    return _META.unpack(row) if row is not None else (0, 0, 0, 0)
