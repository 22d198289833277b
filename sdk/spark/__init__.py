"""Spark's format ``quorumlog``: topics as data frames, through Spark's Python data source API and Arrow.

PySpark is an extra (``pip install 'quorumlog[spark]'``) and is imported only by what needs it.

A session, and what both directions share:

- ``session``: one call to a Spark session on this machine; ``java``: finds a Java runtime for it.
- ``source``: what Spark's data source API calls; ``schema``: the columns.
- ``servers``: where a cluster is and how its nodes are reached, for every task.
- ``option_values``: how values of options are checked; ``errors``: what can go wrong.
- ``nodes``: blocking calls to nodes, for Spark's workers.

Reading:

- ``options``: the options of a read.
- ``cluster_catalog``: what the driver asks of a cluster.
- ``planning``: from options to exact offsets; ``tasks``: from ranges of offsets to Spark's tasks.
- ``task_reading``: how a task reads; ``log_access``: what it asks of the cluster.
- ``ranges``: exactly the offsets of a range; ``rows``: stored batches as Spark's rows.

Reading a stream:

- ``stream_source``: what Spark's micro-batch engine asks; ``long_poll``: waits for records at the leaders.
- ``stream_planning``: the end of the next micro-batch; ``rate_limits``: how much it reads.
- ``stream_offsets``: how far a query has come; ``group_mirror``: shows that as a consumer group's offsets.

Writing:

- ``write_options``: the options of a write.
- ``sink``: what Spark's API calls in a task, and how rows are written once.
- ``rows_to_records``: rows as records for topics and partitions; ``sending``: hands them to a producer.
- ``write_attempt``: one run of work that may be repeated; ``prior_attempts``: what earlier runs have written;
  ``duplicate_rows``: rows that equal those of other tasks of such a run.

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
