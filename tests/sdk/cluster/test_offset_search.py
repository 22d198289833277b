"""Searches for offsets, round by round."""

from __future__ import annotations

import pytest

from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST, FoundOffset, OffsetSearch, RequestedPartition
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
Result = data_plane_pb2.ListOffsetsResult


def asked(search: OffsetSearch, tp: TopicPartition = A) -> data_plane_pb2.ListOffsetsRequest:
    return search.questions([(tp, RequestedPartition(b"i" * 16, 7))], 900)


def test_questions_carry_every_field() -> None:
    request = asked(OffsetSearch({A: 123, B: LATEST}), B)
    assert request.timeout_ms == 900 and request.takes_kafka_batches
    (only,) = request.partitions
    assert (only.topic_id, only.partition, only.timestamp_ms, only.leader_epoch, only.first_offset) == (
        b"i" * 16,
        1,
        LATEST,
        7,
        0,
    )


def test_unfinished_searches_continue_where_they_were() -> None:
    search = OffsetSearch({A: 123})
    search.take_answer(A, Result(unfinished=True, offset=40))
    assert asked(search).partitions[0].first_offset == 40
    assert search.missing == {A}
    search.take_answer(A, Result(offset=41, timestamp_ms=125))
    assert (search.found, search.missing) == ({A: FoundOffset(41, 125)}, set())


def test_ruled_out_records_stay_ruled_out() -> None:
    """A new leader may have less of the log."""
    search = OffsetSearch({A: 123})
    search.take_answer(A, Result(unfinished=True, offset=40))
    search.take_answer(A, Result(unfinished=True, offset=10))
    assert asked(search).partitions[0].first_offset == 40


def test_only_progress_counts_as_a_step() -> None:
    search = OffsetSearch({A: 123, B: EARLIEST})
    assert search.steps == 0
    search.take_answer(A, Result(unfinished=True, offset=0))
    assert search.steps == 0
    search.take_answer(A, Result(unfinished=True, offset=1))
    search.take_answer(A, Result(unfinished=True, offset=1))
    assert search.steps == 1
    search.take_answer(B, Result(offset=0))
    search.take_answer(A, Result(offset=-1, timestamp_ms=-1))
    assert (search.steps, search.found[A].offset, search.missing) == (3, -1, set())


def test_stalled_searches_name_their_partition() -> None:
    error = OffsetSearch({A: 1, B: 1}).stalled()
    assert error.retriable
    assert error.message == "the leader of t-0 does not advance in its search"


@pytest.mark.parametrize("special", [EARLIEST, LATEST])
def test_ends_are_no_timestamps(special: int) -> None:
    assert special < 0
