"""The benchmark of rounds: shipped nodes over memory, and costs that are costs of something."""

from bench.core_trio import CoreTrio
from bench.node_trio import TOPIC, Trio
from bench.rounds import idle_cost, round_costs
from quorumlog.v1 import data_plane_pb2 as wire


def test_every_round_costs_something_and_more_entries_cost_more() -> None:
    one, many = round_costs(((1, 1), (2, 8)), repetitions=1)
    assert 0 < one.codec_us < one.round_us < many.round_us
    assert many.entry_us == many.round_us / 16 < one.entry_us


def test_the_core_commits_what_it_is_given() -> None:
    trio = CoreTrio()
    trio.round(100, 3)
    trio.round(100, 2)


def test_leaders_are_spread_over_the_nodes_and_time_passes_without_them_moving() -> None:
    trio = Trio(6)
    led = [trio.led_by(node) for node in (1, 2, 3)]
    assert sorted(partition for one in led for partition in one) == list(range(6))
    assert [len(one) for one in led] == [2, 2, 2]
    trio.pass_time(5)
    assert [trio.led_by(node) for node in (1, 2, 3)] == led
    described = trio.ask(1, wire.MetadataRequest(topics=[TOPIC]))
    assert isinstance(described, wire.MetadataResponse)
    assert {one.leader_epoch for one in described.topics[0].partitions} == {1}


def test_idle_nodes_are_looked_at_for_as_long_as_is_asked() -> None:
    idle = idle_cost(3, seconds=1)
    assert (idle.groups, len(idle.cpu_percent)) == (3, 3)
    assert idle.steps_per_s > 0
