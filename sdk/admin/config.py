"""Configuration of the admin clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from quorumlog.sdk.cluster.cluster import DEFAULT_BOOTSTRAP_SERVERS, parse_bootstrap_servers
from quorumlog.sdk.configuration import check_range
from quorumlog.sdk.runtime.bearer_identity import AnyTokenProvider
from quorumlog.sdk.runtime.security import PLAINTEXT, ClientSecurity


class AdminOptions(TypedDict, total=False):
    """The keyword arguments of ``Admin`` and ``AsyncAdmin``. :class:`~quorumlog.sdk.Admin` explains them."""

    bootstrap_servers: str | Sequence[str]
    security_protocol: str
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauthbearer_token_file: str | None
    sasl_oauth_token_provider: AnyTokenProvider | None
    request_timeout_ms: float
    bootstrap_timeout_ms: float
    client_id: str


@dataclass(slots=True, frozen=True)
class AdminConfig:
    """:class:`AdminOptions` with defaults filled in, and checked."""

    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS
    security_protocol: str = PLAINTEXT
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauthbearer_token_file: str | None = None
    sasl_oauth_token_provider: AnyTokenProvider | None = field(default=None, repr=False)
    request_timeout_ms: float = 30_000
    bootstrap_timeout_ms: float = 3_000
    client_id: str = "quorumlog-admin"

    def __post_init__(self) -> None:
        parse_bootstrap_servers(self.bootstrap_servers)
        ClientSecurity.of(self)
        check_range(self, "request_timeout_ms", 1, 3_600_000)
        check_range(self, "bootstrap_timeout_ms", 1, 3_600_000)
