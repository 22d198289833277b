"""Transaction service: every call is one request to the coordinator of a transactional id."""

from __future__ import annotations

import grpc

from quorumlog.server.observability.metrics import Meters
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.unary_calls import Handlers, unary_handler
from quorumlog.v1 import transactions_pb2 as pb

SERVICE = "quorumlog.v1.Transactions"


def transaction_handlers(requests: ClientRequests, meters: Meters) -> Handlers:
    """Returns the handlers for the gRPC server."""
    kinds = {
        "InitTransactions": pb.InitTransactionsRequest,
        "JoinTransaction": pb.JoinTransactionRequest,
        "AddToTransaction": pb.AddToTransactionRequest,
        "EndTransaction": pb.EndTransactionRequest,
    }
    handlers = {name: unary_handler(kind, requests, meters) for name, kind in kinds.items()}
    return grpc.method_handlers_generic_handler(SERVICE, handlers)
