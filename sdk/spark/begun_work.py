"""The first run of a piece of work: its name and its time are stored under a producer name, which stays.

Before there were transactions, rows were written under producer names, and a note said when all of them were written.
What such a version has started must not be written again, and is recognized by these names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from quorumlog.sdk.errors import QuorumlogError, error_from_proto
from quorumlog.sdk.spark.nodes import Nodes, Patience
from quorumlog.v1 import admin_pb2, admin_pb2_grpc
from quorumlog.v1 import data_plane_pb2 as pb

_Response = TypeVar("_Response", pb.InitProducerIdResponse, admin_pb2.ListProducersResponse)

_TIMEOUT_S = 10.0
#: Prefix of the names of runs that write in transactions.
_TRANSACTIONAL = "in-transaction-"


class BegunWork(NamedTuple):
    """The stored state of a piece of work.

    Attributes:
        is_first: True if no other run has started it before.
        timestamp_ms: start of the first run: all later runs use it for records without a timestamp.
        is_transactional: True if the first run writes in a transaction.
    """

    is_first: bool
    timestamp_ms: int
    is_transactional: bool


def begin_work(nodes: Nodes, work: str, number: int, run: int, now_ms: int) -> BegunWork:
    """Stores that a run starts a piece of work in a transaction, unless one has started it before.

    Arguments:
        run: its number: each run has another.
        now_ms: milliseconds since the epoch.

    Raises:
        InvalidProducerEpochError: a later piece of the same work has started: another instance of the query runs.
        QuorumlogError: no node answers.
    """
    name = f"{_TRANSACTIONAL}{run}"
    own = json.dumps({"n": name, "t": now_ms}, separators=(",", ":")).encode()
    kept = json.loads(_claim(nodes, f"{work}-begun", number, own))
    return BegunWork(kept["n"] == name, kept["t"], kept["n"].startswith(_TRANSACTIONAL))


def is_complete(nodes: Nodes, work: str, number: int) -> bool:
    """True if an earlier version has written all rows of a piece of work. The answer is never older than the call.

    Raises:
        QuorumlogError: no node answers.
    """
    name = f"{work}-all"
    request = admin_pb2.ListProducersRequest(names=[name], timeout_ms=int(_TIMEOUT_S * 1000))

    def ask(address: str) -> admin_pb2.ListProducersResponse:
        stub = admin_pb2_grpc.AdminStub(nodes.channel(address))
        response: admin_pb2.ListProducersResponse = stub.ListProducers(request, timeout=_TIMEOUT_S)
        return response

    return any(each.name == name and each.producer_epoch >= number for each in _answered(nodes, ask).producers)


def _claim(nodes: Nodes, name: str, epoch: int, note: bytes) -> bytes:
    """Claims a name's epoch; returns the note that was stored with it first."""
    request = pb.InitProducerIdRequest(name=name, epoch=epoch, note=note, timeout_ms=int(_TIMEOUT_S * 1000))

    def ask(address: str) -> pb.InitProducerIdResponse:
        response: pb.InitProducerIdResponse = nodes.stub(address).InitProducerId(request, timeout=_TIMEOUT_S)
        return response

    return _answered(nodes, ask).note or note


def _answered(nodes: Nodes, ask: Callable[[str], _Response]) -> _Response:
    """Returns the nodes' final answer, after retries of temporary failures."""
    patience = Patience()
    while True:
        try:
            response = nodes.first_answer(ask)
            if not response.HasField("error"):
                return response
            raise error_from_proto(response.error)
        except QuorumlogError as error:
            patience.pause(error)
