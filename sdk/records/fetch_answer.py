"""A hand-written decoder of FetchResponse.

Protobuf copies each batch into its message, and again at each access. For a response of some megabytes that is most of
a consumer's work. Here each batch is copied once, out of the received bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.splicing import end_of_field, field_tag, read_varint


@dataclass(slots=True, frozen=True)
class FetchedResult:
    """One partition's part of a response.

    Arguments:
        told: all fields except the entries.
        entries: whole batches, in offset order, each as stored.
    """

    told: data_plane_pb2.FetchResult
    entries: list[bytes]


@dataclass(slots=True, frozen=True)
class FetchAnswer:
    """A ``FetchResponse``.

    Arguments:
        told: all fields except the results.
        results: one per partition.
    """

    told: data_plane_pb2.FetchResponse
    results: list[FetchedResult]

    @property
    def correlation_id(self) -> int:
        """The correlation id of the request."""
        return self.told.correlation_id


def read_fetch_answer(data: bytes) -> FetchAnswer:
    """Decodes the bytes of a FetchResponse.

    Raises:
        DecodeError: they are not a FetchResponse.
    """
    fields: list[bytes] = []
    results = []
    at = 0
    while at < len(data):
        begin = at
        tag, at = read_varint(data, at)
        end = end_of_field(data, tag, at)
        if tag == _RESULTS:
            length, at = read_varint(data, at)
            assert at + length == end
            results.append(_read_result(data, at, end))
        else:
            fields.append(data[begin:end])
        at = end
    return FetchAnswer(data_plane_pb2.FetchResponse.FromString(b"".join(fields)), results)


def _read_result(data: bytes, at: int, last: int) -> FetchedResult:
    fields: list[bytes] = []
    entries: list[bytes] = []
    while at < last:
        begin = at
        tag, at = read_varint(data, at)
        end = end_of_field(data, tag, at)
        if end > last:
            raise DecodeError("a field ends behind its message")
        if tag == _ENTRIES:
            entries.append(data[read_varint(data, at)[1] : end])
        else:
            fields.append(data[begin:end])
        at = end
    return FetchedResult(data_plane_pb2.FetchResult.FromString(b"".join(fields)), entries)


_RESULTS = read_varint(field_tag(data_plane_pb2.FetchResponse, "results"), 0)[0]
_ENTRIES = read_varint(field_tag(data_plane_pb2.FetchResult, "entries"), 0)[0]
