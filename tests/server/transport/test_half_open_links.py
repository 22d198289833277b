"""Half-open links, which carry the connections of one node only: an unreachable node does not keep its leaderships."""

from bench.node_trio import TOPIC, Trio
from quorumlog.v1 import data_plane_pb2 as wire


def test_a_leader_that_nobody_reaches_is_replaced_though_its_own_connections_carry_on() -> None:
    trio = Trio(3)
    (partition,) = trio.led_by(2)
    # Soon enough for its followers to receive one more message before they campaign.
    trio.lose_way_to(2, reopens_after_s=0.0201)
    trio.pass_time(5)
    described = trio.ask(1, wire.MetadataRequest(topics=[TOPIC]))
    assert isinstance(described, wire.MetadataResponse)
    leaders = {one.partition: one.leader for one in described.topics[0].partitions}
    assert leaders[partition] in (1, 3)
    assert set(leaders.values()) == {1, 3}
