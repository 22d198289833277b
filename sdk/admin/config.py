"""Configuration of the admin clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quorumlog.sdk.cluster.cluster import DEFAULT_BOOTSTRAP_SERVERS, parse_bootstrap_servers
from quorumlog.sdk.configuration import check_range
from quorumlog.sdk.runtime.security import ClientSecurity, SecurityOptions


class AdminOptions(SecurityOptions, total=False):
    """Keyword arguments of ``Admin`` and ``AsyncAdmin``; :class:`~quorumlog.sdk.Admin` documents them."""

    bootstrap_servers: str | Sequence[str]
    request_timeout_ms: float
    bootstrap_timeout_ms: float
    client_id: str


@dataclass(slots=True, frozen=True)
class AdminConfig(ClientSecurity):
    """Validated :class:`AdminOptions` with defaults.

    Raises:
        IllegalArgumentError: an option is invalid.
    """

    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS
    request_timeout_ms: float = 30_000
    bootstrap_timeout_ms: float = 3_000
    client_id: str = "quorumlog-admin"

    def __post_init__(self) -> None:
        parse_bootstrap_servers(self.bootstrap_servers)
        self.check_security()
        check_range(self, "request_timeout_ms", 1, 3_600_000)
        check_range(self, "bootstrap_timeout_ms", 1, 3_600_000)
