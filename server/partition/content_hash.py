"""A hash of records that depends neither on their division into batches nor on Arrow's memory layout.

Replicas that have compacted their logs to the same point must have the same records, though not the same bytes: each
divides and compresses independently. Every column has a hash of its own; for types of variable length, the lengths are
hashed before the data. So the number of rows per call does not matter.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.wire.entry import BatchHeader, payload_of

#: An Arrow array of a type that pyarrow's stubs cannot follow through the compute functions.
_Array: TypeAlias = Any

_DIGEST_BYTES = 16
_NULL_LENGTH = -1
_NULL_TIMESTAMP = -(1 << 63)


class ContentHash:
    """Hashes records in offset order."""

    def __init__(self) -> None:
        self._streams: dict[str, Any] = {}

    def add(self, rows: pa.Table) -> None:
        """Adds rows with the columns ``offset``, ``key``, ``value``, ``timestamp`` and ``headers``."""
        for chunk in rows.combine_chunks().to_batches():
            self._fixed("offset", chunk.column("offset"))
            timestamps: _Array = chunk.column("timestamp").view(pa.int64())
            self._fixed("timestamp", pc.fill_null(timestamps, pa.scalar(_NULL_TIMESTAMP, pa.int64())))
            self._binary("key", chunk.column("key"))
            self._binary("value", chunk.column("value"))
            self._headers(chunk.column("headers"))

    def add_unreadable(self, header: BatchHeader, entry: bytes) -> None:
        """Adds a batch whose payload is not Arrow."""
        self._update("unreadable", header.base_offset.to_bytes(8, "little"))
        self._update("unreadable", hashlib.blake2b(payload_of(entry)).digest())

    def digest(self) -> bytes:
        """Returns the hash of all that was added."""
        whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for name in sorted(self._streams):
            whole.update(name.encode())
            whole.update(self._streams[name].digest())
        return whole.digest()

    def _headers(self, column: _Array) -> None:
        lengths = pc.fill_null(pc.list_value_length(column), pa.scalar(_NULL_LENGTH, pa.int32()))
        self._fixed("headers", lengths)
        pairs: _Array = pc.list_flatten(column)
        if len(pairs):
            names, values = pairs.flatten()
            self._binary("header key", names.cast(pa.binary()))
            self._binary("header value", values)

    def _binary(self, name: str, column: _Array) -> None:
        lengths = pc.fill_null(pc.binary_length(column), pa.scalar(_NULL_LENGTH, pa.int32()))
        self._fixed(f"{name} length", lengths)
        # The data behind a null is undefined; filled, it is empty.
        data: _Array = pc.fill_null(column, b"") if column.null_count else column
        _, offsets, values = data.buffers()
        if values is not None and len(data):
            bounds = pa.Array.from_buffers(pa.int32(), len(data) + 1, [None, offsets], offset=data.offset)
            begin, end = bounds[0].as_py(), bounds[len(data)].as_py()
            self._update(name, memoryview(values)[begin:end])

    def _fixed(self, name: str, column: _Array) -> None:
        assert column.null_count == 0
        width = column.type.bit_width // 8
        begin = column.offset * width
        self._update(name, memoryview(column.buffers()[1] or b"")[begin : begin + len(column) * width])

    def _update(self, name: str, data: bytes | memoryview) -> None:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = hashlib.blake2b()
        stream.update(data)
