"""Fetch responses that are assembled by hand equal those that protobuf would write."""

from __future__ import annotations

import pytest

from quorumlog.server.step.events import Reply
from quorumlog.v1 import data_plane_pb2, errors_pb2

ENTRIES = [[b"first" * 100, b""], [], [b"x" * 200_000]]


def told(error: errors_pb2.Error | None = None) -> data_plane_pb2.FetchResponse:
    answer = data_plane_pb2.FetchResponse(correlation_id=77, error=error)
    for number in range(3):
        answer.results.add(
            topic_id=bytes([number]) * 16, partition=number, high_watermark=9, leader_epoch=3, compacted_offset=5
        )
    answer.results[1].error.message = "not here"
    return answer


@pytest.mark.parametrize("error", [None, errors_pb2.Error(message="busy")], ids=["answered", "refused"])
def test_protobuf_reads_the_bytes_as_the_whole_message(error: errors_pb2.Error | None) -> None:
    reply = Reply(1, told(error), ENTRIES)
    read = data_plane_pb2.FetchResponse.FromString(reply.to_bytes())
    assert read == reply.message
    assert [list(result.entries) for result in read.results] == ENTRIES
    assert read.results[1].error.message == "not here"


def test_what_is_told_stays_without_entries() -> None:
    reply = Reply(1, told(), ENTRIES)
    assert isinstance(reply.message, data_plane_pb2.FetchResponse)
    assert not any(result.entries for result in reply.told.results)


def test_an_answer_without_entries_is_the_message_itself() -> None:
    answer = told()
    reply = Reply(1, answer)
    assert reply.message is answer
    assert reply.to_bytes() == answer.SerializeToString()
