"""Batches whose checksums are right and whose records cannot be read, as they lie in logs.

They are built without the checks of a node, which refuses such batches when they are produced: logs have them from
older nodes, from restored backups, and from producers of Arrow payloads.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping

import google_crc32c

from quorumlog.wire.entry import Attributes, Codec, build_batch, seal_batch
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.kafka_batches import KafkaRow, kafka_batch

NOW_MS = 1_700_000_000_000
#: Records that each of them claims to have.
COUNT = 3
_ROWS: list[KafkaRow] = [(b"k", b"value %d" % number, NOW_MS + number, []) for number in range(COUNT)]
_HEADER_BYTES = 61


def unreadable_entry(kind: str, base_offset: int, *, timestamp_ms: int = NOW_MS) -> bytes:
    """An entry of a log that claims ``COUNT`` records which cannot be read.

    Arguments:
        kind: one of ``UNREADABLE``.
    """
    return seal_batch(
        unreadable_batch(kind, timestamp_ms=timestamp_ms),
        group=1,
        term=1,
        index=1 + base_offset,
        previous_hash=0,
        base_offset=base_offset,
    )


def unreadable_batch(kind: str, *, timestamp_ms: int = NOW_MS) -> bytes:
    """Such an entry, not sealed: without a place in a log."""
    payload = UNREADABLE[kind]()
    return build_batch(
        payload + bytes(-len(payload) % 8),
        record_count=COUNT,
        codec=Codec.NONE,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        attributes=Attributes.NONE if kind == "not Arrow" else Attributes.KAFKA,
    )


def _compressed_twice() -> bytes:
    plain = kafka_batch(_ROWS)
    return _with_records(kafka_batch(_ROWS, KafkaCodec.GZIP), gzip.compress(gzip.compress(plain[_HEADER_BYTES:])))


def _cut_off() -> bytes:
    plain = kafka_batch(_ROWS)
    return _with_records(kafka_batch(_ROWS, KafkaCodec.GZIP), gzip.compress(plain[_HEADER_BYTES:])[:-9])


def _fewer_records() -> bytes:
    return _with_records(kafka_batch(_ROWS), kafka_batch(_ROWS[:2])[_HEADER_BYTES:])


def _more_records() -> bytes:
    more: list[KafkaRow] = [*_ROWS, (b"k", b"one too many", NOW_MS, [])]
    return _with_records(kafka_batch(_ROWS), kafka_batch(more)[_HEADER_BYTES:])


def _repeated_offsets() -> bytes:
    first = kafka_batch(_ROWS[:1])[_HEADER_BYTES:]
    return _with_records(kafka_batch(_ROWS), first * COUNT)


def _with_records(batch: bytes, records: bytes) -> bytes:
    """The header of a batch before other records, with the checksum of both."""
    whole = bytearray(batch[:_HEADER_BYTES] + records)
    whole[8:12] = (len(whole) - 12).to_bytes(4)
    whole[17:21] = google_crc32c.value(bytes(whole[21:])).to_bytes(4)
    return bytes(whole)


UNREADABLE: Mapping[str, Callable[[], bytes]] = {
    "compressed twice": _compressed_twice,
    "cut off": _cut_off,
    "fewer records": _fewer_records,
    "more records": _more_records,
    "repeated offsets": _repeated_offsets,
    "not Arrow": lambda: b"nonsense",
}
