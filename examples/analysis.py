"""Analysis of whole batches as Arrow tables with pyarrow, without a loop over records.

``send_arrow`` and ``poll_arrow`` move columns, not Python objects. The result is a ``pyarrow.Table``, which
pandas, Polars and DuckDB accept as it is.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import tutorial

from quorumlog.sdk import Consumer, Producer

ROWS = 50_000
SENSORS = 5


def story(servers: str) -> None:
    with tutorial.topic(servers, "measurements", partitions=3) as topic:
        readings = pa.table(
            {
                "key": pa.array([f"sensor-{number % SENSORS}" for number in range(ROWS)], pa.string()).cast(
                    pa.binary()
                ),
                "value": pa.array([str(number % 100) for number in range(ROWS)], pa.string()).cast(pa.binary()),
            }
        )
        with Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
            producer.send_arrow(topic, readings).result(timeout=30)

        tables: list[pa.Table] = []
        with Consumer(topic, bootstrap_servers=servers) as consumer:
            while sum(table.num_rows for table in tables) < ROWS:
                tables.append(consumer.poll_arrow(timeout_ms=5000))
        table = pa.concat_tables(tables)
        print(f"{table.num_rows} rows, columns {', '.join(table.column_names)}")

        numbers = pa.table(
            {
                "sensor": pc.cast(table["key"], pa.string()),
                "reading": pc.cast(pc.cast(table["value"], pa.string()), pa.int64()),
            }
        )
        summary = numbers.group_by("sensor").aggregate([("reading", "count"), ("reading", "mean"), ("reading", "max")])
        for row in summary.sort_by("sensor").to_pylist():
            print(f"{row['sensor']}: {row['reading_count']} readings, mean {row['reading_mean']:.1f}")
        assert sum(summary["reading_count"].to_pylist()) == ROWS


if __name__ == "__main__":
    tutorial.run(story, __doc__)
