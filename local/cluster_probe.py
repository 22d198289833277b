"""Probes of a local cluster's nodes, over gRPC: their state, and what they see of each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from quorumlog.server.certificates.pairs import Pair
from quorumlog.v1 import admin_pb2, admin_pb2_grpc, data_plane_pb2, data_plane_pb2_grpc

CALL_TIMEOUT_S = 1.0
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(slots=True, frozen=True)
class NodeView:
    """The state reported by one node.

    ``unfenced`` are the brokers that it sees as alive; ``reason`` is why it is not ready, or another problem, such as a
    full disk. ``answers``: it responds.
    """

    ready: bool
    reason: str
    answers: bool = True
    controller: int | None = None
    unfenced: frozenset[int] = frozenset()


class ClusterView:
    """Short-lived connections to some nodes.

    Arguments:
        addresses: node id -> host:port.
        pair: of a user, with the authorities of nodes; None: without TLS.
    """

    def __init__(self, addresses: dict[int, str], pair: Pair | None = None) -> None:
        if pair is None:
            self._channels = {node: grpc.insecure_channel(address, _OPTIONS) for node, address in addresses.items()}
            return
        credentials = grpc.ssl_channel_credentials(pair.authorities, pair.key, pair.certificate)
        self._channels = {
            node: grpc.secure_channel(address, credentials, _OPTIONS) for node, address in addresses.items()
        }

    def __enter__(self) -> ClusterView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            channel.close()

    def node(self, node_id: int) -> NodeView:
        """Returns the state of a node; not ready if it does not respond."""
        try:
            ready, reason = self._readiness(node_id)
            if not ready:
                return NodeView(False, reason)
            metadata = self._metadata(node_id, data_plane_pb2.MetadataRequest())
        except grpc.RpcError as error:
            return NodeView(False, f"it does not answer ({_code(error)})", answers=False)
        unfenced = frozenset(broker.node_id for broker in metadata.brokers if not broker.fenced)
        controller = None if metadata.controller_id < 0 else metadata.controller_id
        return NodeView(True, reason, controller=controller, unfenced=unfenced)

    def _readiness(self, node_id: int) -> tuple[bool, str]:
        """Returns whether a node serves, and in one line why it does not, or what it refuses.

        A node that requires a permission that we lack reports only the former.
        """
        try:
            described = admin_pb2_grpc.AdminStub(self._channels[node_id]).DescribeNode(
                admin_pb2.DescribeNodeRequest(), timeout=CALL_TIMEOUT_S
            )
        except grpc.RpcError as error:
            if _code(error) != grpc.StatusCode.PERMISSION_DENIED.name:
                raise
            stub = health_pb2_grpc.HealthStub(self._channels[node_id])
            health = stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_TIMEOUT_S)
            serves = health.status == health_pb2.HealthCheckResponse.SERVING
            return serves, "" if serves else "it does not say why"
        return described.ready, described.reason or ("" if described.ready else "it does not say why")

    def leader(self, topic: str, partition: int) -> int | None:
        """Returns the leader of a partition, by the node with the newest leader epoch."""
        newest = (-1, -1)
        request = data_plane_pb2.MetadataRequest(topics=[topic])
        for answer in self._everyone(request):
            for described in answer.topics:
                for one in described.partitions:
                    if one.partition == partition:
                        newest = max(newest, (one.leader_epoch, one.leader))
        return None if newest[1] < 0 else newest[1]

    def controller(self) -> int | None:
        """Returns the active controller, by the node with the most recent metadata."""
        answers = [one for one in self._everyone(data_plane_pb2.MetadataRequest()) if one.controller_id >= 0]
        return min(answers, key=lambda one: one.image_age_ms).controller_id if answers else None

    def _everyone(self, request: data_plane_pb2.MetadataRequest) -> Iterable[data_plane_pb2.MetadataResponse]:
        for node_id in self._channels:
            try:
                yield self._metadata(node_id, request)
            except grpc.RpcError:
                # Paused or stopping: the other nodes have the same metadata.
                continue

    def _metadata(self, node_id: int, request: data_plane_pb2.MetadataRequest) -> data_plane_pb2.MetadataResponse:
        return data_plane_pb2_grpc.DataPlaneStub(self._channels[node_id]).Metadata(request, timeout=CALL_TIMEOUT_S)


def _code(error: grpc.RpcError) -> str:
    return error.code().name if isinstance(error, grpc.Call) else str(error)
