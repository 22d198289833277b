"""Source of a request: listener, address and principal."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

#: Prefix of every client's principal, followed by the user name. ACLs and super users always have it.
USER_PREFIX = "User:"
#: The principal of an unauthenticated client.
ANONYMOUS = f"{USER_PREFIX}ANONYMOUS"
#: Matches every principal in ACLs.
EVERYBODY = f"{USER_PREFIX}*"


def node_principal(node_id: int) -> str:
    """Returns the principal of another node, as proved by its certificate. It is not a user, and no ACL matches it."""
    return f"Node:{node_id}"


class Listener(Enum):
    """The kinds of address that a node listens on."""

    PLAINTEXT = 1  #: unauthenticated clients, and peers of a cluster without TLS
    PEER = 2  #: nodes, by certificate
    CLIENT = 3  #: clients, by certificate
    PASSWORD = 4  #: clients, by password or token, over TLS
    KAFKA = 5  #: Kafka clients, authenticated as the node's settings require


@dataclass(slots=True, frozen=True)
class RequestContext:
    """A client's identity, its client id, and the host that it calls from.

    Arguments:
        principal: "User:" and a name, as authenticated by its listener; ANONYMOUS without authentication; at the
            listener for nodes, the principal of a node.
        listener: the listener that it connected to; metadata gives it the other nodes' addresses of the same kind.
        serial: the serial number of its certificate in hexadecimal digits; empty without one.
        token: the session token, if the request has one and the session has not been looked up yet.
        proved_as: CLIENT or PASSWORD if it authenticates as at that listener, but at another one.
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
        """The listener whose kind of authentication applies."""
        return self.proved_as or self.listener


#: The context of requests that do not have one.
UNKNOWN_CLIENT = RequestContext()
