"""Tasks of the source, and how they read."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorumlog.sdk.spark import log_access, ranges, rows
from quorumlog.sdk.spark.errors import plain_errors
from quorumlog.sdk.spark.options import ReadOptions
from quorumlog.sdk.spark.planning import OffsetRange


class LogTask(InputPartition):
    """One Spark task: ranges of log partitions, read one after the other."""

    def __init__(self, wanted: tuple[OffsetRange, ...]) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def read_task(options: ReadOptions, columns: StructType, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a task, as Arrow batches of exactly the requested columns.

    Raises:
        DataLossError: offsets are missing, and failOnDataLoss is on.
        UnreadableBatchError: a batch cannot be decoded, and onCorrupt is raise.
        QuorumlogError: no progress for half a minute, or a damaged batch.
    """
    if not isinstance(task, LogTask):
        # Spark creates a partition of its own if there is nothing to read.
        return
    schema = to_arrow_schema(columns, timezone="UTC")
    with plain_errors():
        for wanted in task.wanted:
            stored = log_access.stored_rows(
                options.bootstrap_servers,
                wanted,
                options.fail_on_data_loss,
                skip_unreadable=options.skip_unreadable,
                from_replicas=options.from_replicas,
            )
            exact = ranges.exact(rows.gather(stored, schema), wanted, options.fail_on_data_loss)
            yield from rows.spark_batches(exact, wanted.topic, wanted.partition, schema)
