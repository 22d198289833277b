"""Searches a range of a topic, and reports for every partition what was searched and what was not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute

from quorumlog.console.records.conditions import RecordFilter
from quorumlog.console.records.reading import poll_past_unreadable
from quorumlog.console.records.shown import DEFAULT_ROWS, plain_rows
from quorumlog.console.shared_state import Json, Thing
from quorumlog.sdk import QuorumlogError, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer
from quorumlog.sdk.records.partitioner import partition_for_key

#: The stubs contain few of the functions that take chunked columns.
_compute: Any = pyarrow.compute

#: Limits of one search: bytes read, seconds, and rows found.
BUDGET_BYTES, BUDGET_S, MOST_ROWS = 256 << 20, 30.0, 500
#: Time limit for the ends of a partition (s); one whose leader is unavailable is not searched, which is reported.
ENDS_WITHIN_S = 5.0
_POLL_MS, _POLL_ROWS = 200, 5_000


@dataclass(slots=True, frozen=True)
class Stretch:
    """The range of a search.

    Arguments:
        partition: the only partition; None: all, or the one to which the filter's key belongs.
        offset: start in every partition; the log start offset if that is higher.
        last: number of newest records of each partition, if no offset is given.
        since_ms: start with records of this time, in milliseconds since the epoch.
        everywhere: search all partitions, even those to which a producer would not have sent the filter's key.
        limit: maximum number of rows.
    """

    partition: int | None = None
    offset: int | None = None
    last: int | None = None
    since_ms: int | None = None
    everywhere: bool = False
    limit: int = 50


@dataclass(slots=True)
class _Part:
    """The search in one partition: its start, current position and end."""

    start: int
    end: int
    at: int = field(init=False)

    def __post_init__(self) -> None:
        self.at = self.start

    def thing(self, number: int) -> Json:
        return {"partition": number, "start": str(self.start), "at": str(min(self.at, self.end)), "end": str(self.end)}


class TopicSearch:
    """One search.

    Arguments:
        consumer: a consumer for this search alone: it is assigned the searched partitions.
        admin: lists the partitions.
        shape: formats rows, such as :meth:`RowFormat.rows`.
    """

    def __init__(
        self,
        consumer: AsyncConsumer,
        admin: AsyncAdmin,
        topic: str,
        stretch: Stretch,
        wanted: RecordFilter,
        shape: Callable[[list[dict[str, Any]]], list[Json]] = DEFAULT_ROWS.rows,
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._topic = topic
        self._stretch = stretch
        self._filter = wanted
        self._shape = shape
        self._parts: dict[TopicPartition, _Part] = {}
        self._away: list[int] = []
        self._left_out: list[int] = []

    async def events(self) -> AsyncIterator[Thing]:
        """Yields the plan, then rows and progress, then the reason for the end.

        Raises:
            QuorumlogError: a topic or partition does not exist, or no node answers.
        """
        begun_s, read, found = time.monotonic(), 0, 0
        await self._plan()
        yield {"kind": "plan", "partitions": self._progress(), "away": [*self._away], "left_out": [*self._left_out]}
        open_parts = {tp for tp, part in self._parts.items() if part.at < part.end}
        await self._consumer.assign(open_parts)
        for tp in open_parts:
            await self._consumer.seek(tp, self._parts[tp].start)
        why = "everything"
        while open_parts:
            if found >= self._stretch.limit:
                why = "rows"
            elif read >= BUDGET_BYTES:
                why = "bytes"
            elif time.monotonic() - begun_s >= BUDGET_S:
                why = "seconds"
            if why != "everything":
                break
            table, unreadable = await poll_past_unreadable(self._consumer, _POLL_MS, _POLL_ROWS)
            read += table.nbytes
            rows, cut = await asyncio.to_thread(self._fitting, table, self._stretch.limit - found)
            found += len(rows)
            for tp in list(open_parts):
                position = await self._consumer.position(tp)
                self._parts[tp].at = min(position, cut.get(tp.partition, position))
                if self._parts[tp].at >= self._parts[tp].end:
                    open_parts.discard(tp)
                    self._consumer.pause(tp)
            yield {
                "kind": "rows",
                "rows": rows,
                "partitions": self._progress(),
                "read_bytes": read,
                "unreadable": unreadable,
            }
        yield {
            "kind": "end",
            "why": why,
            "found": found,
            "read_bytes": read,
            "seconds": round(time.monotonic() - begun_s, 2),
            "partitions": self._progress(),
            "away": [*self._away],
            "left_out": [*self._left_out],
        }

    def _progress(self) -> list[Json]:
        return [part.thing(tp.partition) for tp, part in sorted(self._parts.items())]

    async def _plan(self) -> None:
        """Chooses the partitions and their ranges: the ends are looked up first, so that the search does not wait for
        new records.
        """
        (described,) = await self._admin.describe_topics([self._topic])
        numbers = [each.partition for each in described.partitions]
        chosen = numbers if self._stretch.partition is None else [self._stretch.partition]
        key = self._filter.key()
        if key is not None and self._stretch.partition is None and not self._stretch.everywhere:
            chosen = [partition_for_key(key, len(numbers))]
            self._left_out = [number for number in numbers if number not in chosen]
        planned = await asyncio.gather(*(self._part(TopicPartition(self._topic, number)) for number in chosen))
        for number, part in zip(chosen, planned, strict=True):
            if part is None:
                self._away.append(number)
            else:
                self._parts[TopicPartition(self._topic, number)] = part

    async def _part(self, tp: TopicPartition) -> _Part | None:
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                starts, ends = await asyncio.gather(
                    self._consumer.beginning_offsets([tp]), self._consumer.end_offsets([tp])
                )
                start, end = starts[tp], ends[tp]
                if self._stretch.offset is not None:
                    return _Part(min(end, max(start, self._stretch.offset)), end)
                if self._stretch.since_ms is not None:
                    at = (await self._consumer.offsets_for_times({tp: self._stretch.since_ms}))[tp]
                    return _Part(end if at is None else at.offset, end)
                return _Part(start if self._stretch.last is None else max(start, end - self._stretch.last), end)
        except TimeoutError:
            return None
        except QuorumlogError as error:
            if not error.retriable:
                raise
            return None

    def _fitting(self, table: pa.Table, most: int) -> tuple[list[Json], dict[int, int]]:
        """Returns the matching rows within the range, without records written since it was planned. Also returns, for
        each partition, the first further match beyond the limit: the partition counts as searched up to there.
        """
        fitting = self._filter.fitting(table)
        for tp, part in self._parts.items():
            elsewhere = _compute.not_equal(fitting.column("partition"), tp.partition)
            fitting = fitting.filter(_compute.or_(elsewhere, _compute.less(fitting.column("offset"), part.end)))
        cut: dict[int, int] = {}
        for row in fitting.slice(most).select(["partition", "offset"]).to_pylist():
            cut.setdefault(row["partition"], row["offset"])
        return self._shape(plain_rows(fitting.slice(0, most))), cut
