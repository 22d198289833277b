"""Broker endpoints: the address of a node for each kind of listener."""

from __future__ import annotations

import pytest

from quorumlog.server.metadata.records import BrokerRecord
from quorumlog.server.step.request_context import Listener
from quorumlog.v1 import peer_pb2


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (Listener.CLIENT, ("c", 2)),
        (Listener.PEER, ("p", 1)),
        (Listener.PLAINTEXT, ("default", 9)),
        (Listener.PASSWORD, ("default", 9)),
    ],
)
def test_a_broker_is_reached_where_it_listens_in_the_same_way(asked: Listener, place: tuple[str, int]) -> None:
    endpoints = [
        peer_pb2.Endpoint(listener=peer_pb2.LISTENER_PEER, host="p", port=1),
        peer_pb2.Endpoint(listener=peer_pb2.LISTENER_CLIENT, host="c", port=2),
    ]
    registration = peer_pb2.RegisterBroker(node_id=1, host="default", port=9, endpoints=endpoints)
    assert BrokerRecord(registration, 1, fenced=False).endpoint(asked) == place


def test_kinds_of_listeners_have_the_same_numbers_on_the_wire() -> None:
    names = {f"LISTENER_{listener.name}": listener.value for listener in Listener}
    assert names | {"LISTENER_UNSPECIFIED": 0} == dict(peer_pb2.Listener.items())
