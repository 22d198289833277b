"""Addresses and credentials with which hostile clients reach the nodes."""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass, field
from typing import cast

import grpc

from quorumlog.sdk.cluster.node_session import session_metadata
from quorumlog.sdk.runtime.scram_client import ScramIdentity
from quorumlog.sdk.runtime.security import ClientSecurity, SecurityOptions
from quorumlog.v1 import sign_in_pb2, sign_in_pb2_grpc

_SIGN_IN_S = 10.0


@dataclass(slots=True, frozen=True)
class Entrance:
    """Addresses and credentials of hostile clients, as they are passed to their processes.

    Arguments:
        nodes: node id -> host:port.
        kafka: the same for Kafka clients, if these are the hostile ones.
        options: client options of the SDK; empty without TLS.
        forbidden: texts that no answer may contain.
    """

    nodes: dict[int, str]
    options: dict[str, str] = field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    kafka: dict[int, str] = field(default_factory=dict)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Returns credentials for connections; None without TLS."""
        return credentials_of(self.options) if self.options else None

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns a context for connections without gRPC; None without TLS."""
        return ssl.create_default_context(cafile=self.options["ssl_ca_location"]) if self.options else None

    def identity(self) -> ScramIdentity | None:
        """Returns the identity for password authentication, if there is one."""
        found = ClientSecurity(**cast("SecurityOptions", self.options)).identity() if self.options else None
        return found if isinstance(found, ScramIdentity) else None

    def sign_in(self) -> dict[int, str]:
        """Returns the session token for each node; none without password authentication."""
        identity, credentials = self.identity(), self.credentials()
        if identity is None or credentials is None:
            return {}
        tokens = {}
        for node, place in self.nodes.items():
            with grpc.secure_channel(place, credentials) as channel:
                tokens[node] = _token(channel, identity)
        return tokens


def _token(channel: grpc.Channel, identity: ScramIdentity) -> str:
    stub, exchange = sign_in_pb2_grpc.SignInStub(channel), identity.begin(random.SystemRandom())
    first = exchange.first.text
    begun = stub.BeginScram(sign_in_pb2.BeginScramRequest(client_first=first), timeout=_SIGN_IN_S)
    final = exchange.answer(begun.server_first)
    request = sign_in_pb2.FinishScramRequest(client_first=first, client_final=final)
    token: str = stub.FinishScram(request, timeout=_SIGN_IN_S).session_token
    return token


def metadata_of(token: str | None) -> tuple[tuple[str, str], ...]:
    """Returns the call metadata of a session."""
    return () if token is None else tuple(session_metadata(token))


def credentials_of(options: dict[str, str]) -> grpc.ChannelCredentials:
    """Returns credentials for TLS connections from the options of a client."""
    files = ClientSecurity(**cast("SecurityOptions", options)).files()
    assert files is not None, options
    return files.credentials()
