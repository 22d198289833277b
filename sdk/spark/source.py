"""The data source ``quorumlog``: what Spark's Python data source API calls, and when.

Spark makes a source and a reader in short-lived Python processes on the driver, asks the reader for partitions once
per query, pickles it, and calls ``read`` in Python workers, one task per partition. So nothing is kept between these
steps but options and schema: topics and offsets travel in the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorumlog.sdk.spark import log_access, planning, ranges, rows, schema
from quorumlog.sdk.spark.errors import plain_errors
from quorumlog.sdk.spark.options import ReadOptions, parse_read_options


class LogPartition(InputPartition):
    """One Spark task: a range of one log partition."""

    def __init__(self, wanted: planning.OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class QuorumlogDataSource(DataSource):
    """Topics of a quorumlog cluster as a data frame, with the options and columns of Spark's Kafka source."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        with plain_errors():
            self._read_options = parse_read_options(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "quorumlog"

    def schema(self) -> str:
        """The columns, where the user gives no schema."""
        return schema.ddl(self._read_options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in ``schema``."""
        return LogReader(self._read_options, schema)


class LogReader(DataSourceReader):
    """A batch read: plans on the driver, reads in the executors."""

    def __init__(self, options: ReadOptions, columns: StructType) -> None:
        with plain_errors():
            schema.check_projection(columns, options.include_headers)
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Topics, partitions and offsets, resolved now and not again."""
        with plain_errors():
            catalog = log_access.ClusterCatalog(self._options.bootstrap_servers)
            return [LogPartition(wanted) for wanted in planning.plan(catalog, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches of exactly the columns asked for."""
        if not isinstance(partition, LogPartition):
            # Spark makes up a partition of its own where there is nothing to read.
            return
        wanted, options = partition.wanted, self._options
        with plain_errors():
            stored = log_access.stored_rows(options.bootstrap_servers, wanted, options.fail_on_data_loss)
            yield from rows.spark_batches(
                ranges.exact(stored, wanted, options.fail_on_data_loss),
                wanted.topic,
                wanted.partition,
                to_arrow_schema(self._columns, timezone="UTC"),
            )
