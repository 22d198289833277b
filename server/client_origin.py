"""Where a request comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class ClientOrigin:
    """What a client calls itself, and the machine that it speaks from."""

    client_id: str = ""
    host: str = ""


#: Of requests that nobody has said it of.
UNKNOWN_CLIENT = ClientOrigin()
