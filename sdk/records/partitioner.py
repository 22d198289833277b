"""Chooses the partition of a record if the caller does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from quorumlog.sdk.errors import IllegalArgumentError, InvalidPartitionsError
from quorumlog.sdk.records.murmur2 import murmur2, partition_of_key

#: kafka-python's signature: returns a partition for (key or None, all partitions, those with a leader).
CustomPartitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
#: ``sticky``: keyless records fill one partition's batch, then the next one's. ``round_robin``: one record each.
Partitioner = Literal["sticky", "round_robin"] | CustomPartitioner

#: Longer keys are hashed each time: the cache is limited in entries, and must be limited in bytes too.
_LONGEST_CACHED_KEY_BYTES = 128


def check_partitioner(partitioner: Partitioner) -> None:
    """Raises `IllegalArgumentError` for a value that is neither a known name nor a callable."""
    if partitioner not in ("sticky", "round_robin") and not callable(partitioner):
        raise IllegalArgumentError(
            f"partitioner is {partitioner!r}: give 'sticky', 'round_robin' or a callable(key, all, available)"
        )


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns Kafka's partition for a key, which does not depend on available partitions."""
    if len(key) > _LONGEST_CACHED_KEY_BYTES:
        return (murmur2(key) & 0x7FFFFFFF) % partition_count
    return partition_of_key(key, partition_count)


def ask_custom(custom: CustomPartitioner, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
    """Returns the custom partitioner's choice.

    Raises:
        InvalidPartitionsError: the partition does not exist.
    """
    chosen = custom(key, range(partition_count), available or range(partition_count))
    if not isinstance(chosen, int) or not 0 <= chosen < partition_count:
        raise InvalidPartitionsError(
            f"the partitioner returned {chosen!r}: it must return one of 0 to {partition_count - 1}"
        )
    return chosen
