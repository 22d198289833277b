"""The data source ``quorumlog``: entry points of Spark's Python data source API.

Spark creates a source and a reader in short-lived Python processes on the driver, asks the reader for partitions once
per query, pickles it, and calls ``read`` in Python workers, one task per partition. So only options and schema are kept
between these steps: topics and offsets are part of the partitions. Streams: quorumlog.sdk.spark.stream_source.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from quorumlog.sdk.spark.session import require_pyspark

# Before any import that an older PySpark lacks: otherwise the error would be that import's.
require_pyspark()

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from quorumlog.sdk.spark import planning, pushed_filters, schema, task_reading
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.errors import OptionError, plain_errors
from quorumlog.sdk.spark.option_values import GivenOptions
from quorumlog.sdk.spark.options import BatchOptions, parse_batch_options, parse_read_options
from quorumlog.sdk.spark.rows_to_records import check_columns
from quorumlog.sdk.spark.sink import LogStreamWriter, LogWriter
from quorumlog.sdk.spark.stream_source import LogStreamReader
from quorumlog.sdk.spark.tasks import tasks_of
from quorumlog.sdk.spark.transactional_sink import TransactionalStreamWriter, TransactionalWriter
from quorumlog.sdk.spark.write_options import parse_write_options

#: The module of Spark's process that offers filters to a reader.
_FILTERING = "pyspark.sql.worker.data_source_pushdown_filters"


class QuorumlogDataSource(DataSource):
    """Topics of a quorumlog cluster as a data frame, with the options and columns of Spark's Kafka source."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        with plain_errors():
            # Spark has not decided between reading and writing yet; a misspelt name is reported at once.
            GivenOptions(options).refuse_strangers()

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return "quorumlog"

    def schema(self) -> str:
        """Returns the columns of a read, if the user gives no schema."""
        with plain_errors():
            return schema.ddl(parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a batch read of the columns in ``schema``."""
        with plain_errors():
            kind = FilteredLogReader if _takes_filters() else LogReader
            return kind(parse_batch_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns a streaming read of the columns in ``schema``."""
        return LogStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns a batch write of rows with the columns in ``schema``."""
        with plain_errors():
            if overwrite:
                raise OptionError("mode overwrite has no meaning for a log: use .mode('append')")
            options = parse_write_options(self.options, streaming=False)
            check_columns(schema, options.topic)
            return TransactionalWriter(options) if options.transactional else LogWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Returns a streaming write of rows with the columns in ``schema``."""
        with plain_errors():
            if overwrite:
                raise OptionError("output mode complete has no meaning for a log: use append")
            options = parse_write_options(self.options, streaming=True)
            check_columns(schema, options.topic)
            return TransactionalStreamWriter(options) if options.transactional else LogStreamWriter(options)


class LogReader(DataSourceReader):
    """A batch read: plans on the driver, reads in the executors."""

    def __init__(self, options: BatchOptions, columns: StructType) -> None:
        schema.check_projection(columns, options.read.include_headers)
        self._options = options
        self._columns = columns
        self._needed = planning.EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """Returns tasks with topics, partitions and offsets, which are resolved once, now."""
        with plain_errors():
            catalog = ClusterCatalog(self._options.read.bootstrap_servers, newest=True)
            ranges = planning.plan(catalog, self._options, self._needed)
            return [task_reading.LogTask(task) for task in tasks_of(ranges, self._options.read)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task, as Arrow batches of exactly the requested columns."""
        return task_reading.read_task(self._options.read, self._columns, partition)


class FilteredLogReader(LogReader):
    """A batch read that leaves out offsets and partitions that the query's filters rule out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes the query's filters as bounds. Returns all of them: Spark applies them to the rows."""
        self._needed = pushed_filters.bounds_of(filters)
        return filters


def _takes_filters() -> bool:
    """True in the process in which Spark offers filters to a reader.

    Spark refuses a reader with ``pushFilters`` unless spark.sql.python.filterPushdown.enabled is on, and only in that
    case does it run such a process.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _FILTERING in sys.modules or (main is not None and main.name == _FILTERING)
