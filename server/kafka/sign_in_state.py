"""State of SASL authentication on a connection."""

from __future__ import annotations

from collections.abc import Callable


class KafkaSignIn:
    """State of SASL authentication on a connection.

    Arguments:
        draw_nonce: returns an unguessable text, different on each call.

    Attributes:
        token: of the client's session; empty before it has authenticated.
        user: the user that is, or asks to be, authenticated.
        mechanism: chosen by the last SaslHandshake; empty if none was.
        client_first: SCRAM's first message, once received; empty before.
        failure: why the connection has to be closed; None while it may continue.
    """

    def __init__(self, draw_nonce: Callable[[], str]) -> None:
        self.draw_nonce = draw_nonce
        self.token = ""
        self.user = ""
        self.mechanism = ""
        self.client_first = ""
        self.failure: str | None = None
