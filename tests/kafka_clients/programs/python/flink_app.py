"""Sums numbers by key and minute with Flink's SQL: ``flink_app.py SERVERS FOLDER GUARANTEE``.

The connector's jars are in ``JARS``. The source reads from the start, the sink is ``upsert-kafka``: the last record of
a key has its sum.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

servers, _, guarantee = sys.argv[1:4]
tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
settings = {
    "pipeline.jars": ";".join(f"file://{jar}" for jar in Path(os.environ["JARS"]).glob("*.jar")),
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "execution.checkpointing.interval": "1 s",
}
for name, value in settings.items():
    tables.get_config().set(name, value)
tables.execute_sql(f"""
    CREATE TABLE numbers (
        name STRING, number STRING, happened TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
    ) WITH (
        'connector' = 'kafka', 'topic' = 'numbers', 'properties.bootstrap.servers' = '{servers}',
        'properties.group.id' = 'flink', 'scan.startup.mode' = 'earliest-offset',
        'key.format' = 'raw', 'key.fields' = 'name', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'
    )""")
tables.execute_sql(f"""
    CREATE TABLE results (name STRING, `result` BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
        'connector' = 'upsert-kafka', 'topic' = 'results', 'properties.bootstrap.servers' = '{servers}',
        'key.format' = 'raw', 'value.format' = 'json',
        'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = 'sums'
    )""")
tables.execute_sql("""
    INSERT INTO results SELECT named, SUM(number) FROM (
        SELECT
            CONCAT(name, '@', CAST(UNIX_TIMESTAMP(DATE_FORMAT(happened, 'yyyy-MM-dd HH:mm:ss')) * 1000 AS STRING))
                AS named,
            CAST(number AS BIGINT) AS number
        FROM numbers
    ) GROUP BY named""").wait()
