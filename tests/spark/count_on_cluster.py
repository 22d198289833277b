"""Counts a topic on a standalone Spark cluster of separate processes.

Run by test_batch_read.py in an interpreter of its own. Arguments: bootstrap servers, topic.
"""

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import functions as f

from quorumlog.sdk.spark import local_session

# Executors are started by Spark's own scripts, which look here.
os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
servers, topic = sys.argv[1:]
spark = local_session(
    "separate processes",
    "local-cluster[1,1,1024]",
    spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    spark__executor__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)
frame = spark.read.format("quorumlog").option("quorumlog.bootstrap.servers", servers).option("subscribe", topic).load()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
print(frame.agg(f.count("*"), f.count_distinct("partition", "offset")).first(), executors)
spark.stop()
