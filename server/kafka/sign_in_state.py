"""State of SASL authentication on a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quorumlog.server.step.bearer_tokens import TokenVerifier


class TokenKeyReader(Protocol):
    """Source of the keys that sign tokens."""

    def read(self) -> TokenVerifier:
        """Returns a verifier with the current keys. May block on the disk."""

    def give(self, verifier: TokenVerifier) -> None:
        """Passes it to the node, before a token is verified. Called on the event loop."""


class KafkaSignIn:
    """State of SASL authentication on a connection.

    Arguments:
        draw_nonce: returns an unguessable text, different on each call.
        keys: for tokens; None: the node accepts none.

    Attributes:
        token: of the client's session; empty before it has authenticated.
        user: the user that is, or asks to be, authenticated.
        mechanism: chosen by the last SaslHandshake; empty if none was.
        former_mechanism: the one with which the client has authenticated; empty before.
        client_first: SCRAM's first message, once received; empty before.
        rejection: why the token was rejected, until the client has acknowledged that; empty before.
        failure: why the connection has to be closed; None while it may continue.
    """

    def __init__(self, draw_nonce: Callable[[], str], keys: TokenKeyReader | None = None) -> None:
        self.draw_nonce = draw_nonce
        self.keys = keys
        self.token = ""
        self.user = ""
        self.mechanism = ""
        self.former_mechanism = ""
        self.client_first = ""
        self.rejection = ""
        self.failure: str | None = None
