"""Partitions of whole columns of keys are those of the keys one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from quorumlog.sdk.records.arrow_partitioner import partitions_of
from quorumlog.sdk.records.partitioner import partition_for_key


@pytest.mark.parametrize("longest", [0, 7, 24, 300])
@pytest.mark.parametrize("count", [0, 1, 500, 5_000])
def test_a_column_has_the_partitions_of_its_keys(longest: int, count: int) -> None:
    rng = random.Random(longest * 7 + count)
    keys = [rng.randbytes(rng.randint(0, longest)) for _ in range(count)]
    for partitions in (1, 3, 16, 1_000):
        expected = [partition_for_key(key, partitions) for key in keys]
        assert partitions_of(pa.array(keys, pa.binary()), partitions).to_pylist() == expected


@pytest.mark.parametrize("length", range(14))
def test_keys_of_one_length_and_of_a_slice(length: int) -> None:
    rng = random.Random(length)
    keys = [rng.randbytes(length) for _ in range(400)]
    found = partitions_of(pa.array([b"x", *keys], pa.binary()).slice(1), 12)
    assert found.type == pa.int32()
    assert found.to_pylist() == [partition_for_key(key, 12) for key in keys]
