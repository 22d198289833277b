"""Data pipelines as commands: ``python -m quorumlog.sdk.spark.pipelines.NAME --help``, or spark-submit of a file here.

- ``window_totals``: a topic's event-time windows, counted and summed per key, into another topic.
- ``archive``: topics into Parquet files by date.
- ``backfill``: Parquet files into a topic.
"""
