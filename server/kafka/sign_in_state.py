"""How far a connection is with signing in."""

from __future__ import annotations

from collections.abc import Callable


class KafkaSignIn:
    """Who has signed in on a connection.

    Arguments:
        draw_nonce: text that nobody can guess, another one each time.

    Attributes:
        token: of the client's session; empty before it has signed in.
        user: who that is, or wants to be.
        mechanism: that was chosen for what comes next; empty where none was.
        client_first: SCRAM's first message, once it was sent; empty before.
        failure: why the connection has to end; None while it goes on.
    """

    def __init__(self, draw_nonce: Callable[[], str]) -> None:
        self.draw_nonce = draw_nonce
        self.token = ""
        self.user = ""
        self.mechanism = ""
        self.client_first = ""
        self.failure: str | None = None
