"""Values derived from a node's options."""

from dataclasses import replace

from quorumlog.raft.options import RaftOptions
from quorumlog.server.config.options import Endpoint, NodeLimits, NodeOptions
from quorumlog.server.step.request_context import Listener

OPTIONS = NodeOptions(1, "node-1.example:19092", {})


def test_leases_are_told_three_times_in_an_election_timeout_and_never_more_often_than_heartbeats() -> None:
    usual = replace(OPTIONS, raft=RaftOptions(election_timeout_us=900_000), heartbeat_interval_us=100_000)
    assert usual.lease_interval_us == 300_000
    assert replace(usual, heartbeat_interval_us=400_000).lease_interval_us == 400_000


def test_snapshots_of_one_slice_may_be_many_at_once_and_larger_ones_few() -> None:
    limits = NodeLimits(snapshot_transfers=4, small_snapshot_transfers=64)
    assert [limits.transfers_of(slices) for slices in (1, 2, 100)] == [64, 4, 4]


def test_an_address_has_a_host_and_a_port_also_with_brackets() -> None:
    assert OPTIONS.told_everybody == ("node-1.example", 19092)
    bracketed = replace(OPTIONS, address="[::1]:80")
    assert bracketed.told_everybody == ("[::1]", 80)


def test_a_node_with_endpoints_tells_everybody_the_plaintext_one_as_long_as_it_has_one() -> None:
    places = (Endpoint(Listener.PEER, "p", 1), Endpoint(Listener.CLIENT, "c", 2), Endpoint(Listener.PLAINTEXT, "l", 3))
    assert replace(OPTIONS, endpoints=places).told_everybody == ("l", 3)
    assert replace(OPTIONS, endpoints=places[:2]).told_everybody == ("c", 2)
