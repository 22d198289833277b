"""Kafka's murmur2, so that a key has the same partition as with Kafka's own clients."""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the 32-bit murmur2 hash of ``data``, unsigned (source: ``org.apache.kafka.common.utils.Utils``)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ (k >> 24)) * _M & _MASK)
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_of_key(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key: ``(murmur2(key) & 0x7fffffff) % partition_count``.

    Cached, because keys recur and the loop above costs about a microsecond per eight bytes.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
