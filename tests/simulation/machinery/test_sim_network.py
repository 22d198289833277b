"""The simulated network behaves as ordered streams that break, whatever the seed."""

from __future__ import annotations

import pytest

from quorumlog.server.step.events import (
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentity,
    Stream,
)
from quorumlog.simulator.world.network import NetworkOptions, SimNetwork, Unruliness
from quorumlog.simulator.world.scheduler import Scheduler

SECOND = 1_000_000


class Ends:
    """Endpoints that write down what they are given."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.refused: set[int] = set()
        self.events: list[tuple[int, Event]] = []

    def is_up(self, node: int) -> bool:
        return node not in self.down

    def deliver(self, node: int, event: Event) -> None:
        self.events.append((node, event))

    def identity(self, node: int) -> PeerIdentity:
        return PeerIdentity("c", node, f"d{node}", 1, f"node-{node}:1")

    def refusal(self, node: int, identity: PeerIdentity) -> str | None:
        return "no" if identity.node_id in self.refused else None

    def of(self, kind: type[Event], node: int) -> list[Event]:
        return [event for at, event in self.events if at == node and isinstance(event, kind)]

    def sequences(self, node: int) -> list[int]:
        return [event.frame.sequence for at, event in self.events if at == node and isinstance(event, FrameReceived)]


def make(seed: int = 1) -> tuple[Scheduler, SimNetwork, Ends]:
    scheduler, ends = Scheduler(seed), Ends()
    network = SimNetwork(scheduler, scheduler.stream("network"), NetworkOptions(), ends)
    return scheduler, network, ends


def connect(scheduler: Scheduler, network: SimNetwork) -> None:
    network.want(1, (2,))
    network.want(2, (1,))
    assert scheduler.run(scheduler.now + SECOND, lambda: network.connected(1, 2) and network.connected(2, 1))


def send(network: SimNetwork, *numbers: int) -> None:
    for number in numbers:
        network.send(1, 2, PeerFrame(Stream.DATA, sequence=number))


@pytest.mark.parametrize("seed", range(5))
def test_frames_of_a_stream_arrive_once_and_in_order(seed: int) -> None:
    scheduler, network, ends = make(seed)
    connect(scheduler, network)
    send(network, *range(1, 101))
    scheduler.run(scheduler.now + SECOND)
    assert ends.sequences(2) == list(range(1, 101))


def test_a_frame_without_a_connection_is_lost() -> None:
    scheduler, network, ends = make()
    send(network, 1)
    scheduler.run(SECOND)
    assert ends.events == []


@pytest.mark.parametrize("seed", range(5))
def test_a_broken_link_is_told_to_both_once_loses_a_tail_and_opens_again(seed: int) -> None:
    scheduler, network, ends = make(seed)
    connect(scheduler, network)
    send(network, *range(1, 51))
    network.reset(1, 2)
    scheduler.run(scheduler.now + SECOND)
    arrived = ends.sequences(2)
    assert arrived == list(range(1, len(arrived) + 1))
    for node in (1, 2):
        kinds = [type(event) for event in ends.of(PeerConnected | PeerDisconnected, node)]  # type: ignore[arg-type]
        assert kinds == [PeerConnected, PeerDisconnected, PeerConnected]


@pytest.mark.parametrize("seed", range(10))
def test_the_end_of_a_link_is_told_before_frames_of_the_next(seed: int) -> None:
    scheduler, network, ends = make(seed)
    connect(scheduler, network)
    send(network, *range(1, 51))
    network.reset(1, 2)
    network.reset(1, 2)
    assert scheduler.run(scheduler.now + SECOND, lambda: network.connected(1, 2))
    send(network, 1_000)
    scheduler.run(scheduler.now + SECOND)
    at_two = [event for node, event in ends.events if node == 2]
    broken = next(n for n, event in enumerate(at_two) if isinstance(event, PeerDisconnected))
    assert all(event.frame.sequence == 1_000 for event in at_two[broken:] if isinstance(event, FrameReceived))
    assert ends.sequences(2)[-1] == 1_000


def test_a_short_cut_delays_and_a_long_one_breaks() -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    network.cut(1, 2)
    send(network, 1, 2, 3)
    scheduler.run(scheduler.now + SECOND)
    assert ends.sequences(2) == []
    network.heal()
    scheduler.run(scheduler.now + SECOND // 2)
    assert ends.sequences(2) == [1, 2, 3]
    scheduler.run(scheduler.now + 2 * SECOND)
    network.cut(1, 2)
    scheduler.run(scheduler.now + 3 * SECOND)
    assert len(ends.of(PeerDisconnected, 1)) == len(ends.of(PeerDisconnected, 2)) == 1
    assert not network.connected(2, 1)


def test_a_one_way_cut_lets_the_other_way_through() -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    network.cut(1, 2)
    network.send(2, 1, PeerFrame(Stream.CONTROL, sequence=9))
    scheduler.run(scheduler.now + SECOND)
    assert ends.sequences(1) == [9]


@pytest.mark.parametrize(("silent", "least_us"), [(False, 0), (True, 2 * SECOND)])
def test_peers_of_a_killed_process_hear_at_once_and_of_a_lost_machine_by_keepalive(silent: bool, least_us: int) -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    ends.down.add(2)
    began = scheduler.now
    network.process_died(2, silent)
    assert scheduler.run(scheduler.now + 3 * SECOND, lambda: bool(ends.of(PeerDisconnected, 1)))
    assert least_us <= scheduler.now - began <= least_us + SECOND


def test_a_severed_node_learns_later_than_its_peers() -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    network.sever(1)
    send(network, 1)
    scheduler.run(scheduler.now + SECOND)
    assert len(ends.of(PeerDisconnected, 2)) == 1
    assert ends.of(PeerDisconnected, 1) == []
    scheduler.run(scheduler.now + 2 * SECOND)
    assert len(ends.of(PeerDisconnected, 1)) == 1
    assert ends.sequences(2) == []
    network.heal()
    assert scheduler.run(scheduler.now + SECOND, lambda: network.connected(1, 2))


def test_a_refused_peer_does_not_connect() -> None:
    scheduler, network, ends = make()
    ends.refused.add(1)
    network.want(1, (2,))
    scheduler.run(SECOND)
    assert ends.events == []
    ends.refused.clear()
    assert scheduler.run(2 * SECOND, lambda: network.connected(1, 2))


def test_an_unruly_network_loses_doubles_and_reorders_until_it_is_healed() -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    network.unruliness = Unruliness(loss=0.2, doubling=0.2, overtaking=0.3)
    send(network, *range(1, 201))
    scheduler.run(scheduler.now + SECOND)
    arrived = ends.sequences(2)
    assert set(arrived) < set(range(1, 201)), "some are lost"
    assert len(arrived) > len(set(arrived)), "some came twice"
    assert arrived != sorted(arrived), "some were overtaken"
    network.heal()
    ends.events.clear()
    send(network, *range(201, 301))
    scheduler.run(scheduler.now + SECOND)
    assert ends.sequences(2) == list(range(201, 301))


def test_a_link_that_was_cut_twice_is_mended_twice() -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    network.cut(1, 2)
    network.cut(1, 2)
    send(network, 1)
    network.mend(1, 2)
    scheduler.run(scheduler.now + SECOND // 2)
    assert ends.sequences(2) == []
    network.mend(1, 2)
    scheduler.run(scheduler.now + SECOND // 2)
    assert ends.sequences(2) == [1]


def test_what_was_sent_over_a_slow_network_does_not_hold_up_what_follows_once_it_is_healed() -> None:
    scheduler, network, ends = make()
    connect(scheduler, network)
    network.slowdown = 10_000
    send(network, 1)
    network.heal()
    send(network, 2)
    scheduler.run(scheduler.now + SECOND // 10)
    assert ends.sequences(2) == [1, 2]
