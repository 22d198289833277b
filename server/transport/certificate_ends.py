"""Calls end with the certificate that they were made with. gRPC looks at its time in the handshake only."""

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

ENDED = "the certificate of this connection is not valid any more: connect with a new one"


def certificate_end_s(context: Context) -> float:
    """When the other side's certificate ends, in seconds since 1970; never without one."""
    return certificate_end_of(context.auth_context())


def certificate_end_of(auth_context: AuthContext) -> float:
    """The same, by what a connection has proved."""
    certificate = certificate_of(auth_context)
    return math.inf if certificate is None else _end_s(certificate)


async def refuse_ended(context: Context, *, definite: bool = True) -> None:
    """Ends the call where the certificate of its connection has ended.

    Arguments:
        definite: nothing was done; False: requests of the stream that are under way may yet take effect.
    """
    if time.time() > certificate_end_s(context):
        await refuse(context, error(ErrorCode.SASL_AUTHENTICATION_FAILED, ENDED, definite=definite))


@lru_cache(maxsize=1_024)
def _end_s(certificate: bytes) -> float:
    try:
        return validity(certificate).ends_s
    except CertificateError:
        return 0.0  # gRPC took what we cannot read: nobody goes on with it.
