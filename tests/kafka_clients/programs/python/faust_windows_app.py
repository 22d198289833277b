"""Sums numbers by key and minute with Faust, in a windowed table: ``faust_windows_app.py SERVERS FOLDER``.

The sums are kept in memory and in a changelog topic. Each change of a sum is a record of ``results``.
"""

from __future__ import annotations

import sys

import faust

servers, folder = sys.argv[1:3]
app = faust.App(
    "summing",
    broker=[f"kafka://{each}" for each in servers.split(",")],
    store="memory://",
    datadir=folder,
    topic_partitions=3,
    topic_replication_factor=3,
    broker_commit_interval=1.0,
    value_serializer="raw",
    key_serializer="raw",
)
numbers = app.topic("numbers", key_type=bytes, value_type=bytes)
results = app.topic("results", key_type=bytes, value_type=bytes)
sums = app.Table("sums", default=int, partitions=3, key_type=str).tumbling(60.0, expires=86_400.0)


@app.agent(numbers)
async def add(stream: faust.Stream[bytes]) -> None:
    async for event in stream.events():
        key = event.key.decode()
        sums[key] += int(event.value)
        start_ms = round(event.message.timestamp // 60 * 60_000)
        await results.send(key=f"{key}@{start_ms}".encode(), value=b"%d" % sums[key].current())


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--without-web", "--loglevel", "info"]
    app.main()
