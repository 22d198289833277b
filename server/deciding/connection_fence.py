"""The newest connection of each transactional producer that keeps its epoch from one transaction to the next.

Kafka's clients do so before KIP-890. A request of theirs may be delayed on a connection that they have given up, while
they repeat it on another one and start their next transaction. A delayed request would then end that transaction
(KAFKA-17754), or commit the offsets of the former one in it. So a request is refused if the producer has used a newer
connection since. On one connection, TCP keeps the order.

The fence is that of one term of one coordinator, of transactions or of consumer groups. A request that is delayed on
its way to another node is refused there: that node does not coordinate the producer or the group. It may do so again
later, and has not learned what the producer did in the meantime. So a connection that is older than the term does not
count: it is closed, which ends whatever is still under way on it, and the client connects again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from quorumlog.server.step.events import ClientRequest, EndedStream
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Number of producers whose connections are remembered; those used least recently are forgotten first.
MAX_NAMES = 100_000


class ClientConnection(NamedTuple):
    """The connection of a client that keeps its epoch.

    Arguments:
        number: increases in the order in which the node accepts connections.
        opened_us: when the node accepted it, on the clock of its steps.
        close: closes it, for a reason.
    """

    number: int
    opened_us: int
    close: Callable[[errors_pb2.Error], None]


class FencedConnections:
    """The connections of a service's clients that keep their epoch, and those that the service closes.

    Arguments:
        has_ended: called when there is one to close.

    Attributes:
        ended: connections to close, until ``take_ended`` is called.
    """

    def __init__(self, has_ended: Callable[[], None]) -> None:
        self._has_ended = has_ended
        self.ended: list[EndedStream] = []

    def of(self, asked: ClientRequest) -> ClientConnection:
        """Returns the connection on which a request came."""
        return ClientConnection(asked.stream, asked.connected_us, partial(self._close, asked.stream))

    def _close(self, stream: int, why: errors_pb2.Error) -> None:
        self.ended.append(EndedStream(stream, why))
        self._has_ended()

    def take_ended(self) -> list[EndedStream]:
        """Removes and returns the connections to close."""
        ended, self.ended = self.ended, []
        return ended


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
        """Returns the number of producers whose connections are remembered."""
        return len(self._newest)

    def refusal(self, name: str, connection: ClientConnection | None) -> errors_pb2.Error | None:
        """Returns the error for a request on a connection that is older than the term, or than the producer's newest;
        otherwise None. Closes a connection that is older than the term.

        Arguments:
            name: of the producer: its transactional id, with its epoch where former epochs are not refused otherwise.
            connection: None if the client needs no fence.
        """
        if connection is None:
            return None
        if connection.opened_us <= self._began_us:
            why = f"this node coordinates {name} again, and has closed the connection: connect again, and repeat"
            outdated = error(ErrorCode.NOT_COORDINATOR, why)
            connection.close(outdated)
            return outdated
        if connection.number >= self._newest.get(name, 0):
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
