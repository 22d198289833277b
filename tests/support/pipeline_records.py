"""Records that pipelines are tested with, and what must have become of them, record by record."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.isolation import IsolationLevel

Row = dict[str, Any]
#: A record's key, and the window's start in milliseconds.
Window = tuple[bytes | None, int]

RECORDS = 1_200
KEYS = 7
PARTITIONS = 3
BEGINNING_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STEP_MS = 90_000
HOUR_MS = 3_600_000
_LIMIT_S = 30
#: Options of window_totals that make the windows of :func:`windows`.
TOTALS_OPTIONS = ["--field", "amount", "--window", "1 hour", "--watermark", "10 hours"]


def create_topics(cluster: LocalCluster, *names: str) -> None:
    """Topics with three partitions."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        # The records are old: retention would remove them.
        admin.create_topics([NewTopic(name, PARTITIONS, 3, {"retention.ms": "-1"}) for name in names])


def fill(cluster: LocalCluster, topic: str) -> None:
    """Records with keys, without, without values, with headers, over thirty hours."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send(
                topic,
                None if number % 50 == 0 else json.dumps({"n": number, "amount": f"{number}.1"}).encode(),
                key=None if number % 40 == 0 else b"%d" % (number % KEYS),
                headers=[("h", b"%d" % number)] if number % 3 == 0 else [],
                timestamp_ms=BEGINNING_MS + number * STEP_MS,
            )


@contextmanager
def counter_of(
    cluster: LocalCluster, topic: str, isolation_level: IsolationLevel = "read_uncommitted"
) -> Iterator[Callable[[], int]]:
    """Says, as often as it is asked, how many offsets a topic has: also those of open transactions."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level=isolation_level) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        yield lambda: sum(consumer.end_offsets(partitions).values())


def table_of(servers: str, topic: str, isolation_level: IsolationLevel = "read_committed") -> pa.Table:
    """All that a topic holds, partition by partition in order. Records are fewer than offsets: some are markers."""
    with Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        ends = consumer.end_offsets([(topic, number) for number in consumer.partitions_for_topic(topic)])
        tables = [consumer.poll_arrow(timeout_ms=0)]
        deadline = time.monotonic() + _LIMIT_S
        while any(consumer.position(where) < end for where, end in ends.items()):
            assert time.monotonic() < deadline, f"{topic} ends at {ends}"
            tables.append(consumer.poll_arrow(timeout_ms=500))
    return pa.concat_tables(tables)


def contents(cluster: LocalCluster, topic: str) -> list[Row]:
    """The committed records of a topic."""
    rows: list[Row] = table_of(cluster.bootstrap_servers, topic).to_pylist()
    return rows


def values_in(servers: str, topic: str, isolation_level: IsolationLevel = "read_committed") -> Counter[bytes]:
    """The values of a topic, counted."""
    return Counter(table_of(servers, topic, isolation_level).column("value").to_pylist())


def by_key(rows: list[Row]) -> tuple[dict[bytes, list[Row]], Counter[str]]:
    """Returns the contents of the records of each key, in order, and the counted contents of those without a key."""
    keyed: dict[bytes, list[Row]] = defaultdict(list)
    keyless: Counter[str] = Counter()
    for row in rows:
        said = {name: row[name] for name in ("value", "timestamp", "headers")}
        if row["key"] is None:
            keyless[repr(said)] += 1
        else:
            keyed[row["key"]].append(said)
    return keyed, keyless


def windows(rows: list[Row]) -> dict[Window, Row]:
    """Returns the expected result of each key's windows of an hour."""
    expected: dict[Window, Row] = defaultdict(lambda: {"count": 0, "numbers": 0, "sum": None})
    for row in rows:
        start_ms = int(row["timestamp"].timestamp() * 1000) // HOUR_MS * HOUR_MS
        figures = expected[row["key"], start_ms]
        figures["count"] += 1
        if row["value"] is not None:
            figures["numbers"] += 1
            figures["sum"] = round((figures["sum"] or 0) + float(json.loads(row["value"])["amount"]), 6)
    return expected


def closed(expected: dict[Window, Row]) -> dict[Window, Row]:
    """The windows that the last watermark has passed."""
    watermark_ms = BEGINNING_MS + (RECORDS - 1) * STEP_MS - 10 * HOUR_MS
    return {place: row for place, row in expected.items() if place[1] + HOUR_MS <= watermark_ms}


def totals_by_window(totals: list[Row]) -> dict[Window, list[Row]]:
    """Returns the results that were written for each window, in order."""
    written: dict[Window, list[Row]] = defaultdict(list)
    for row in totals:
        result = json.loads(row["value"])
        start, end = (datetime.fromisoformat(result.pop(bound)) for bound in ("start", "end"))
        assert (end - start).total_seconds() == 3_600 and start.tzinfo == UTC
        written[row["key"], int(start.timestamp()) * 1000].append(result)
    return written
