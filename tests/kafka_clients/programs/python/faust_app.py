"""Counts records by key with Faust: ``faust_app.py SERVERS FOLDER``. The topic of the counts is created by sending."""

from __future__ import annotations

import sys

import faust

servers, folder = sys.argv[1:3]
app = faust.App(
    "counting",
    broker=[f"kafka://{each}" for each in servers.split(",")],
    store="memory://",
    datadir=folder,
    topic_partitions=3,
    topic_replication_factor=3,
    value_serializer="raw",
    key_serializer="raw",
)
numbers = app.topic("faust-in", key_type=bytes, value_type=bytes)
counts = app.topic("faust-out", key_type=bytes, value_type=bytes, internal=False)
seen = app.Table("seen", default=int, partitions=3, key_type=str)


@app.agent(numbers)
async def count(stream: faust.Stream[bytes]) -> None:
    async for event in stream.events():
        name = event.key.decode()
        seen[name] += 1
        await counts.send(key=event.key, value=b"%d" % seen[name])


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--without-web", "--loglevel", "info"]
    app.main()
