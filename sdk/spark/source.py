"""The data source ``quorumlog``: what Spark's Python data source API calls, and when.

Spark makes a source and a reader in short-lived Python processes on the driver, asks the reader for partitions once
per query, pickles it, and calls ``read`` in Python workers, one task per partition. So nothing is kept between these
steps but options and schema: topics and offsets travel in the partitions. Streams: quorumlog.sdk.spark.stream_source.
"""

# ruff: noqa: E402
from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from quorumlog.sdk.spark.session import require_pyspark

# Before anything is imported that an older PySpark lacks: it would be told by that name.
require_pyspark()

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from quorumlog.sdk.spark import planning, schema, task_reading
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.errors import OptionError, plain_errors
from quorumlog.sdk.spark.option_values import GivenOptions
from quorumlog.sdk.spark.options import BatchOptions, parse_batch_options, parse_read_options
from quorumlog.sdk.spark.rows_to_records import check_columns
from quorumlog.sdk.spark.sink import LogStreamWriter, LogWriter
from quorumlog.sdk.spark.stream_source import LogStreamReader
from quorumlog.sdk.spark.tasks import tasks_of
from quorumlog.sdk.spark.write_options import parse_write_options


class QuorumlogDataSource(DataSource):
    """Topics of a quorumlog cluster as a data frame, with the options and columns of Spark's Kafka source."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        with plain_errors():
            # Whether it is a read or a write shows later; a misspelt name is told at once.
            GivenOptions(options).refuse_strangers()

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "quorumlog"

    def schema(self) -> str:
        """The columns of a read, where the user gives no schema."""
        with plain_errors():
            return schema.ddl(parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns in ``schema``."""
        with plain_errors():
            return LogReader(parse_batch_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read of the columns in ``schema``."""
        return LogStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write of rows with the columns in ``schema``."""
        with plain_errors():
            if overwrite:
                raise OptionError("mode overwrite has no meaning for a log: use .mode('append')")
            options = parse_write_options(self.options, streaming=False)
            check_columns(schema, options.topic)
            return LogWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write of rows with the columns in ``schema``."""
        with plain_errors():
            if overwrite:
                raise OptionError("output mode complete has no meaning for a log: use append")
            options = parse_write_options(self.options, streaming=True)
            check_columns(schema, options.topic)
            return LogStreamWriter(options)


class LogReader(DataSourceReader):
    """A batch read: plans on the driver, reads in the executors."""

    def __init__(self, options: BatchOptions, columns: StructType) -> None:
        schema.check_projection(columns, options.read.include_headers)
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Topics, partitions and offsets, resolved now and not again."""
        with plain_errors():
            catalog = ClusterCatalog(self._options.read.bootstrap_servers, newest=True)
            ranges = planning.plan(catalog, self._options)
            return [task_reading.LogTask(task) for task in tasks_of(ranges, self._options.read)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches of exactly the columns asked for."""
        return task_reading.read_task(self._options.read, self._columns, partition)
