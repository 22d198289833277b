"""Counts a topic on a standalone Spark cluster of separate processes.

Run by test_batch_read.py in an interpreter of its own. Arguments: bootstrap servers, topic.
"""

import os
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import functions as f

from quorumlog.sdk.spark import local_session

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def count(servers: str, topic: str) -> None:
    """Prints rows, distinct offsets, and how many processes hold blocks: the driver and its executors."""
    spark = local_session(
        "separate processes",
        "local-cluster[1,1,1024]",
        spark__driver__extraJavaOptions=QUICK,
        spark__executor__extraJavaOptions=QUICK,
    )
    reader = spark.read.format("quorumlog").option("quorumlog.bootstrap.servers", servers)
    counted = reader.option("subscribe", topic).load().agg(f.count("*"), f.count_distinct("partition", "offset"))
    processes = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    print(*counted.first(), processes)
    spark.stop()


if __name__ == "__main__":
    # Spark's scripts start the executors from SPARK_HOME, and leave their logs and work there: a copy made of links.
    with tempfile.TemporaryDirectory(prefix="quorumlog-spark-home-") as home:
        for entry in Path(pyspark.__file__).parent.iterdir():
            Path(home, entry.name).symlink_to(entry)
        os.environ["SPARK_HOME"] = home
        count(*sys.argv[1:])
