"""How a client reaches nodes: with or without TLS, and with which certificate. Names are those of Kafka's clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

import grpc
import grpc.aio

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.runtime.client_runtime import CHANNEL_OPTIONS, ClientRuntime
from quorumlog.sdk.runtime.fork import connecting

PLAINTEXT, SSL = "PLAINTEXT", "SSL"
#: The options, as keyword arguments. In files, and in Spark, a dot stands for each underscore.
SECURITY_OPTIONS = ("security_protocol", "ssl_ca_location", "ssl_certificate_location", "ssl_key_location")


class SecurityOptions(TypedDict, total=False):
    """The keyword arguments that all clients share.

    security_protocol: ``"PLAINTEXT"``, or ``"SSL"`` for TLS.
    ssl_ca_location: a file in PEM: the authorities of the nodes' certificates; without one, those that gRPC brings.
    ssl_certificate_location, ssl_key_location: files in PEM: the client's certificate and its key, for listeners that
        ask for one.
    """

    security_protocol: str
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None


@dataclass(slots=True, frozen=True)
class ClientSecurity:
    """The options, checked. Files are read when a connection is made.

    Raises:
        IllegalArgumentError: they do not belong together.
    """

    security_protocol: str = PLAINTEXT
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None

    def __post_init__(self) -> None:
        if self.security_protocol not in (PLAINTEXT, SSL):
            raise IllegalArgumentError(f"security_protocol is {self.security_protocol!r}: give {PLAINTEXT} or {SSL}")
        given = [name for name in SECURITY_OPTIONS[1:] if getattr(self, name) is not None]
        if given and self.security_protocol != SSL:
            raise IllegalArgumentError(f"{given[0]} is given, but security_protocol is not {SSL}")
        if (self.ssl_certificate_location is None) != (self.ssl_key_location is None):
            raise IllegalArgumentError("ssl_certificate_location and ssl_key_location come together: give both")

    @classmethod
    def of(cls, config: object) -> ClientSecurity:
        """Those among the attributes of a client's configuration."""
        return cls(*(getattr(config, name) for name in SECURITY_OPTIONS))

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> ClientSecurity:
        """Those among properties such as ``security.protocol``."""
        given = {name: properties.get(name.replace("_", ".")) for name in SECURITY_OPTIONS}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def credentials(self) -> grpc.ChannelCredentials | None:
        """What a connection is made with; None without TLS.

        Raises:
            IllegalArgumentError: a file cannot be read.
        """
        if self.security_protocol == PLAINTEXT:
            return None
        return grpc.ssl_channel_credentials(
            self._read("ssl_ca_location"), self._read("ssl_key_location"), self._read("ssl_certificate_location")
        )

    def applied_to(self, runtime: ClientRuntime) -> ClientRuntime:
        """The same outside world, but with such connections."""
        return runtime if self.security_protocol == PLAINTEXT else replace(runtime, open_channel=self._open_channel)

    def _open_channel(self, holder: object, address: str, client_id: str) -> grpc.aio.Channel:
        credentials = self.credentials()
        assert credentials is not None
        connecting(holder)
        options = (*CHANNEL_OPTIONS, ("grpc.primary_user_agent", client_id))
        return grpc.aio.secure_channel(address, credentials, options=options)

    def _read(self, name: str) -> bytes | None:
        path: str | None = getattr(self, name)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                content = file.read()
        except (OSError, ValueError) as error:
            raise IllegalArgumentError(
                f"{name}: cannot read {path}: {getattr(error, 'strerror', None) or error}"
            ) from None
        if b"-----BEGIN " not in content:
            raise IllegalArgumentError(f"{name}: {path} is not in PEM: it has no line -----BEGIN")
        return content


WITHOUT_TLS = ClientSecurity()
