"""Options for TLS and authentication, with the names of Kafka's clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypedDict, cast

import grpc
import grpc.aio

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.runtime import bearer_identity
from quorumlog.sdk.runtime.bearer_identity import AnyTokenProvider, BearerIdentity
from quorumlog.sdk.runtime.client_runtime import CHANNEL_OPTIONS, ClientRuntime
from quorumlog.sdk.runtime.fork import connecting
from quorumlog.sdk.runtime.passwords import prepared_password
from quorumlog.sdk.runtime.renewed_channel import RenewedChannel
from quorumlog.sdk.runtime.scram_client import ScramIdentity
from quorumlog.sdk.runtime.tls_files import TlsFiles
from quorumlog.wire.scram import MECHANISMS, ScramMechanism

#: A channel without calls for this time disconnects until the next one. Otherwise it would try to reconnect
#: indefinitely, twice a second and with outdated certificates, to a node that no longer accepts them.
IDLE_MS = 10_000
PLAINTEXT, SSL, SASL_SSL = "PLAINTEXT", "SSL", "SASL_SSL"
#: The options, as keyword arguments with the names of kafka-python.
SECURITY_OPTIONS = (
    "security_protocol", "ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "sasl_mechanism",
    "sasl_plain_username", "sasl_plain_password", "sasl_oauthbearer_token_file", "sasl_oauth_token_provider",
)  # fmt: skip
_SSL_OPTIONS, _SASL_OPTIONS = SECURITY_OPTIONS[1:4], SECURITY_OPTIONS[4:]
#: The options of each mechanism among the latter.
_OF_MECHANISM = {
    **dict.fromkeys(MECHANISMS, SECURITY_OPTIONS[5:7]),
    bearer_identity.MECHANISM: SECURITY_OPTIONS[7:],
}
_BY_DEFAULT = ScramMechanism.SHA_256.sasl_name
#: Text options as properties in files and of Spark, with the names of librdkafka.
PROPERTIES = {
    name: {"sasl_plain_username": "sasl.username", "sasl_plain_password": "sasl.password"}.get(
        name, name.replace("_", ".")
    )
    for name in SECURITY_OPTIONS[:-1]
}


#: Identity for authentication by password or by token.
Identity: TypeAlias = ScramIdentity | BearerIdentity


class SecurityOptions(TypedDict, total=False):
    """The keyword arguments that all clients share, with their defaults.

    security_protocol='PLAINTEXT': ``"PLAINTEXT"``, ``"SSL"`` for TLS, or ``"SASL_SSL"`` for TLS with authentication by
        password or token.
    ssl_ca_location=None: a PEM file with the certificate authorities of the nodes; None: the authorities that gRPC
        includes.
    ssl_certificate_location=None, ssl_key_location=None: PEM files with the certificate and the key of the client, for
        listeners that require one.
    sasl_mechanism=None: ``"SCRAM-SHA-256"``, the default, ``"SCRAM-SHA-512"`` for users with a password for it only, or
        ``"OAUTHBEARER"`` for authentication by token.
    sasl_plain_username=None, sasl_plain_password=None: the user and the password for SCRAM. The password never leaves
        the process.
    sasl_oauthbearer_token_file=None: a file with a bearer token. It is read at each authentication, so that it can be
        renewed.
    sasl_oauth_token_provider=None: instead of the file, a callable that returns the token, or an object with a method
        ``token`` that returns it. It is called at each authentication, on a thread where it may block.
    """

    security_protocol: str
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauthbearer_token_file: str | None
    sasl_oauth_token_provider: AnyTokenProvider | None


@dataclass(slots=True, frozen=True)
class ClientSecurity:
    """Validated :class:`SecurityOptions` with defaults. The configuration of each client inherits them.

    Files are read when a connection is made, and again once they have changed.

    Raises:
        IllegalArgumentError: options contradict each other, or one is missing.
    """

    security_protocol: str = PLAINTEXT
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauthbearer_token_file: str | None = None
    sasl_oauth_token_provider: AnyTokenProvider | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.check_security()

    def check_security(self) -> None:
        """Validates these options. A class that inherits them calls it in its own ``__post_init__``.

        Raises:
            IllegalArgumentError: options contradict each other, or one is missing.
        """
        if self.security_protocol not in (PLAINTEXT, SSL, SASL_SSL):
            wrong = f"security_protocol is {self.security_protocol!r}"
            give = f"{PLAINTEXT} or {SSL}, or {SASL_SSL} for sign-in by password or token"
            raise IllegalArgumentError(f"{wrong}: give {give}")
        configured = [name for name in _SSL_OPTIONS if getattr(self, name) is not None]
        if configured and self.security_protocol == PLAINTEXT:
            raise IllegalArgumentError(f"{configured[0]} is given, but security_protocol is not {SSL}")
        self._check_sasl()
        if (self.ssl_certificate_location is None) != (self.ssl_key_location is None):
            raise IllegalArgumentError("ssl_certificate_location and ssl_key_location come together: give both")

    def _check_sasl(self) -> None:
        """Validates the SASL options; messages never quote the password."""
        configured = [name for name in _SASL_OPTIONS if getattr(self, name) is not None]
        if self.security_protocol != SASL_SSL:
            if configured:
                raise IllegalArgumentError(f"{configured[0]} is given, but security_protocol is not {SASL_SSL}")
            return
        mechanism = _BY_DEFAULT if self.sasl_mechanism is None else self.sasl_mechanism
        if mechanism not in _OF_MECHANISM:
            raise IllegalArgumentError(f"sasl_mechanism is {self.sasl_mechanism!r}: give {' or '.join(_OF_MECHANISM)}")
        if self.ssl_certificate_location is not None:
            raise IllegalArgumentError(
                f"ssl_certificate_location is given, but {SASL_SSL} authenticates by password or token: set it to {SSL}"
            )
        for other, names in _OF_MECHANISM.items():
            stray = [name for name in names if name in configured and name not in _OF_MECHANISM[mechanism]]
            if stray:
                raise IllegalArgumentError(f"{stray[0]} is given, but sasl_mechanism is not {other}")
        if mechanism == bearer_identity.MECHANISM:
            self._check_token_source()
            return
        if not isinstance(self.sasl_plain_username, str) or not self.sasl_plain_username:
            raise IllegalArgumentError(f"sasl_plain_username is not given: {SASL_SSL} needs it and sasl_plain_password")
        if self.sasl_plain_password is None:
            raise IllegalArgumentError(f"sasl_plain_password is not given: {SASL_SSL} needs it")
        prepared_password(self.sasl_plain_password, "sasl_plain_password")

    def _check_token_source(self) -> None:
        file, provider = self.sasl_oauthbearer_token_file, self.sasl_oauth_token_provider
        if (file is None) == (provider is None):
            needs = f"{bearer_identity.MECHANISM} needs one of them"
            raise IllegalArgumentError(f"sasl_oauthbearer_token_file or sasl_oauth_token_provider: {needs}")
        if file is not None and (not isinstance(file, str) or not file):
            raise IllegalArgumentError("sasl_oauthbearer_token_file is not a path: give that of a file with a token")
        if provider is not None and not callable(provider) and not callable(getattr(provider, "token", None)):
            raise IllegalArgumentError("sasl_oauth_token_provider is not callable, and has no method token")

    def identity(self) -> Identity | None:
        """Returns the identity for authentication; None without it."""
        if self.sasl_oauthbearer_token_file is not None:
            return BearerIdentity.of_file(self.sasl_oauthbearer_token_file, "sasl_oauthbearer_token_file")
        if self.sasl_oauth_token_provider is not None:
            return BearerIdentity.of_provider(self.sasl_oauth_token_provider, "sasl_oauth_token_provider")
        if self.sasl_plain_username is None or self.sasl_plain_password is None:
            return None
        mechanism = MECHANISMS[self.sasl_mechanism or _BY_DEFAULT]
        return ScramIdentity(self.sasl_plain_username, prepared_password(self.sasl_plain_password), mechanism)

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> ClientSecurity:
        """Returns the security options among properties such as ``security.protocol``."""
        configured = {name: properties.get(wanted) for name, wanted in PROPERTIES.items()}
        return cls(**cast("SecurityOptions", {name: value for name, value in configured.items() if value is not None}))

    def files(self) -> TlsFiles | None:
        """Returns the files for connections of one client; None without TLS."""
        if self.security_protocol == PLAINTEXT:
            return None
        return TlsFiles(self.ssl_ca_location, self.ssl_certificate_location, self.ssl_key_location)


def runtime_with_tls(runtime: ClientRuntime, files: TlsFiles | None) -> ClientRuntime:
    """Returns the runtime with connections that use such files; unchanged without files."""
    if files is None:
        return runtime

    def open_channel(holder: object, address: str, client_id: str) -> grpc.aio.Channel:
        idle = ("grpc.client_idle_timeout_ms", IDLE_MS)
        options = (*CHANNEL_OPTIONS, idle, ("grpc.primary_user_agent", client_id))

        def secured(credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
            connecting(holder)
            return grpc.aio.secure_channel(address, credentials, options=options)

        return cast("grpc.aio.Channel", RenewedChannel(files, secured))

    return replace(runtime, open_channel=open_channel)


WITHOUT_TLS = ClientSecurity()
