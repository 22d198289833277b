"""The newest connection of each transactional producer that keeps its epoch from one transaction to the next.

Kafka's clients do so before KIP-890. A request of theirs may be delayed on a connection that they have given up, while
they repeat it on another one and start their next transaction. The delayed request would then end that transaction
(KAFKA-17754). So a request is refused if the producer has used a newer connection since. On one connection, TCP keeps
the order.

The fence is that of one term of one coordinator. A request that is delayed on its way to another node is refused there:
that node does not coordinate the producer. It may do so again later, and has not learned what the producer did in the
meantime. So a connection that is older than the term does not count: the node closes it, which ends whatever is still
under way on it, and the client connects again.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Number of transactional ids whose connections are remembered; those used least recently are forgotten first.
MAX_NAMES = 100_000


class ClientConnection(NamedTuple):
    """The connection of a client that keeps its epoch.

    Arguments:
        number: increases in the order in which the node accepts connections.
        opened_us: when the node accepted it, on the clock of its steps.
    """

    number: int
    opened_us: int


class ConnectionFence:
    """The connections of the producers of one coordinator in one term.

    Arguments:
        began_us: start of the term on this node, on the clock of its steps.
    """

    def __init__(self, began_us: int, most: int = MAX_NAMES) -> None:
        self._began_us = began_us
        self._most = most
        self._newest: dict[str, int] = {}

    def __len__(self) -> int:
        """Returns the number of transactional ids whose connections are remembered."""
        return len(self._newest)

    def is_outdated(self, connection: ClientConnection | None) -> bool:
        """True if a connection is older than the term: its node must close it."""
        return connection is not None and connection.opened_us <= self._began_us

    def refusal(self, name: str, connection: ClientConnection | None) -> errors_pb2.Error | None:
        """Returns the error for a request on a connection that is older than the term, or than the producer's newest;
        otherwise None.

        Arguments:
            connection: None if the client needs no fence.
        """
        if self.is_outdated(connection):
            why = f"this node coordinates {name} again, and has closed the connection: connect again, and repeat"
            return error(ErrorCode.NOT_COORDINATOR, why)
        if connection is None or connection.number >= self._newest.get(name, 0):
            return None
        why = f"the producer {name} has used a newer connection since: this request was late"
        return error(ErrorCode.INVALID_TXN_STATE, why)

    def accepted(self, name: str, connection: ClientConnection | None) -> None:
        """Records the connection of a request that has been accepted."""
        if connection is None:
            return
        self._newest[name] = max(connection.number, self._newest.pop(name, 0))
        if len(self._newest) > self._most:
            del self._newest[next(iter(self._newest))]

    def initialized(self, name: str) -> None:
        """Forgets the connections of former instances of a producer: their epoch is refused from now on. A new instance
        may have opened its connection earlier. The request that initializes it does not count, because aiokafka sends
        that on another connection than those that follow."""
        self._newest.pop(name, None)
