"""Where a request comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

#: Begins every principal of a client; what follows is the user's name. No rule and no super user begins otherwise.
USER_PREFIX = "User:"
#: The principal of whoever has not signed in.
ANONYMOUS = f"{USER_PREFIX}ANONYMOUS"
#: Stands for every principal in rules.
EVERYBODY = f"{USER_PREFIX}*"


def node_principal(node_id: int) -> str:
    """The principal of another node, as its certificate has proved it. It is no user's, and no rule is about it."""
    return f"Node:{node_id}"


class Listener(Enum):
    """The kinds of addresses that a node listens at."""

    PLAINTEXT = 1  #: clients that prove nothing, and peers of a cluster without TLS
    PEER = 2  #: nodes, by certificate
    CLIENT = 3  #: clients, by certificate
    PASSWORD = 4  #: clients, by password or token, over TLS
    KAFKA = 5  #: clients of Kafka's protocol, in the way that the node's settings say


@dataclass(slots=True, frozen=True)
class RequestContext:
    """Who a client is, what it calls itself, and the machine that it speaks from.

    Arguments:
        principal: "User:" and a name, as its listener has proved it; ANONYMOUS where nothing was proved; that of a node
            at the listener of nodes.
        listener: where it came in; it is told of other nodes where they listen in the same way.
        serial: the serial number of its certificate in hexadecimal digits; empty without one.
        token: of its session, where it came in with one and the session has not been looked up yet.
        proved_as: CLIENT or PASSWORD where it proves who it is in the way of that listener at another one.
    """

    client_id: str = ""
    host: str = ""
    principal: str = ANONYMOUS
    listener: Listener = Listener.PLAINTEXT
    serial: str = ""
    token: str = field(default="", repr=False)
    proved_as: Listener | None = None

    @property
    def proof(self) -> Listener:
        """The listener in whose way it proves who it is."""
        return self.proved_as or self.listener


#: Of requests that nobody has said it of.
UNKNOWN_CLIENT = RequestContext()
