"""The methods that clients can call, taken from the descriptors, so that new ones are included automatically."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2, peer_pb2, sign_in_pb2

#: Methods that cost the whole cluster a command in the metadata log, and replicas: they are called less often.
_HEAVY = {
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterConfigs",
    "ReassignPartitions",
    "ElectLeaders",
    "DeleteProducers",
    "InitProducerId",
}
_HEAVY_WEIGHT, _LIGHT_WEIGHT = 1, 6


@dataclass(slots=True, frozen=True)
class Method:
    """One method of one service.

    Arguments:
        path: gRPC's name of the method.
        streams: True if requests are sent on a stream.
        weight: relative frequency of calls.
    """

    path: str
    name: str
    request: type[Message]
    response: type[Message]
    streams: bool
    weight: int


def _method(method: MethodDescriptor) -> Method:
    return Method(
        f"/{method.containing_service.full_name}/{method.name}",
        method.name,
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        method.client_streaming,
        _HEAVY_WEIGHT if method.name in _HEAVY else _LIGHT_WEIGHT,
    )


def _methods_of(file: object) -> dict[str, Method]:
    services = file.DESCRIPTOR.services_by_name.values()  # type: ignore[attr-defined]  # a generated module
    return {method.name: _method(method) for service in services for method in service.methods}


#: Methods by name; no two services have a method of the same name.
METHODS: dict[str, Method] = {**_methods_of(admin_pb2), **_methods_of(data_plane_pb2), **_methods_of(groups_pb2)}
#: Methods that are served only where passwords are required.
SIGN_IN_METHODS: dict[str, Method] = _methods_of(sign_in_pb2)
#: Methods between nodes.
PEER_METHODS: dict[str, Method] = _methods_of(peer_pb2)
BY_PATH: dict[str, Method] = {
    method.path: method for method in (*METHODS.values(), *SIGN_IN_METHODS.values(), *PEER_METHODS.values())
}
