"""Addresses of a cluster with security options: one value, from the options to every task."""

from __future__ import annotations

from quorumlog.sdk.runtime.security import WITHOUT_TLS, ClientSecurity


class Servers(str):
    """Addresses, ``host:port,host:port``, with security options. Two of them are equal if both are.

    Arguments:
        addresses: of nodes to contact first.
        security: options for all nodes; files are those of the machine that connects.
    """

    security: ClientSecurity

    def __new__(cls, addresses: str, security: ClientSecurity = WITHOUT_TLS) -> Servers:
        made = super().__new__(cls, addresses)
        made.security = security
        return made

    def __getnewargs__(self) -> tuple[str, ClientSecurity]:  # type: ignore[override]  # what __new__ takes
        return str(self), self.security

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True and security_of(other) == self.security

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


def security_of(bootstrap_servers: object) -> ClientSecurity:
    """Returns the security options; without TLS if the addresses are a plain string."""
    return bootstrap_servers.security if isinstance(bootstrap_servers, Servers) else WITHOUT_TLS
