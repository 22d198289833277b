"""Sums numbers by key and minute with Pathway, at least once: ``pathway_app.py SERVERS FOLDER``; FOLDER keeps the sums.

A change of a sum is two records of ``results``: the former sum with ``diff`` -1, the new one with 1.
"""

from __future__ import annotations

import sys

import pathway as pw

servers, folder = sys.argv[1:3]
settings = {"bootstrap.servers": servers, "group.id": "pathway", "auto.offset.reset": "earliest"}
records = pw.io.kafka.read(settings, "numbers", format="plaintext", with_metadata=True, autocommit_duration_ms=500)
numbers = records.select(
    number=pw.this.data.str.parse_int(),
    start_ms=pw.this._metadata["timestamp_millis"].as_int(),
)
named = numbers.select(pw.this.number, name=pw.apply(lambda n, at: f"{n % 7}@{at}", pw.this.number, pw.this.start_ms))
sums = named.groupby(pw.this.name).reduce(pw.this.name, result=pw.reducers.sum(pw.this.number))
pw.io.kafka.write(sums, {"bootstrap.servers": servers, "enable.idempotence": "true"}, "results", key=sums.name)

if __name__ == "__main__":
    kept = pw.persistence.Config(pw.persistence.Backend.filesystem(folder), snapshot_interval_ms=500)
    pw.run(persistence_config=kept, monitoring_level=pw.MonitoringLevel.NONE)
