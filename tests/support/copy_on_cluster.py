"""Counts a topic and copies it to another, on whatever Spark it is submitted to: the plainest job there is.

Run by test_on_cluster.py. Arguments: bootstrap servers, the topic, the one to copy to, a folder for the checkpoint.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from quorumlog.sdk.runtime.properties_file import properties_of
from quorumlog.sdk.spark.source import QuorumlogDataSource


def main(servers: str, source: str, target: str, checkpoint: str) -> None:
    """Prints how many rows, distinct offsets and executors there are, and copies."""
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(QuorumlogDataSource)
    file = os.environ.get("QUORUMLOG_COMMAND_CONFIG")
    reached = {f"quorumlog.{name}": value for _, name, value in properties_of(Path(file))} if file else {}
    reached["quorumlog.bootstrap.servers"] = servers
    options = {**reached, "subscribe": source, "includeHeaders": "true"}

    rows = spark.read.format("quorumlog").options(**options, minPartitions="6").load()
    count, offsets = rows.agg(f.count("*"), f.count_distinct("partition", "offset")).first()
    # The driver holds blocks too.
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(f"{count} rows, {offsets} offsets, {executors} executors", flush=True)

    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "600", "minPartitions": "3"}
    records = spark.readStream.format("quorumlog").options(**options, **limits).load()
    copy = records.select("key", "value", "timestamp", "headers").writeStream.format("quorumlog")
    copy = copy.options(topic=target, checkpointLocation=checkpoint, **reached)
    copy.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
