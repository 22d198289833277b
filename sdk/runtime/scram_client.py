"""Authentication by password as a client, without I/O: SCRAM (RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import hmac
import random

from quorumlog.sdk.errors import SaslAuthenticationFailedError
from quorumlog.v1.credentials_pb2 import ScramMechanism as ScramNumber
from quorumlog.wire.scram import (
    ClientFinal,
    ClientFirst,
    SaltedKeys,
    ScramMechanism,
    ScramMessageError,
    ServerFirst,
    auth_message,
    client_proof,
    salted_keys,
    server_signature,
)

_NONCE_BYTES = 18


def number_of(mechanism: ScramMechanism) -> ScramNumber.ValueType:
    """Returns the number of a mechanism in messages to nodes."""
    return ScramNumber.Value(f"SCRAM_MECHANISM_{mechanism.name}")


class ScramIdentity:
    """A user and a password. Keys are derived once for each salt, and all nodes have the same salt.

    Arguments:
        password: normalised, in UTF-8.
    """

    def __init__(self, user: str, password: bytes, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> None:
        self.user = user
        self.mechanism = mechanism
        self._password = password
        self._keys: tuple[tuple[bytes, int], SaltedKeys] | None = None

    def __repr__(self) -> str:
        return f"ScramIdentity({self.user!r}, ***)"

    def begin(self, rng: random.Random) -> ScramExchange:
        """Starts an authentication at one node."""
        nonce = base64.b64encode(rng.randbytes(_NONCE_BYTES)).decode()
        return ScramExchange(self, ClientFirst(self.user, nonce))

    def keys(self, salt: bytes, iterations: int) -> SaltedKeys:
        """Returns the keys for a salt: some 70 ms of work the first time."""
        known = self._keys
        if known is not None and known[0] == (salt, iterations):
            return known[1]
        made = salted_keys(self.mechanism, self._password, salt, iterations)
        self._keys = (salt, iterations), made
        return made


class ScramExchange:
    """One authentication.

    Attributes:
        first: the client's first message.
        mechanism: to be named in both calls.
    """

    def __init__(self, identity: ScramIdentity, first: ClientFirst) -> None:
        self.first = first
        self.mechanism = identity.mechanism
        self._identity = identity
        self._signature = b""

    def answer(self, server_first: str) -> str:
        """Returns the client's last message. May block: do not call it on an event loop.

        Raises:
            SaslAuthenticationFailedError: the node's message is invalid or insecure.
        """
        try:
            said = ServerFirst.of(server_first, self.first.nonce)
        except ScramMessageError as problem:
            raise SaslAuthenticationFailedError(f"the node violates {self.mechanism.sasl_name}: {problem}") from None
        keys = self._identity.keys(said.salt, said.iterations)
        final = ClientFinal(said.nonce, b"")
        signed = auth_message(self.first, said, final)
        self._signature = server_signature(self.mechanism, keys.server_key, signed)
        return final._replace(proof=client_proof(keys, signed)).text

    def check(self, signature: bytes) -> None:
        """Verifies that the node has the user's credentials.

        Raises:
            SaslAuthenticationFailedError: it does not: it may belong to an attacker.
        """
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise SaslAuthenticationFailedError("the node cannot prove that it has the user: is it of this cluster?")
