"""Connections of a simulated client of Kafka's that keeps its epoch from one transaction to the next.

Only the order of its connections distinguishes a late request of such a client from one of its next transaction. Like
Kafka's clients, it gives up a connection on which an answer does not come, and sends the request again on another one.
The request on the former one may still arrive, long after.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler


class OldConnection(NamedTuple):
    """A connection to a node.

    Arguments:
        client: the name of the client on it; requests on one connection arrive in order.
    """

    client: str
    stream: int


class OldConnections:
    """The newest connection of a client to each node.

    Arguments:
        numbers: distinguishes the connections of all clients.
    """

    def __init__(self, name: str, numbers: count[int], cluster: SimCluster, scheduler: Scheduler) -> None:
        self._name = name
        self._numbers = numbers
        self._cluster = cluster
        self._scheduler = scheduler
        self._newest: dict[int, OldConnection] = {}

    def to(self, node: int) -> OldConnection:
        """Returns the connection to a node; another one if the node has closed the last one."""
        known = self._newest.get(node)
        if known is None or not self._cluster.processes[node].has_stream(known.stream):
            client = f"{self._name}#{next(self._numbers)}"
            self._cluster.clients[client] = RequestContext(client, listener=Listener.KAFKA)
            known = self._newest[node] = OldConnection(client, self._cluster.open_stream(node))
        return known

    def give_up(self, node: int) -> None:
        """Uses another connection to a node from now on."""
        self._newest.pop(node, None)

    def send_late(self, node: int, request: ProtoMessage, delay_us: int) -> None:
        """Sends a request that arrives late, on a connection that the client then gives up."""
        connection = self.to(node)
        self.give_up(node)
        self._scheduler.after(
            delay_us,
            lambda: self._cluster.request(
                connection.client, node, request, lambda answer: None, stream=connection.stream
            ),
        )
