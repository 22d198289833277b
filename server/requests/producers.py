"""The list of producer names, as any node gives it: never older than the question."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.producer_names import MAX_REQUEST_NAMES, NamedProducers
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.v1 import admin_pb2, errors_pb2


class ProducerRequests:
    """Serves ListProducers.

    Arguments:
        names: gives the named producers as this node knows them.
        reply: answers a request.
    """

    def __init__(
        self, names: Callable[[], NamedProducers], reads: MetadataReads, reply: Callable[[int, ProtoMessage], None]
    ) -> None:
        self._names = names
        self._reads = reads
        self._reply = reply

    def list_producers(self, now: int, request_id: int, request: admin_pb2.ListProducersRequest) -> None:
        """One page of the names."""

        def answer(problem: errors_pb2.Error | None) -> None:
            response = admin_pb2.ListProducersResponse(error=problem)
            if problem is None:
                found = self._names().page(request.prefix, request.after, MAX_REQUEST_NAMES + 1)
                response.more = len(found) > MAX_REQUEST_NAMES
                for each in found[:MAX_REQUEST_NAMES]:
                    response.producers.add(
                        name=each.name,
                        producer_id=each.producer_id,
                        producer_epoch=each.epoch,
                        claimed_ms=each.claimed_ms,
                    )
            self._reply(request_id, response)

        self._reads.read(now, request.timeout_ms, answer)
