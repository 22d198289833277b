"""Copies a topic in a transaction, with a task that runs twice: because it is slow, or because its executor is killed.

Run by test_on_cluster.py. Arguments: bootstrap servers, the topic, the one to copy to, a folder for the checkpoint,
``slow`` or ``killed``. The trouble starts when the task has records in the log.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from quorumlog.sdk import Consumer
from quorumlog.sdk.runtime.properties_file import properties_of
from quorumlog.sdk.spark.source import QuorumlogDataSource

#: The partition whose task gets into trouble, and its number of records. Spark passes a hundred at a time to Python.
TROUBLED_PARTITION = 0
TROUBLED_RECORDS = 270
_TROUBLE_AT = 250
#: Length of each value: the sink sends rows when it has 8 MiB of them.
_PADDED_TO = 50_000
#: Much longer than any test waits.
_SLOW_S = 3_600
_LIMIT_S = 120


def troubled(servers: str, target: str, note: Path, trouble: str) -> Callable[[bytes], bytes]:
    """Returns a function for the values of a task. The first attempt of the task with most rows gets into trouble."""
    seen: list[bytes] = []

    def pad(value: bytes) -> bytes:
        seen.append(value)
        if len(seen) == _TROUBLE_AT and not note.exists():
            deadline = time.monotonic() + _LIMIT_S
            while not _has_records(servers, target) and time.monotonic() < deadline:
                time.sleep(0.1)
            note.touch()
            if trouble == "killed":
                (executor, *_) = (each for each in psutil.Process().parents() if each.name() == "java")
                os.kill(executor.pid, signal.SIGKILL)
            time.sleep(_SLOW_S)
        return value.ljust(_PADDED_TO, b".")

    return pad


def _has_records(servers: str, topic: str) -> bool:
    """True if the partition to which only the troubled task writes has records."""
    place = (topic, TROUBLED_PARTITION)
    with Consumer(bootstrap_servers=servers, isolation_level="read_uncommitted") as consumer:
        return consumer.end_offsets([place])[place] > 0


def main(servers: str, source: str, target: str, checkpoint: str, trouble: str) -> None:
    """Copies all records."""
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(QuorumlogDataSource)
    file = os.environ.get("QUORUMLOG_COMMAND_CONFIG")
    reached = {f"quorumlog.{name}": value for _, name, value in properties_of(Path(file))} if file else {}
    reached["quorumlog.bootstrap.servers"] = servers
    # Rows arrive at the sink one by one. Arrow would need pandas for the function.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1)
    spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    options = {**reached, "subscribe": source, "startingOffsets": "earliest", "minPartitions": "3"}
    records = spark.readStream.format("quorumlog").options(**options).load()
    pad = f.udf(troubled(servers, target, Path(f"{checkpoint}-trouble"), trouble), BinaryType())
    rows = records.select("key", pad("value").alias("value"), "partition")
    copy = rows.writeStream.format("quorumlog").options(**reached, topic=target, checkpointLocation=checkpoint)
    copy.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
