"""Answers to fetches that are taken apart by hand: what protobuf has written, and bytes that nothing has written."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.sdk.records.fetch_answer import FetchAnswer, read_fetch_answer
from quorumlog.v1 import data_plane_pb2, errors_pb2


def whole(answer: FetchAnswer) -> data_plane_pb2.FetchResponse:
    """The message again, as protobuf has it."""
    response = data_plane_pb2.FetchResponse()
    response.CopyFrom(answer.told)
    for result in answer.results:
        response.results.add(entries=result.entries).MergeFrom(result.told)
    return response


@st.composite
def responses(draw: st.DrawFn) -> data_plane_pb2.FetchResponse:
    response = data_plane_pb2.FetchResponse(correlation_id=draw(st.integers(0, (1 << 64) - 1)))
    if draw(st.booleans()):
        response.error.CopyFrom(errors_pb2.Error(code=3, message="why"))  # type: ignore[arg-type]
    for _ in range(draw(st.integers(0, 3))):
        result = response.results.add(
            topic_id=draw(st.binary(max_size=16)),
            partition=draw(st.integers(0, 1 << 30)),
            high_watermark=draw(st.integers(-1, 1 << 62)),
            log_start_offset=draw(st.integers(-1, 1 << 62)),
            entries=draw(st.lists(st.binary(max_size=300), max_size=4)),
        )
        if draw(st.booleans()):
            result.error.message = "no"
    return response


@given(responses())
def test_what_protobuf_has_written_is_read(response: data_plane_pb2.FetchResponse) -> None:
    answer = read_fetch_answer(response.SerializeToString())
    assert whole(answer) == response
    assert answer.correlation_id == response.correlation_id


def test_fields_of_a_later_version_are_passed_over() -> None:
    response = data_plane_pb2.FetchResponse(correlation_id=7)
    result = data_plane_pb2.FetchResult(partition=2, entries=[b"one"]).SerializeToString()
    # One unknown field of each kind: a number, eight bytes, four bytes, some bytes.
    unknown = b"\xc0\x0c\x05" + b"\xc1\x0c" + bytes(8) + b"\xc5\x0c" + bytes(4) + b"\xc2\x0c\x02hi"
    inner = unknown + result
    answer = read_fetch_answer(response.SerializeToString() + unknown + b"\x12" + bytes([len(inner)]) + inner)
    assert answer.correlation_id == 7
    assert [(each.told.partition, each.entries) for each in answer.results] == [(2, [b"one"])]


def test_damaged_bytes_are_refused_as_protobuf_refuses_them_or_read_as_something() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    response = data_plane_pb2.FetchResponse(correlation_id=300)
    response.results.add(topic_id=bytes(16), partition=1, entries=[b"x" * 200, b"y"], high_watermark=1 << 40)
    sound = response.SerializeToString()
    for _ in range(3_000):
        damaged = bytearray(sound[: rng.randrange(1, len(sound) + 1)])
        for _ in range(rng.randrange(3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            read_fetch_answer(bytes(damaged))
        except DecodeError:
            continue


@pytest.mark.parametrize("damaged", [b"\x12", b"\x12\x05ab", b"\xff" * 11, b"\x12\x04\x3a\x09ab", b"\x0b", b"\x09ab"])
def test_bytes_that_are_no_answer_are_refused(damaged: bytes) -> None:
    with pytest.raises(DecodeError):
        read_fetch_answer(damaged)
