"""The state of each node: up, not ready, without an answer, or down.

A node is down only if the cluster or its host reports it: the controller has fenced it, or its address refuses or
breaks connections. A node that merely does not answer may be slow, paused or isolated, and so may be this console: that
is shown as "no answer", after a while, and never as "down".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from quorumlog.sdk import BrokerDescription, NodeDescription, QuorumlogError
from quorumlog.sdk.errors import NetworkError, RequestTimedOutError

#: A node without an answer for this long (s) is shown so, once this many requests in a row were not answered: after a
#: pause of the console itself the first one may have timed out only because the console did not read its answer.
NO_ANSWER_AFTER_S, NO_ANSWER_AFTER_REQUESTS = 3.0, 2
#: gRPC's texts for connections that were given up because nothing came in time.
_OVERDUE = re.compile("timed out|timeout|handshaker shutdown", re.IGNORECASE)


class NodeState(Enum):
    """The state of a node."""

    UP = "up"
    NOT_READY = "not ready"
    NO_ANSWER = "no answer"
    DOWN = "down"


@dataclass(slots=True)
class _Contact:
    """The contact with one node.

    Attributes:
        heard_s: when it last sent anything.
        unanswered: requests in a row that it has not answered.
        unreachable: why its address cannot be connected to; empty: it can, or that is not known.
        description: the newest that it has sent of itself.
    """

    heard_s: float
    unanswered: int = 0
    unreachable: str = ""
    description: NodeDescription | None = None


class NodeStates:
    """The contact with every node. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._contacts: dict[int, _Contact] = {}

    def _of(self, node_id: int, now_s: float) -> _Contact:
        return self._contacts.setdefault(node_id, _Contact(now_s))

    def heard(self, node_id: int, now_s: float, description: NodeDescription | None = None) -> None:
        """A node has sent something, such as a description of itself."""
        contact = self._of(node_id, now_s)
        contact.heard_s, contact.unanswered, contact.unreachable = now_s, 0, ""
        contact.description = description or contact.description

    def failed(self, node_id: int, error: QuorumlogError | TimeoutError, now_s: float) -> None:
        """A request to a node has failed."""
        contact = self._of(node_id, now_s)
        if is_silence(error):
            contact.unanswered += 1
        elif isinstance(error, NetworkError):
            contact.unreachable = error.message
        else:
            self.heard(node_id, now_s)  # A refusal is an answer, too.

    def keep_only(self, node_ids: Iterable[int]) -> None:
        """Forgets all other nodes."""
        kept = set(node_ids)
        self._contacts = {node: contact for node, contact in self._contacts.items() if node in kept}

    def description(self, node_id: int) -> NodeDescription | None:
        """The last report of a node; None before the first."""
        contact = self._contacts.get(node_id)
        return None if contact is None else contact.description

    def descriptions(self) -> list[NodeDescription]:
        """The last reports of all nodes."""
        return [each.description for each in self._contacts.values() if each.description is not None]

    def silent_s(self, node_id: int, now_s: float) -> int | None:
        """For how many seconds a node has not answered; None if it answers, or has not been silent for long."""
        contact = self._contacts.get(node_id)
        if contact is None or contact.unanswered < NO_ANSWER_AFTER_REQUESTS:
            return None
        silent_s = now_s - contact.heard_s
        return int(silent_s) if silent_s >= NO_ANSWER_AFTER_S else None

    def is_heard(self, node_id: int, now_s: float) -> bool:
        """True unless a node is unreachable or does not answer: then what it has sent may be outdated."""
        contact = self._contacts.get(node_id)
        return contact is None or not (contact.unreachable or self.silent_s(node_id, now_s) is not None)

    def state(self, broker: BrokerDescription, now_s: float) -> tuple[NodeState, str]:
        """The state of a node, and the reason unless it is up."""
        contact = self._of(broker.node_id, now_s)
        said, silent_s = contact.description, self.silent_s(broker.node_id, now_s)
        if contact.unreachable:
            return NodeState.DOWN, contact.unreachable
        if broker.fenced:
            return NodeState.DOWN, "fenced by the controller"
        if silent_s is not None:
            return NodeState.NO_ANSWER, f"no answer for {silent_s} s"
        if said is not None and not said.ready:
            return NodeState.NOT_READY, said.reason
        return NodeState.UP, "" if said is None else said.reason


def is_silence(error: QuorumlogError | TimeoutError) -> bool:
    """True if a request has failed because no answer came in time, and not because the node or its host refused it."""
    if isinstance(error, TimeoutError | RequestTimedOutError):
        return True
    # gRPC reports an attempt to connect that takes too long, or a keepalive without an answer, as it reports a refused
    # connection. Both happen to a live node without processor time.
    return isinstance(error, NetworkError) and _OVERDUE.search(error.message) is not None
