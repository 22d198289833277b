"""Where a request comes from."""

from __future__ import annotations

from dataclasses import dataclass

#: Begins every principal; what follows is the user's name.
USER_PREFIX = "User:"
#: The principal of whoever has not signed in.
ANONYMOUS = f"{USER_PREFIX}ANONYMOUS"
#: Stands for every principal in rules.
EVERYBODY = f"{USER_PREFIX}*"


@dataclass(slots=True, frozen=True)
class ClientOrigin:
    """Who a client is, what it calls itself, and the machine that it speaks from.

    Arguments:
        principal: "User:" and a name, as its listener has proved it; ANONYMOUS where nothing was proved.
    """

    client_id: str = ""
    host: str = ""
    principal: str = ANONYMOUS


#: Of requests that nobody has said it of.
UNKNOWN_CLIENT = ClientOrigin()
