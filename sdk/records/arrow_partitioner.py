"""Kafka's partition of every key in a column at once, by Arrow's kernels.

The hash is that of :mod:`quorumlog.sdk.records.murmur2`. A key costs the kernels some ten nanoseconds per four bytes,
and Python a microsecond or two. The kernels process keys of one length at a time, so a column of very many lengths is
left to Python.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.records.partitioner import partition_for_key

#: Below this number of keys of one length, Arrow's calls cost more than they save.
_FEW_KEYS = 64
#: Every four bytes need several calls.
_LONGEST_KEY_BYTES = 256

_SEED = 0x9747B28C
_M = pa.scalar(0x5BD1E995, pa.uint32())
_SIGN = pa.scalar(0x7FFFFFFF, pa.uint32())


def split_by_partition(table: pa.Table, partition_count: int) -> list[tuple[int | None, pa.Table]]:
    """Splits a table of the log schema by Kafka's partition of each key; rows keep their order within a partition.

    Returns:
        (partition, rows) pairs; rows without a key come under None, for any partition.
    """
    keys = table.column("key").combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.nulls(0, pa.binary())
    if keys.null_count == table.num_rows:
        return [(None, table)]
    of_row = partitions_of_rows(keys, partition_count)
    there: Any = pc.unique(of_row.drop_null()).to_pylist()
    pieces: list[tuple[int | None, pa.Table]] = [
        (partition, table.filter(pc.equal(of_row, pa.scalar(partition, pa.int32())))) for partition in sorted(there)
    ]
    if keys.null_count:
        pieces.append((None, table.filter(pc.is_null(of_row))))
    return pieces


def partitions_of_rows(keys: Any, partition_count: int) -> Any:
    """Returns the partition of each key. Each distinct key is hashed once.

    Arguments:
        keys: a binary array.

    Returns:
        An int32 array of the same length, with a null for each null.
    """
    encoded = keys.dictionary_encode()
    return partitions_of(encoded.dictionary, partition_count).take(encoded.indices)


def partitions_of(keys: Any, partition_count: int) -> Any:
    """Returns the partition of each key.

    Arguments:
        keys: a binary array without nulls.

    Returns:
        An int32 array of the same length.
    """
    lengths = pc.binary_length(keys)
    counted: Any = pc.value_counts(lengths).to_pylist()
    if len(counted) == 1:
        return _of_length(keys, counted[0]["values"], partition_count)
    # Hashed length by length, and put back in their order.
    order = pc.array_sort_indices(lengths)
    by_length = sorted((one["values"], one["counts"]) for one in counted)
    pieces: list[Any] = []
    first = 0
    for length, count in by_length:
        pieces.append(_of_length(keys.take(order.slice(first, count)), length, partition_count))
        first += count
    return pa.concat_arrays(pieces).take(pc.array_sort_indices(order)) if pieces else pa.nulls(0, pa.int32())


def _of_length(keys: Any, length: int, partition_count: int) -> Any:
    if len(keys) < _FEW_KEYS or length > _LONGEST_KEY_BYTES:
        each: Any = keys.to_pylist()
        return pa.array([partition_for_key(key, partition_count) for key in each], pa.int32())
    positive = pc.bit_wise_and(_murmur2(keys, length), _SIGN)
    count = pa.scalar(partition_count, pa.uint32())
    return pc.subtract(positive, pc.multiply(pc.divide(positive, count), count)).cast(pa.int32())


def _murmur2(keys: Any, length: int) -> Any:
    """Applies the steps of ``murmur2.murmur2`` to columns: products of uint32 wrap around."""
    whole = length & ~3
    hashed: Any = pa.repeat(pa.scalar(_SEED ^ length, pa.uint32()), len(keys))
    for first in range(0, whole, 4):
        word = pc.multiply(_word(pc.binary_slice(keys, first, first + 4)), _M)
        mixed = pc.multiply(_folded(word, 24), _M)
        hashed = pc.bit_wise_xor(pc.multiply(hashed, _M), mixed)
    if whole != length:
        zeros = pa.scalar(bytes(4 - (length - whole)), pa.binary())
        tail = pc.binary_join_element_wise(pc.binary_slice(keys, whole, length), zeros, pa.scalar(b"", pa.binary()))
        hashed = pc.multiply(pc.bit_wise_xor(hashed, _word(tail)), _M)
    return _folded(pc.multiply(_folded(hashed, 13), _M), 15)


def _folded(numbers: Any, bits: int) -> Any:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, pa.scalar(bits, pa.uint32())))


def _word(four_bytes: Any) -> Any:
    """Returns groups of four bytes as little-endian numbers."""
    return four_bytes.cast(pa.binary(4)).view(pa.uint32())
