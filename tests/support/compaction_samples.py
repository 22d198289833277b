"""Records in batches, and the plain model of what compaction makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.server.partition.compaction_pass import CleanSection, CompactionPass
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.wire.columns import read_columns
from quorumlog.wire.entry import (
    Attributes,
    Codec,
    Flags,
    TimestampType,
    build_batch,
    parse_envelope,
    parse_header,
    seal_batch,
    verify_batch,
)
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka
from quorumlog.wire.payload import LOG_SCHEMA, OFFSET_DELTA, null_headers, write_payload
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry

GROUP = 7


class Sample(NamedTuple):
    """One record; ``headers`` are pairs."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


class Placed(NamedTuple):
    """A record in the log."""

    offset: int
    record: Sample


def unsealed_batch(records: Sequence[Sample], codec: Codec = Codec.NONE) -> bytes:
    """A batch as a producer sends it."""
    count = len(records)
    headers = [[{"key": name, "value": value} for name, value in record.headers] or None for record in records]
    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.timestamp_ms * 1_000 for record in records], pa.int64()).view(LOG_SCHEMA.field(2).type),
            pa.array(headers, LOG_SCHEMA.field(3).type) if any(headers) else null_headers(count),
        ],
        schema=LOG_SCHEMA,
    )
    times = [record.timestamp_ms for record in records]
    return build_batch(
        write_payload(columns, codec),
        record_count=count,
        codec=codec,
        base_timestamp_ms=min(times),
        max_timestamp_ms=max(times),
        attributes=Attributes.NULL_KEYS if columns.column(0).null_count else Attributes.NONE,
    )


def stored_batch(
    base_offset: int,
    records: Sequence[Sample],
    codec: Codec = Codec.NONE,
    append_time_ms: int | None = None,
    *,
    stamps_records: bool = True,
) -> bytes:
    """The same, sealed."""
    return seal_batch(
        unsealed_batch(records, codec),
        group=GROUP,
        term=1,
        index=1,
        previous_hash=0,
        base_offset=base_offset,
        append_time_ms=append_time_ms,
        stamps_records=stamps_records,
    )


def unsealed_by_kafka(records: Sequence[Sample], codec: KafkaCodec = KafkaCodec.NONE) -> bytes:
    """A batch as a Kafka client writes it."""
    return entry_of_kafka(_kafka_batch(records, codec), null_keys=any(each.key is None for each in records))


def stored_by_kafka(
    base_offset: int, records: Sequence[Sample], codec: KafkaCodec = KafkaCodec.NONE, append_time_ms: int | None = None
) -> bytes:
    """The same, sealed."""
    return stored_kafka_entry(_kafka_batch(records, codec), base_offset, term=1, append_time_ms=append_time_ms)


def _kafka_batch(records: Sequence[Sample], codec: KafkaCodec) -> bytes:
    rows = [(each.key, each.value, each.timestamp_ms, list(each.headers)) for each in records]
    return kafka_batch(rows, codec)


def records_in(entries: Sequence[bytes]) -> Iterator[Placed]:
    """Yields the records of batches, compacted or not, with the timestamps that readers see."""
    for entry in entries:
        header = parse_header(entry)
        verify_batch(entry)
        columns = read_columns(entry, header)
        gaps = parse_envelope(entry).flags is Flags.GAPS
        deltas = columns.column(OFFSET_DELTA).to_pylist() if gaps else range(columns.num_rows)
        times = pc.divide(columns.column(2).view(pa.int64()), 1_000).to_pylist()
        if not gaps and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            times = [header.max_timestamp_ms] * columns.num_rows
        for delta, key, value, time, headers in zip(
            deltas,
            columns.column(0).to_pylist(),
            columns.column(1).to_pylist(),
            times,
            columns.column(3).to_pylist(),
            strict=True,
        ):
            pairs = tuple((pair["key"], pair["value"]) for pair in headers or ())
            yield Placed(header.base_offset + delta, Sample(key, value, time, pairs))


class Model:
    """Compaction, point by point, as one would say it aloud.

    Arguments:
        appended: the append time of each record in the log, by offset.
    """

    def __init__(self, appended: Mapping[int, int] | None = None) -> None:
        self.content: list[Placed] = []
        self.horizons: dict[int, int] = {}
        self.end = 0
        self._appended = appended or {}
        self._rounded: dict[int, int] = {}

    def _is_too_old(self, placed: Placed, point: CompactionPoint) -> bool:
        if not point.append_time_step_ms:
            return False
        if placed.offset not in self._rounded:
            step, appended = point.append_time_step_ms, self._appended[placed.offset]
            if placed.offset < self.end:  # A point that keeps no append times has covered it before.
                self._rounded[placed.offset] = point.timestamp_ms
            else:
                self._rounded[placed.offset] = (max(appended, 0) + step - 1) // step * step
        since = max(placed.record.timestamp_ms, self._rounded[placed.offset])
        return point.retention_ms is not None and since < point.timestamp_ms - point.retention_ms

    def compact(self, log: Sequence[Placed], point: CompactionPoint) -> None:
        """Carries out one point over what is kept and what came since."""
        section = [placed for placed in log if self.end <= placed.offset < point.end_offset]
        whole = self.content + section
        last = {placed.record.key: placed.offset for placed in whole}
        kept = []
        for placed in whole:
            key, value = placed.record.key, placed.record.value
            horizon = self.horizons.get(placed.offset)
            if placed.offset < point.log_start_offset:
                continue
            if key is not None and last[key] != placed.offset:
                continue
            if horizon is not None and point.timestamp_ms >= horizon:
                continue
            if self._is_too_old(placed, point):
                continue
            if key is not None and value is None and placed.offset not in self.horizons:
                self.horizons[placed.offset] = point.delete_horizon_ms
            kept.append(placed)
        self.content, self.end = kept, point.end_offset


class Compacted:
    """A replica's compacted log, made by the real pass."""

    def __init__(self, batch_bytes: int, chunk_bytes: int = 1 << 20) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.hash = b""
        self.has_append_times = False
        self.sizes = (batch_bytes, chunk_bytes)

    def compact(self, log: Sequence[bytes], points: Sequence[CompactionPoint]) -> None:
        """Carries out some points in one pass."""
        end = points[-1].end_offset
        dirty = [entry for entry in log if self.end <= parse_header(entry).base_offset < end]
        batches = list(self.batches)
        compaction = CompactionPass(
            GROUP, points, CleanSection(lambda: batches, self.has_append_times), lambda: dirty, *self.sizes
        )
        self.batches = [batch for work in compaction.run() for batch in work.batches]
        self.hash, self.end = compaction.content_hash, end
        self.has_append_times = self.has_append_times or any(point.append_time_step_ms for point in points)
