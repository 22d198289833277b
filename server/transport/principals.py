"""Who calls, by what the listener has proved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorumlog.server.client_origin import ANONYMOUS


def principal_of(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """The principal of a call: ``User:`` and a name, or ``User:ANONYMOUS``.

    Arguments:
        auth_context: what gRPC tells of the connection, of which nothing proves anything without TLS.
    """
    return ANONYMOUS
