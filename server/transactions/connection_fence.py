"""The newest connection of each transactional producer that keeps its epoch from one transaction to the next.

Kafka's clients do so before KIP-890. A request of theirs may be delayed on a connection that they have given up, while
they repeat it on another one and start their next transaction. The delayed request would then end that transaction
(KAFKA-17754). So a request is refused if the producer has used a newer connection since. On one connection, TCP keeps
the order. A request that is delayed on its way to another node is refused there: that node no longer coordinates
the producer.
"""

from __future__ import annotations

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Number of transactional ids whose connections are remembered; those used least recently are forgotten first.
MAX_NAMES = 100_000
#: Stands for the connection of a client that needs no fence.
NO_CONNECTION = 0


class ConnectionFence:
    """The connections of a node's clients. Their numbers increase in the order in which the node accepts them."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._newest: dict[str, int] = {}

    def __len__(self) -> int:
        """Returns the number of transactional ids whose connections are remembered."""
        return len(self._newest)

    def refusal(self, name: str, connection: int) -> errors_pb2.Error | None:
        """Returns the error for a request on an older connection than the producer's newest; otherwise None."""
        if connection == NO_CONNECTION or connection >= self._newest.get(name, NO_CONNECTION):
            return None
        why = f"the producer {name} has used a newer connection since: this request was late"
        return error(ErrorCode.INVALID_TXN_STATE, why)

    def accepted(self, name: str, connection: int) -> None:
        """Records the connection of a request that has been accepted."""
        if connection == NO_CONNECTION:
            return
        self._newest[name] = max(connection, self._newest.pop(name, NO_CONNECTION))
        if len(self._newest) > self._most:
            del self._newest[next(iter(self._newest))]

    def initialized(self, name: str) -> None:
        """Forgets the connections of former instances of a producer: their epoch is refused from now on. A new instance
        may have opened its connection earlier. The request that initializes it does not count, because aiokafka sends
        that on another connection than those that follow."""
        self._newest.pop(name, None)
