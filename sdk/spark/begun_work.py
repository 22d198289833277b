"""The first run of a piece of work: its number and its time are stored under a producer name, which stays.

Before there were transactions, rows were written under a producer name for each task, and another name said when all of
them were written. What such a version has started must not be written again, and is recognized by these names. In turn,
version 0.2 must not write again what is written in a transaction. It has no transactions, but reads the same note, and
fails because the note lacks its fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from quorumlog.sdk.errors import QuorumlogError, error_from_proto
from quorumlog.sdk.spark.nodes import Nodes, Patience
from quorumlog.v1 import admin_pb2, admin_pb2_grpc
from quorumlog.v1 import data_plane_pb2 as pb

_Response = TypeVar("_Response", pb.InitProducerIdResponse, admin_pb2.ListProducersResponse)

_TIMEOUT_S = 10.0
#: Fields of a note: number of the first run, and its time. The field "t" of version 0.2 must not be among them.
_RUN, _TIME = "run", "started_ms"
#: Suffix of the names under which tasks of earlier versions have written.
_TASK = re.compile(r"0|[1-9][0-9]*")


class BegunWork(NamedTuple):
    """The stored state of a piece of work.

    Attributes:
        is_first: True if no other run has started it before.
        timestamp_ms: start of the first run: all later runs use it for records without a timestamp.
        is_transactional: True if the first run writes in a transaction; False: an earlier version has started it.
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
    own = json.dumps({_RUN: run, _TIME: now_ms}, separators=(",", ":")).encode()
    kept = json.loads(_claim(nodes, f"{work}-begun", number, own))
    if _RUN not in kept:
        return BegunWork(False, now_ms, False)
    return BegunWork(kept[_RUN] == run, kept[_TIME], True)


def has_tasks(nodes: Nodes, work: str, number: int) -> bool:
    """True if tasks of an earlier version have started a piece of work: 0.1 stored nothing else when it started one.

    Raises:
        QuorumlogError: no node answers.
    """
    prefix = f"{work}-"
    # Names without a note are not those of tasks.
    return any(
        each.producer_epoch == number and each.note and _TASK.fullmatch(each.name.removeprefix(prefix)) is not None
        for each in _producers(nodes, admin_pb2.ListProducersRequest(prefix=prefix, notes=True))
    )


def is_complete(nodes: Nodes, work: str, number: int) -> bool:
    """True if an earlier version has written all rows of a piece of work. The answer is never older than the call.

    Raises:
        QuorumlogError: no node answers.
    """
    name = f"{work}-all"
    listed = _producers(nodes, admin_pb2.ListProducersRequest(names=[name]))
    return any(each.name == name and each.producer_epoch >= number for each in listed)


def _producers(nodes: Nodes, request: admin_pb2.ListProducersRequest) -> Iterator[admin_pb2.ListedProducer]:
    request.timeout_ms = int(_TIMEOUT_S * 1000)

    def ask(address: str) -> admin_pb2.ListProducersResponse:
        stub = admin_pb2_grpc.AdminStub(nodes.channel(address))
        response: admin_pb2.ListProducersResponse = stub.ListProducers(request, timeout=_TIMEOUT_S)
        return response

    while True:
        page: admin_pb2.ListProducersResponse = _answered(nodes, ask)
        yield from page.producers
        if not page.more:
            return
        request.after = page.producers[-1].name


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
