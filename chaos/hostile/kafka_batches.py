"""Kafka record batches of a faulty client: their checksums are correct, but little else."""

from __future__ import annotations

import random
import struct
import time

import google_crc32c

from quorumlog.chaos.hostile.boundaries import integers
from quorumlog.wire.entry import TimestampType
from quorumlog.wire.kafka.batch import HEADER_BYTES, KafkaBatchHeader, KafkaCodec, build_kafka_batch
from quorumlog.wire.kafka.compression import deflate

_ONE_MIB = 1 << 20
#: Inflated size of a decompression bomb.
_BOMB_MIB = 96
#: Fields of the header after the checksum: their position and format.
_FIELDS = {
    "base_offset": (0, ">q"), "length": (8, ">i"), "leader_epoch": (12, ">i"), "magic": (16, ">b"),
    "attributes": (21, ">h"), "last_offset_delta": (23, ">i"), "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"), "producer_id": (43, ">q"), "producer_epoch": (51, ">h"), "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}  # fmt: skip
#: Fields that may be wrong in a batch that a broker still finds in its request.
_CHECKED_FIELDS = [name for name in _FIELDS if name != "length"]
#: A draw for which a batch stays as it is.
_VALID = 0.5
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
_BOUNDARIES = {bits: integers(bits, True) for bits in _BITS.values()}


class KafkaBatchMaker:
    """Creates batches.

    Arguments:
        chance: source of all random decisions.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        zeros = bytes(_ONE_MIB) * _BOMB_MIB
        self._bombs = [(codec, deflate(zeros, codec)) for codec in KafkaCodec if codec is not KafkaCodec.NONE]
        self._honest = [
            (count, codec, deflate(b"".join(_record(row, bare) for row in range(count)), codec))
            for codec in KafkaCodec
            for count, bare in ((1, False), (3, False), (50, False), (4, True))
        ]

    def batch(
        self, producer_id: int = -1, epoch: int = -1, sequence: int = -1, *, valid: bool = False
    ) -> tuple[int, bytes]:
        """Returns the stated number of records and the batch: valid, or wrong in one or two places.

        Arguments:
            valid: whether nothing may be wrong in it.
        """
        chance = self._chance
        count, codec, records = chance.choice(self._honest)
        draw = _VALID if valid else chance.random()
        if draw < 0.02:
            codec, records = chance.choice(self._bombs)
        elif draw < 0.08:
            records = self._spoiled(records)
        elif draw < 0.12:
            codec = chance.choice(tuple(KafkaCodec))
        elif draw < 0.15:
            count = chance.choice((1, 2, 1_000, 1_000_000, (1 << 31) - 1))
        now_ms = time.time_ns() // 1_000_000
        header = KafkaBatchHeader(
            0,
            -1,
            codec,
            TimestampType.CREATE_TIME,
            False,
            False,
            count - 1,
            now_ms,
            now_ms,
            producer_id,
            epoch,
            sequence,
            count,
        )
        whole = build_kafka_batch(header, records)
        if draw < 0.55:
            return count, whole
        if draw < 0.85:
            for name in chance.sample(list(_FIELDS), chance.choice((1, 1, 2))):
                whole = self._changed(whole, name)
            return count, whole
        if draw < 0.9:
            return count, whole[: chance.randrange(len(whole))]
        return count, whole + chance.choice((whole, b"\0", b"\xff" * HEADER_BYTES)) if draw < 0.93 else whole

    def old_batch(self) -> tuple[int, bytes]:
        """Returns the number of records, and a batch with a correct checksum in which one or two header fields, or the
        records, are wrong; rarely a valid one.
        """
        chance = self._chance
        rows = chance.choice((1, 1, 2, 3, 10, 50))
        codec = chance.choice(tuple(KafkaCodec))
        at_ms = chance.choice((-1, 0, time.time_ns() // 1_000_000))
        records = b"".join(_record(row, False) for row in range(rows))
        draw = chance.random()
        if draw < 0.1:
            records = self._spoiled(records)
        packed = deflate(records, codec)
        if 0.1 <= draw < 0.15:
            packed = chance.choice((deflate(packed, codec), packed[:-9], packed + b"\0"))
        stated = chance.choice((at_ms, at_ms, -1, 0, at_ms - 1, at_ms + 1, at_ms - 10**10, at_ms + 10**10))
        header = KafkaBatchHeader(
            0,
            -1,
            codec,
            TimestampType.CREATE_TIME,
            False,
            False,
            rows - 1,
            at_ms,
            stated,
            -1,
            -1,
            -1,
            rows,
        )
        whole = build_kafka_batch(header, packed)
        if draw >= 0.3:
            for name in chance.sample(_CHECKED_FIELDS, chance.choice((1, 1, 2))):
                at, form = _FIELDS[name]
                (right,) = struct.unpack_from(form, whole, at)
                near = [right + chance.choice((-2, -1, 1, 2))] if abs(right) < 1 << (_BITS[form[1]] - 2) else []
                value = chance.choice((*near, *near, *near, chance.choice(_BOUNDARIES[_BITS[form[1]]])))
                changed = bytearray(whole)
                struct.pack_into(form, changed, at, value)
                whole = with_kafka_checksum(bytes(changed))
        return rows, whole

    def _changed(self, batch: bytes, name: str) -> bytes:
        at, form = _FIELDS[name]
        changed = bytearray(batch)
        struct.pack_into(form, changed, at, self._chance.choice(_BOUNDARIES[_BITS[form[1]]]))
        return with_kafka_checksum(bytes(changed))

    def _spoiled(self, records: bytes) -> bytes:
        chance = self._chance
        if chance.random() < 0.3:
            return records[: chance.randrange(len(records) + 1)]
        spoiled = bytearray(records)
        for _ in range(chance.choice((1, 1, 2, 8))):
            spoiled[chance.randrange(len(spoiled))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        return bytes(spoiled)


def with_kafka_checksum(batch: bytes) -> bytes:
    """Returns the same bytes with a correct checksum."""
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def _record(row: int, bare: bool) -> bytes:
    key = _varint(-1) if bare else _varint(2) + b"k%d" % (row % 7)
    value = _varint(-1) if bare and row % 2 else _varint(20) + b"v" * 20
    headers = _varint(0) if row % 2 else _varint(1) + _varint(5) + b"trace" + _varint(-1)
    body = b"\0" + _varint(0) + _varint(row) + key + value + headers
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
