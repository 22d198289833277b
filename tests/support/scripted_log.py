"""A topic that a console's consumer reads, record by record as the test says, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from scripted_console import partition, topic

from quorumlog.sdk import OffsetAndTimestamp, QuorumlogError, TopicDescription, TopicPartition
from quorumlog.sdk.records.fetched import CONSUMED_SCHEMA

TOPIC = "orders"


@dataclass
class ScriptedLog:
    """The admin client and the consumer of one reader. The value of each record is its offset.

    Attributes:
        timestamps: of each partition's records, in milliseconds, the first of which is at its start.
        starts: of the partitions that do not start at 0.
        grown: records that are appended to each partition once its end was read.
        failures: of partitions whose end cannot be read.
        polls: tables that ``poll_arrow`` gives before what was assigned; nothing more follows them.
    """

    timestamps: dict[int, list[int]]
    starts: dict[int, int] = field(default_factory=dict)
    grown: dict[int, list[int]] = field(default_factory=dict)
    failures: dict[int, QuorumlogError] = field(default_factory=dict)
    polls: list[pa.Table] = field(default_factory=list)
    polled: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)

    def start(self, number: int) -> int:
        """The first offset of a partition."""
        return self.starts.get(number, 0)

    async def describe_topics(self, topics: list[str]) -> list[TopicDescription]:
        return [topic(TOPIC, *(partition(number) for number in self.timestamps))]

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.start(tp.partition) for tp in partitions}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ends = {}
        for tp in partitions:
            if tp.partition in self.failures:
                raise self.failures[tp.partition]
            ends[tp] = self.start(tp.partition) + len(self.timestamps[tp.partition])
            self.timestamps[tp.partition] += self.grown.pop(tp.partition, [])
        return ends

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, wanted in timestamps.items():
            later = [(place, at) for place, at in enumerate(self.timestamps[tp.partition]) if at >= wanted]
            found[tp] = OffsetAndTimestamp(self.start(tp.partition) + later[0][0], later[0][1]) if later else None
        return found

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, 0)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset

    async def seek_to_end(self) -> None:
        self.positions.update(await self.end_offsets(list(self.positions)))

    async def position(self, tp: TopicPartition) -> int:
        return self.positions[tp]

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        self.polled += 1
        if self.polls:
            return self.polls.pop(0)
        read = []
        for tp in sorted(self.positions.keys() - self.paused):
            end = self.start(tp.partition) + len(self.timestamps[tp.partition])
            until = min(end, self.positions[tp] + (max_records or 5_000))
            read.append(self.rows(tp.partition, self.positions[tp], until))
            self.positions[tp] = until
        if not any(table.num_rows for table in read):
            await asyncio.sleep(0.01)
        return pa.concat_tables([*read, self.rows(0, 0, 0)])

    def rows(self, number: int, start: int, end: int) -> pa.Table:
        """Records of a partition, from one offset to before another."""
        offsets, first = range(start, end), self.start(number)
        known = self.timestamps.get(number, [])
        rows = [
            {
                "topic": TOPIC,
                "partition": number,
                "offset": offset,
                "timestamp": (known[offset - first] if offset - first < len(known) else 0) * 1_000,
                "key": b"k%d" % offset,
                "value": b"%d" % offset,
                "headers": None,
            }
            for offset in offsets
        ]
        return pa.Table.from_pylist(rows, CONSUMED_SCHEMA)


class LogConsumer(ScriptedLog):
    """A consumer for one question, as the console's endpoints use it."""

    async def __aenter__(self) -> LogConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.positions.clear()
        self.paused.clear()
