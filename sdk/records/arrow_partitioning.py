"""Which rows of a table go to which partition, by their keys: hashed once per distinct key, moved by Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.records.arrow_murmur2 import partitions_of


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
    encoded = keys.dictionary_encode()
    of_distinct = partitions_of(encoded.dictionary, partition_count)
    of_row = of_distinct.take(encoded.indices)
    there: Any = pc.unique(of_distinct).to_pylist()
    pieces: list[tuple[int | None, pa.Table]] = [
        (partition, table.filter(pc.equal(of_row, pa.scalar(partition, pa.int32())))) for partition in sorted(there)
    ]
    if keys.null_count:
        pieces.append((None, table.filter(pc.is_null(of_row))))
    return pieces
