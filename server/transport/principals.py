"""Principals of callers, derived from what the listener has verified."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from quorumlog.server.certificates.names import node_of, user_of
from quorumlog.server.certificates.x509 import CertificateError, serial_number
from quorumlog.server.step.request_context import ANONYMOUS, EVERYBODY, USER_PREFIX, Listener

#: Maximum length of a common name that is accepted as a user's.
MAX_NAME_LENGTH = 249

#: Authentication context of a connection: from gRPC, or from :func:`auth_context_of` without gRPC. Without TLS nothing
#: in it is verified, and none of the keys below exists.
AuthContext = Mapping[str, Iterable[bytes]]


def principal_of(auth_context: AuthContext) -> str:
    """Returns the principal of a call: ``User:`` and a name, or ``User:ANONYMOUS``.

    The name is that of the certificate's only URI of a user, otherwise its common name. A node is not a user, and no
    certificate may claim the principal that stands for every user.

    Arguments:
        auth_context: gRPC's authentication context of the connection.
    """
    uris = _texts(auth_context, "peer_uri")
    if any(node_of(uri) is not None for uri in uris):
        return ANONYMOUS
    users = [user for uri in uris if (user := user_of(uri)) is not None]
    names = users or _texts(auth_context, "x509_common_name")
    if len(names) != 1 or not 0 < len(names[0]) <= MAX_NAME_LENGTH or not names[0].isprintable():
        return ANONYMOUS
    principal = f"{USER_PREFIX}{names[0]}"
    return ANONYMOUS if principal == EVERYBODY else principal


def auth_context_of(connection: ssl.SSLSocket | ssl.SSLObject) -> AuthContext:
    """Returns what gRPC's authentication context would have: the peer's certificate and the names in it."""
    shown, der = connection.getpeercert() or {}, connection.getpeercert(binary_form=True)
    if der is None:
        return {}
    alternatives: Any = shown.get("subjectAltName", ())
    subject: Any = shown.get("subject", ())
    return {
        "x509_pem_cert": [ssl.DER_cert_to_PEM_cert(der).encode()],
        "peer_uri": [value.encode() for kind, value in alternatives if kind == "URI"],
        "x509_common_name": [
            value.encode() for names in subject for kind, value in names if kind == "commonName"
        ],
    }  # fmt: skip


def node_id_of(auth_context: AuthContext) -> int | None:
    """Returns the id of the node in the peer's certificate; None if it names no node, or several."""
    nodes = [node for uri in _texts(auth_context, "peer_uri") if (node := node_of(uri)) is not None]
    return nodes[0] if len(nodes) == 1 else None


def listener_of(auth_context: AuthContext) -> Listener:
    """Returns the kind of listener that a client's call arrived at: each has one method of authentication."""
    if "ssl" not in _texts(auth_context, "transport_security_type"):
        return Listener.PLAINTEXT
    return Listener.CLIENT if certificate_of(auth_context) is not None else Listener.PASSWORD


def serial_of(auth_context: AuthContext) -> str:
    """Returns the serial number of the peer's certificate in hexadecimal digits; empty without a certificate."""
    certificate = certificate_of(auth_context)
    return "" if certificate is None else _serial(certificate)


@lru_cache(maxsize=1_024)
def _serial(certificate: bytes) -> str:
    try:
        return serial_number(certificate)
    except CertificateError:
        return ""  # gRPC accepted a certificate that we cannot parse: certificate_ends ends the call.


def certificate_of(auth_context: AuthContext) -> bytes | None:
    """Returns the peer's certificate in PEM; None without one."""
    return next(iter(auth_context.get("x509_pem_cert", ())), None)


def _texts(auth_context: AuthContext, key: str) -> list[str]:
    return [value.decode(errors="replace") for value in auth_context.get(key, ())]
