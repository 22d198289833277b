"""Sums numbers by key and minute with Quix Streams: ``quix_app.py SERVERS FOLDER GUARANTEE``.

The sums are kept in FOLDER and in a changelog topic. Each change of a sum is a record of ``results``.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application

servers, folder, guarantee = sys.argv[1:4]
app = Application(
    broker_address=servers,
    consumer_group="quix",
    auto_offset_reset="earliest",
    processing_guarantee=guarantee,
    commit_interval=1.0,
    state_dir=folder,
)
numbers = app.topic("numbers", key_deserializer="str", value_deserializer="json")
results = app.topic("results", key_serializer="str", value_serializer="json")


def named(window: dict[str, int], key: str, *_: Any) -> dict[str, Any]:
    return {"name": f"{key}@{window['start']}", "result": window["value"]}


sums = app.dataframe(numbers).tumbling_window(60_000).sum().current()
sums.apply(named, metadata=True).to_topic(results, key=lambda each: each["name"])

if __name__ == "__main__":
    app.run()
