"""New records of a topic: a limited number of rows per second, and the number of rows that were left out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from quorumlog.console.records.conditions import RecordFilter
from quorumlog.console.records.reading import poll_past_unreadable
from quorumlog.console.records.shown import DEFAULT_ROWS, RowFormat, plain_rows
from quorumlog.console.shared_state import Thing
from quorumlog.sdk import TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer

#: Maximum number of rows per second that a page gets, and the interval of updates (s).
ROWS_PER_SECOND, SHOWN_EVERY_S = 200, 0.25
#: A page that follows for longer than this (s) is considered forgotten.
LONGEST_S = 3_600.0


async def follow_topic(
    consumer: AsyncConsumer,
    admin: AsyncAdmin,
    topic: str,
    partition: int | None,
    wanted: RecordFilter,
    form: RowFormat = DEFAULT_ROWS,
) -> AsyncIterator[Thing]:
    """Yields the newest matching rows from now on, the last ones of each interval.

    Arguments:
        consumer: a consumer for this call alone.
        partition: the only partition; None: all.

    Raises:
        QuorumlogError: the topic does not exist.
    """
    (described,) = await admin.describe_topics([topic])
    numbers = [each.partition for each in described.partitions if partition in (None, each.partition)]
    await consumer.assign(TopicPartition(topic, number) for number in numbers)
    await consumer.seek_to_end()
    yield {"kind": "follows", "partitions": len(numbers)}
    most = int(ROWS_PER_SECOND * SHOWN_EVERY_S)
    until_s = time.monotonic() + LONGEST_S
    while time.monotonic() < until_s:
        begun_s = time.monotonic()
        table, unreadable = await poll_past_unreadable(consumer, 1_000)
        fitting = await asyncio.to_thread(wanted.fitting, table)
        left_out = max(0, fitting.num_rows - most)
        rows = form.rows(plain_rows(fitting.slice(left_out)))
        # Sent also without rows: a disconnected page is noticed only when something is sent.
        yield {
            "kind": "rows",
            "rows": rows,
            "left_out": left_out,
            "seen": table.num_rows,
            "unreadable": unreadable,
        }
        await asyncio.sleep(max(0.0, SHOWN_EVERY_S - (time.monotonic() - begun_s)))
