"""Keys land where Kafka's own clients put them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quorumlog.sdk.errors import IllegalArgumentError, InvalidPartitionsError
from quorumlog.sdk.records.arrow_partitioner import split_by_partition
from quorumlog.sdk.records.murmur2 import murmur2, partition_of_key
from quorumlog.sdk.records.partitioner import ask_custom, check_partitioner, partition_for_key
from quorumlog.sdk.records.record_batch import to_log_schema

# org.apache.kafka.common.utils.UtilsTest, testMurmur2
KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KAFKAS.items())
def test_murmur2_gives_what_kafkas_own_test_expects(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert partition_of_key(key, 1000) == (signed & 0x7FFFFFFF) % 1000


# librdkafka, src/rdmurmur2.c, unittest_murmur2
LIBRDKAFKAS = {
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"1234": 0x9FC97B14,
    b"234": 0xE7C009CA,
    b"34": 0x873930DA,
    b"4": 0x5A4B5CA1,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
    b"reAmbleWillBeRemoved,ThePrePartThatIs": 0x4A62B377,
    b"eAmbleWillBeRemoved,ThePrePartThatIs": 0xE0E4E09E,
    b"AmbleWillBeRemoved,ThePrePartThatIs": 0x62B8B43F,
    b"": 0x106E08D9,
}
# kafka-python, test/test_partitioner.py, test_murmur2_java_compatibility: of 1000 partitions
KAFKA_PYTHONS = {b"": 681, b"a": 524, b"ab": 434, b"abc": 107, b"123456789": 566, b"\x00 ": 742}


@pytest.mark.parametrize(("key", "expected"), LIBRDKAFKAS.items())
def test_murmur2_gives_what_librdkafkas_test_expects(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    for count in (1, 2, 3, 7, 12, 100):
        assert partition_for_key(key, count) == (expected & 0x7FFFFFFF) % count


@pytest.mark.parametrize(("key", "partition"), KAFKA_PYTHONS.items())
def test_keys_go_to_the_partitions_that_kafka_pythons_test_expects(key: bytes, partition: int) -> None:
    assert partition_for_key(key, 1000) == partition


def test_long_keys_are_hashed_alike_but_not_kept_in_the_cache() -> None:
    before = partition_of_key.cache_info().currsize
    key = b"k" * 1_000_000
    assert partition_for_key(key, 7) == (murmur2(key) & 0x7FFFFFFF) % 7
    assert partition_of_key.cache_info().currsize == before


def test_a_table_is_split_as_single_records_would_be_and_keeps_their_order() -> None:
    keys = [None if i % 10 == 0 else b"key-%d" % (i % 37) for i in range(2000)]
    table = to_log_schema(pa.table({"key": keys, "value": [b"%d" % i for i in range(2000)]}), 1)
    seen: list[bytes] = []
    for partition, rows in split_by_partition(table, 5):
        for key in rows.column("key").to_pylist():
            assert (key is None) == (partition is None)
            assert key is None or partition_for_key(key, 5) == partition
        numbers = [int(value) for value in rows.column("value").to_pylist()]
        assert numbers == sorted(numbers)
        seen.extend(rows.column("value").to_pylist())
    assert sorted(seen) == sorted(b"%d" % i for i in range(2000))


def test_a_custom_partitioner_is_asked_and_checked() -> None:
    assert ask_custom(lambda key, everything, available: available[-1], b"k", 4, [0, 2]) == 2
    with pytest.raises(InvalidPartitionsError, match="returned 9: it must return one of 0 to 3"):
        ask_custom(lambda key, everything, available: 9, b"k", 4, [0])
    with pytest.raises(IllegalArgumentError, match="'random'"):
        check_partitioner("random")  # type: ignore[arg-type]


#: Longer than the keys whose partitions are remembered. Kafka takes the sign bit away before it divides.
LONG_KEYS = {
    b"k" * 129: 3942514319,
    b"k" * 130: 2379601672,
    b"k" * 131: 379474994,
    b"k" * 140: 555964907,
    b"k" * 200: 2364005609,
    b"k" * 1000: 2719246288,
}


@pytest.mark.parametrize("key", LONG_KEYS, ids=len)
def test_long_keys_whose_hash_has_the_sign_bit_go_where_kafkas_go(key: bytes) -> None:
    assert murmur2(key) == LONG_KEYS[key]
    for count in (3, 7, 12, 1000):
        assert partition_for_key(key, count) == (LONG_KEYS[key] & 0x7FFFFFFF) % count
