"""Data pipelines as commands: ``python -m quorumlog.sdk.spark.pipelines.NAME --help``, or spark-submit of a file here.

- ``window_totals``: a topic's event-time windows, counted and summed per key, into another topic.
- ``archive``: topics into Parquet files by date.
- ``backfill``: Parquet files into a topic.

Shared modules:

- ``job``: options, a session, progress line by line, and one line for an error.
- ``checkpoints``: binds a checkpoint to its query, because Spark continues from any that fits its plan.
- ``files``: files as Spark's JVM sees them, on any file system; ``parquet_input``: Parquet files read as a whole.

May import: as all of `spark`.
"""
