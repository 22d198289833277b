"""Record batches of a faulty client: their checksums are correct, but little else need be."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Mapping
from typing import Any

import google_crc32c
import pyarrow as pa

from quorumlog.chaos.hostile.boundaries import integers
from quorumlog.chaos.hostile.known_ids import KnownProducer
from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, Attributes, Codec, EnvelopeKind, Flags, crc32c_of
from quorumlog.wire.kafka.batch import HEADER_BYTES as KAFKA_HEADER_BYTES
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka
from quorumlog.wire.kafka.records import write_kafka_batch
from quorumlog.wire.payload import LOG_SCHEMA, write_payload

_ENVELOPE = struct.Struct("<BBHIIIQQQ")
_HEADER = struct.Struct("<qIBBHqqqqiI")
_CRC = struct.Struct("<I")
_CRC_AT = 8

#: Field of envelope and header -> its number of bits, and True if it is signed.
FIELDS: dict[str, tuple[int, bool]] = {
    "magic": (8, False), "kind": (8, False), "flags": (16, False), "group": (32, False), "term": (64, False),
    "index": (64, False), "previous_hash": (64, False), "base_offset": (64, True), "record_count": (32, False),
    "codec": (8, False), "timestamp_type": (8, False), "attributes": (16, False), "base_timestamp_ms": (64, True),
    "max_timestamp_ms": (64, True), "producer_id": (64, True), "producer_epoch": (64, True),
    "base_sequence": (32, True), "offset_delta": (32, False),
}  # fmt: skip
_BOUNDARIES = {name: integers(bits, signed) for name, (bits, signed) in FIELDS.items()}
#: Fields whose value a node does not check first: a batch with wrong ones passes the format checks.
_DEEP = ("record_count", "attributes", "base_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "codec")


def assemble(payload: bytes, fields: Mapping[str, int]) -> bytes:
    """Returns the bytes of a batch with these fields, and a correct length and checksum. Fields not given are those of
    a valid batch of one record without a producer.
    """
    now_ms = time.time_ns() // 1_000_000
    values: dict[str, int] = {
        "magic": 1, "kind": EnvelopeKind.BATCH, "flags": 0, "group": 0, "term": 0, "index": 0, "previous_hash": 0,
        "base_offset": 0, "record_count": 1, "codec": 0, "timestamp_type": 0, "attributes": 0,
        "base_timestamp_ms": now_ms, "max_timestamp_ms": now_ms, "producer_id": -1, "producer_epoch": -1,
        "base_sequence": -1, "offset_delta": 0, **fields,
    }  # fmt: skip
    length = _ENVELOPE.size + _HEADER.size + len(payload)
    envelope = _ENVELOPE.pack(
        values["magic"],
        values["kind"],
        values["flags"],
        length,
        0,
        values["group"],
        values["term"],
        values["index"],
        values["previous_hash"],
    )
    header = _HEADER.pack(*(values[name] for name in list(FIELDS)[7:]))
    return with_checksum(envelope + header + payload)


def with_checksum(entry: bytes) -> bytes:
    """Returns the same bytes with a correct checksum."""
    if len(entry) < _ENVELOPE.size:
        return entry
    return entry[:_CRC_AT] + _CRC.pack(crc32c_of(entry)) + entry[_CRC_AT + _CRC.size :]


def _rows(
    count: int, *, keys: bool = True, tombstones: bool = False, timestamp_us: int | None = None
) -> pa.RecordBatch:
    at = time.time_ns() // 1_000 if timestamp_us is None else timestamp_us
    pairs = [("trace", b"1")] if count % 2 else None
    columns: list[pa.Array[Any]] = [
        pa.array([b"k%d" % (row % 7) if keys else None for row in range(count)], pa.binary()),
        pa.array([None if tombstones and row % 2 else b"v" * 20 for row in range(count)], pa.binary()),
        pa.array([at] * count, LOG_SCHEMA.field("timestamp").type),
        pa.array([pairs] * count, LOG_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LOG_SCHEMA)


class BatchMaker:
    """Creates batches.

    Arguments:
        chance: source of all random decisions.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._honest: list[tuple[int, Codec, bytes]] = []
        for codec in Codec:
            for rows in (
                _rows(1),
                _rows(3),
                _rows(50),
                _rows(5, tombstones=True),
                _rows(4, keys=False),
                _rows(2, timestamp_us=-(1 << 63)),
                _rows(2, timestamp_us=(1 << 63) - 1),
            ):
                self._honest.append((rows.num_rows, codec, write_payload(rows, codec)))
        self._kafka_rows = [_rows(1), _rows(3), _rows(300), _rows(5, tombstones=True), _rows(4, keys=False)]
        other = pa.RecordBatch.from_arrays([pa.array([1, 2, 3])], names=["number"])
        self._foreign = [other.serialize().to_pybytes(), LOG_SCHEMA.serialize().to_pybytes(), b"", b"\xff" * 64]

    def batch(self, producer: KnownProducer | None = None, sequence: int = -1, replayable: bool = False) -> bytes:
        """Returns a batch that is valid, or wrong in one or two places.

        Arguments:
            producer, sequence: its producer and sequence number; by default none.
        """
        chance = self._chance
        if chance.random() < 0.2:
            return self._of_kafka(producer, sequence)
        count, codec, payload = chance.choice(self._honest)
        fields: dict[str, int] = {"record_count": count, "codec": codec}
        if producer is not None:
            fields |= {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": sequence}
            if replayable:
                fields["attributes"] = Attributes.REPLAYABLE
        draw = chance.random()
        if draw < 0.35:
            return assemble(payload, fields)
        if draw < 0.65:
            for name in chance.sample(_DEEP, chance.choice((1, 1, 2))):
                fields[name] = self._boundary(name)
            return assemble(payload, fields)
        if draw < 0.80:
            return assemble(self._spoiled(payload), fields)
        if draw < 0.92:
            for name in chance.sample(list(FIELDS), chance.choice((1, 1, 2, 4))):
                fields[name] = self._boundary(name)
            return assemble(payload, fields)
        if draw < 0.95:
            return assemble(payload, {**fields, "flags": Flags.GAPS, "offset_delta": self._boundary("offset_delta")})
        whole = assemble(payload, fields)
        return with_checksum(whole[: chance.randrange(len(whole))]) if draw < 0.98 else whole[:-1]

    def _of_kafka(self, producer: KnownProducer | None, sequence: int) -> bytes:
        """Returns a batch of a Kafka client, or one with an error that its checksum does not reveal."""
        chance = self._chance
        rows = chance.choice(self._kafka_rows)
        codec = chance.choice(list(KafkaCodec))
        known = producer is not None and producer.epoch < 1 << 15
        batch = write_kafka_batch(
            rows,
            base_offset=0,
            last_offset=rows.num_rows - 1,
            codec=codec,
            producer_id=producer.producer_id if producer is not None and known else -1,
            producer_epoch=producer.epoch if producer is not None and known else -1,
            base_sequence=sequence if known else -1,
        )
        entry = bytearray(entry_of_kafka(batch, null_keys=chance.random() < 0.5))
        draw = chance.random()
        if draw < 0.3:
            return bytes(entry)
        begin = BATCH_OVERHEAD_BYTES
        # Either its records, which no node checks, or its header.
        first, last = (KAFKA_HEADER_BYTES, len(batch)) if draw < 0.7 else (0, KAFKA_HEADER_BYTES)
        for _ in range(chance.choice((1, 1, 2, 8))):
            entry[begin + chance.randrange(first, last)] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        if draw < 0.95:
            checked = bytes(entry[begin + 21 : begin + len(batch)])
            entry[begin + 17 : begin + 21] = google_crc32c.value(checked).to_bytes(4)
        return with_checksum(bytes(entry))

    def _boundary(self, name: str) -> int:
        if name == "attributes" and self._chance.random() < 0.7:
            return self._chance.randrange(8)
        return self._chance.choice(_BOUNDARIES[name])

    def _spoiled(self, payload: bytes) -> bytes:
        """Returns a payload that does not match its header."""
        chance = self._chance
        draw = chance.random()
        if draw < 0.2:
            return chance.choice(self._foreign)
        if draw < 0.4:
            return payload[: chance.randrange(len(payload) + 1)]
        spoiled = bytearray(payload)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(spoiled))
            if draw < 0.7 or at > len(spoiled) - 8:
                spoiled[at] = chance.randrange(256)
            else:
                spoiled[at : at + 8] = struct.pack("<q", chance.choice(_BOUNDARIES["base_offset"]))
        return bytes(spoiled)
