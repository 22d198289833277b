"""Sign-in by password: two calls, each one request to the node."""

from __future__ import annotations

import grpc

from quorumlog.server.metrics import Meters
from quorumlog.server.transport.client_requests import ClientRequests
from quorumlog.server.transport.unary_calls import Handlers, unary_handler
from quorumlog.v1 import sign_in_pb2

SERVICE = "quorumlog.v1.SignIn"


def sign_in_handlers(requests: ClientRequests, meters: Meters) -> Handlers:
    """What the gRPC server of the listener for passwords serves beside all else."""
    kinds = {"BeginScram": sign_in_pb2.BeginScramRequest, "FinishScram": sign_in_pb2.FinishScramRequest}
    return grpc.method_handlers_generic_handler(
        SERVICE, {name: unary_handler(kind, requests, meters) for name, kind in kinds.items()}
    )
