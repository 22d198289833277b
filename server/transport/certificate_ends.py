"""Ends calls when the certificate of their connection expires: gRPC checks validity only during the handshake."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import TypeAlias

import grpc.aio

from quorumlog.server.certificates.x509 import CertificateError, validity
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.principals import AuthContext, certificate_of
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1.errors_pb2 import ErrorCode

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

ENDED = "the certificate of this connection has expired: reconnect with a new one"


def certificate_end_s(context: Context) -> float:
    """Returns when the caller's certificate expires, in seconds since 1970; infinity without a certificate."""
    return certificate_end_of(context.auth_context())


def certificate_end_of(auth_context: AuthContext) -> float:
    """Returns the same for the authentication context of a connection."""
    certificate = certificate_of(auth_context)
    return math.inf if certificate is None else _end_s(certificate)


async def refuse_ended(context: Context, *, definite: bool = True) -> None:
    """Ends the call if the certificate of its connection has expired.

    Arguments:
        definite: nothing was done; False: requests of the stream that are in progress may still take effect.
    """
    if time.time() > certificate_end_s(context):
        await refuse(context, error(ErrorCode.SASL_AUTHENTICATION_FAILED, ENDED, definite=definite))


@lru_cache(maxsize=1_024)
def _end_s(certificate: bytes) -> float:
    try:
        return validity(certificate).ends_s
    except CertificateError:
        return 0.0  # gRPC accepted a certificate that we cannot parse: treat it as expired.
