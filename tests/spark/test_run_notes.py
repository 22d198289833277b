"""The note that a first run leaves for later runs, in the space that a cluster has for it."""

from __future__ import annotations

import zlib

import pytest

from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.rows_to_records import TargetPartition
from quorumlog.sdk.spark.write_attempt import Name, Note


def note(**partition_counts: int) -> Note:
    ends = {
        TargetPartition(topic, number): 12_345_678_901 + number
        for topic, count in partition_counts.items()
        for number in range(count)
    }
    ids = {topic: zlib.crc32(topic.encode()) for topic in partition_counts}
    return Note(1_700_000_000_000, partition_counts, ends, ids, "abcd1234")


def test_a_note_comes_back_as_it_was() -> None:
    first = note(a=3, b=20)
    assert Note.from_bytes(first.to_bytes(["a", "b"]), ["a", "b"]) == first


@pytest.mark.parametrize("partitions", [100, 200, 300])
def test_ends_that_are_too_many_are_rounded_down(partitions: int) -> None:
    """A later run reads a little more than it must. Without them it would read whole logs."""
    first = note(wide=partitions)
    kept = first.to_bytes(["wide"])
    assert len(kept) <= 1024
    ends = Note.from_bytes(kept, ["wide"]).ends
    assert len(ends) == partitions
    assert all(0 <= first.ends[target] - end < 1 << 30 for target, end in ends.items())


def test_too_many_topics_for_a_note_are_one_clear_line() -> None:
    names = [f"topic-{number:03}" for number in range(400)]
    first = note(**dict.fromkeys(names, 1))
    assert Note.from_bytes(first.to_bytes(names), names).partition_counts == first.partition_counts
    names = [f"topic-{number:03}" for number in range(600)]
    with pytest.raises(DeliveryError, match="one task writes to 600 topics, which is too many: repartition by topic"):
        note(**dict.fromkeys(names, 1)).to_bytes(names)


def test_nothing_is_known_of_a_topic_that_was_created_anew() -> None:
    shapes = {"a": TopicShape(b"a", 9), "b": TopicShape(b"another", 9)}
    seen = note(a=2, b=2).seen_with(shapes)
    assert seen.partition_counts == {"a": 2}
    assert {target.topic for target in seen.ends} == {"a"}


def test_each_task_and_each_micro_batch_has_another_turn() -> None:
    turns = {Name("query", epoch, task).turn for epoch in (7, 17) for task in range(10)}
    assert len(turns) == 20
