"""Waits for records at the leaders, instead of polling the ends of partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue

import grpc

from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.spark.nodes import nodes_at
from quorumlog.sdk.spark.planning import Partition
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc

#: Delay after a leader's failure: long enough for an election, short enough not to be noticed.
_AFTER_FAILURE_S = 0.1
#: Allowance for the response in transit when the wait is over.
_GRACE_S = 1.0


def wait_beyond(
    bootstrap_servers: str, ends: Mapping[Partition, int], topic_ids: Mapping[str, bytes], limit_s: float
) -> bool:
    """Waits until a partition has a record at or after the given offset, which must be within its log or at its end.
    Records of an open transaction do not count; the marker of an aborted one does, because readers pass it.

    Never raises: a leader that cannot be reached, or returns an error, is left to the caller's next check.

    Arguments:
        limit_s: time limit in seconds.

    Returns:
        True if records may be available, False if the time is over.
    """
    nodes = nodes_at(bootstrap_servers)
    deadline_s = time.monotonic() + limit_s
    requests: dict[str, pb.FetchRequest] = {}
    for (topic, number), offset in ends.items():
        try:
            view, address = nodes.leader(topic, topic_ids[topic], number, refresh=False)
        except QuorumlogError:
            continue
        # One byte: only the arrival counts, the one batch is discarded.
        request = requests.setdefault(
            address,
            pb.FetchRequest(
                max_wait_ms=int(limit_s * 1000),
                min_bytes=1,
                max_bytes=1,
                takes_kafka_batches=True,
                isolation_level=pb.ISOLATION_LEVEL_READ_COMMITTED,
            ),
        )
        request.partitions.add(
            topic_id=topic_ids[topic],
            partition=number,
            fetch_offset=offset,
            leader_epoch=view.leader_epoch,
            max_bytes=1,
        )
    answers: SimpleQueue[bool] = SimpleQueue()
    waits = [_Wait(nodes.stub(address), request, answers) for address, request in requests.items()]
    try:
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                if answers.get(timeout=max(left_s, 0)):
                    return True
            except Empty:
                return False
            deadline_s = min(deadline_s, time.monotonic() + _AFTER_FAILURE_S)
    finally:
        for wait in waits:
            wait.cancel()


class _Wait:
    """One leader's response, awaited in a thread: gRPC's synchronous streams cannot be awaited together."""

    def __init__(
        self, stub: data_plane_pb2_grpc.DataPlaneStub, request: pb.FetchRequest, answers: SimpleQueue[bool]
    ) -> None:
        self._requests: SimpleQueue[pb.FetchRequest | None] = SimpleQueue()
        self._requests.put(request)
        self._answers = answers
        self._call = stub.Fetch(iter(self._requests.get, None), timeout=request.max_wait_ms / 1000 + _GRACE_S)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        """Reports whether there are records; reports nothing if the wait timed out."""
        try:
            for response in self._call:
                news = any(result.entries for result in response.results)
                if news or any(result.HasField("error") for result in response.results):
                    self._answers.put(news)
                return
        except grpc.RpcError:
            self._answers.put(False)

    def cancel(self) -> None:
        """Ends the call, and with it the thread."""
        self._requests.put(None)
        self._call.cancel()  # type: ignore[no-untyped-call]
