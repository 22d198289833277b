"""Which nodes were fenced a moment ago.

A client that is told of a node that has stopped, and in the same answer of who leads in its place, may take the node
away before it has taken its partitions to the next leader. librdkafka then leaves them with nobody for a second. So
Kafka's clients are told of such a node a little longer, as they are of one that was killed, until its session ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.metadata.records import BrokerRecord

#: How long that is (µs).
LATELY_US = 5_000_000


class FencedLately:
    """Remembers since when this node has known of nodes that are fenced: since the first question after that."""

    def __init__(self) -> None:
        self._since: dict[int, int] = {}

    def nodes(self, now: int, brokers: Iterable[BrokerRecord]) -> set[int]:
        """Those that were fenced a moment ago.

        Arguments:
            now: microseconds on the node's clock.
            brokers: all that there are.
        """
        self._since = {each.node_id: self._since.get(each.node_id, now) for each in brokers if each.fenced}
        return {node for node, since in self._since.items() if now < since + LATELY_US}
