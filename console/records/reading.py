"""Polls that report unreadable batches, and continue after them."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from quorumlog.console.shared_state import Json
from quorumlog.sdk import UnreadableBatchError
from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.records.fetched import CONSUMED_SCHEMA


class Polled(NamedTuple):
    """Result of a poll: records, or an unreadable batch in their place."""

    table: pa.Table
    unreadable: list[Json]


async def poll_past_unreadable(consumer: AsyncConsumer, timeout_ms: float, max_records: int | None = None) -> Polled:
    """Polls once. At a batch that cannot be read the consumer is moved past it.

    Raises:
        QuorumlogError: the poll fails for another reason.
    """
    try:
        return Polled(await consumer.poll_arrow(timeout_ms, max_records), [])
    except UnreadableBatchError as error:
        await consumer.seek(error.partition, error.next_offset)
        place: Json = {
            "partition": error.partition.partition,
            "first": str(error.first_offset),
            "last": str(error.last_offset),
            "reason": error.reason,
        }
        return Polled(CONSUMED_SCHEMA.empty_table(), [place])
