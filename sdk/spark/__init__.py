"""Spark's format ``quorumlog``: topics as data frames, through Spark's Python data source API and Arrow.

PySpark is an extra (``pip install 'quorumlog[spark]'``) and is imported only by modules that need it.

Common to both directions:

- ``session``: one call to a Spark session on this machine; ``java``: finds a Java runtime for it.
- ``source``: entry points of Spark's data source API; ``schema``: the columns.
- ``servers``: addresses of a cluster with security options, for every task.
- ``option_values``: validation of option values; ``errors``: errors of Spark jobs.
- ``nodes``: blocking calls to nodes, for Spark's workers.

Reading:

- ``options``: the options of a read.
- ``cluster_catalog``: the driver's requests to a cluster.
- ``planning``: from options to exact offsets; ``pushed_filters``: bounds from the query's filters; ``tasks``: from
  ranges of offsets to Spark's tasks.
- ``task_reading``: how a task reads; ``log_access``: its requests to the cluster.
- ``ranges``: exactly the offsets of a range; ``rows``: stored batches as Spark's rows.

Reading a stream:

- ``stream_source``: entry points of Spark's micro-batch engine; ``long_poll``: waits for records at the leaders.
- ``stream_planning``: the end of the next micro-batch; ``rate_limits``: its size.
- ``stream_offsets``: the progress of a query; ``group_mirror``: shows it as a consumer group's offsets.

Writing:

- ``write_options``: the options of a write.
- ``transactional_sink``: entry points of Spark's API, and exactly-once writes; ``transaction_calls``: requests to their
  coordinator; ``begun_work``: the first run of a micro-batch or job.
- ``sink``: the same at least once, and what both share.
- ``rows_to_records``: rows as records for topics and partitions; ``sending``: passes them to a producer.

``pipelines`` has whole data pipelines as commands.

May import: `sdk` itself, `runtime`, `records`, `cluster`, `producer`.
"""

from quorumlog.sdk.spark.errors import (
    CheckpointError,
    DataLossError,
    JavaError,
    OptionError,
    SchemaError,
    SparkMissingError,
    SparkSourceError,
)
from quorumlog.sdk.spark.session import local_session

__all__ = [
    "CheckpointError",
    "DataLossError",
    "JavaError",
    "OptionError",
    "SchemaError",
    "SparkMissingError",
    "SparkSourceError",
    "local_session",
]
