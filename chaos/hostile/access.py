"""How hostile clients get to the nodes, and as whom."""

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
    """How hostile clients get to the nodes, as it is written into the orders of their processes.

    Arguments:
        nodes: node id -> host:port.
        kafka: the same for Kafka's clients, where they are the ones that mean no good.
        options: of a client, as the SDK takes them; none without TLS.
        forbidden: what no answer may hold.
    """

    nodes: dict[int, str]
    options: dict[str, str] = field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    kafka: dict[int, str] = field(default_factory=dict)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """For connections; None without TLS."""
        return credentials_of(self.options) if self.options else None

    def tls_context(self) -> ssl.SSLContext | None:
        """For connections without gRPC; None without TLS."""
        return ssl.create_default_context(cafile=self.options["ssl_ca_location"]) if self.options else None

    def identity(self) -> ScramIdentity | None:
        """Who signs in by password, if somebody does."""
        found = ClientSecurity(**cast("SecurityOptions", self.options)).identity() if self.options else None
        return found if isinstance(found, ScramIdentity) else None

    def sign_in(self) -> dict[int, str]:
        """The token of a session at each node; none for who does not sign in."""
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
    """What calls in a session are made with."""
    return () if token is None else tuple(session_metadata(token))


def credentials_of(options: dict[str, str]) -> grpc.ChannelCredentials:
    """For connections with TLS, of the options of a client."""
    files = ClientSecurity(**cast("SecurityOptions", options)).files()
    assert files is not None, options
    return files.credentials()
