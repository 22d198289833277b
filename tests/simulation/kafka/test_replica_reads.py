"""Reads from followers (KIP-392), on virtual time: the replica that serves a client, and when the leader must."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.codec.fetch_responses import PartitionData
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from tests.support.fetching_rig import BY_ID, Consumer, FetchingRig
from tests.support.quiet_cluster import TOPIC

RACKS = ("a", "b", "c")


class RackRig(FetchingRig):
    """Three nodes in three racks, one partition with five records."""

    def __init__(self) -> None:
        super().__init__(racks=RACKS)
        self.produce(5)
        self.run(0.5)  # The followers have learned that it is committed.
        self.first = self.leader_of(TOPIC) or 0
        self.follower, self.other = (node for node in (1, 2, 3) if node != self.first)

    def consumer(self, node: int, rack: str | None = None, version: int = BY_ID) -> Consumer:
        """A consumer at a node, in that node's rack unless another is named."""
        made = Consumer(self, self.link(node), version=version)
        made.rack = RACKS[node - 1] if rack is None else rack
        return made

    def fetch(self, consumer: Consumer, offset: int, **options: int) -> PartitionData:
        """Fetches partition 0, which has to be in the answer."""
        return consumer.fetch({0: offset}, **options)[0]

    def cut_off(self, node: int) -> None:
        """Cuts a node off from its peers; clients still reach it."""
        for peer in (1, 2, 3):
            if peer != node:
                self.cluster.network.cut(node, peer)
                self.cluster.network.cut(peer, node)


@pytest.fixture
def rig() -> RackRig:
    return RackRig()


def test_leader_names_the_replica_in_the_rack(rig: RackRig) -> None:
    """A client in another rack receives no records from the leader, but the node to read from."""
    answer = rig.fetch(rig.consumer(rig.first, RACKS[rig.follower - 1]), 0)
    assert (answer.error_code, answer.preferred_read_replica, answer.records) == (0, rig.follower, b"")
    assert answer.high_watermark == 5


@pytest.mark.parametrize("rack", ["own", "", "elsewhere"])
def test_leader_serves_the_others(rig: RackRig, rack: str) -> None:
    """A client without a rack, in the leader's, or in one without a replica reads from the leader."""
    answer = rig.fetch(rig.consumer(rig.first, RACKS[rig.first - 1] if rack == "own" else rack), 0)
    assert (answer.error_code, answer.preferred_read_replica) == (0, -1)
    assert answer.records


def test_session_continues_after_a_redirect(rig: RackRig) -> None:
    """A client that asks the leader again in the same session is redirected again, and one that forgets is not."""
    consumer = rig.consumer(rig.first, RACKS[rig.follower - 1])
    for _ in range(2):
        assert rig.fetch(consumer, 0).preferred_read_replica == rig.follower
    assert consumer.fetch({}, forgotten=[0]) == {}
    assert consumer.error == 0


def test_follower_serves_a_client_with_a_rack(rig: RackRig) -> None:
    """A follower has the records that are committed; only clients with a rack receive them."""
    answer = rig.fetch(rig.consumer(rig.follower), 0)
    assert (answer.error_code, answer.high_watermark) == (0, 5)
    assert answer.records
    refused = rig.fetch(rig.consumer(rig.follower, ""), 0)
    assert refused.error_code == KafkaError.NOT_LEADER_OR_FOLLOWER
    assert not refused.records


def test_follower_learns_commits_at_once(rig: RackRig) -> None:
    """A client that waits at a follower receives a new record within milliseconds, not with the next heartbeat."""
    waits = []
    for offset in range(5, 15):
        reader = rig.consumer(rig.follower)
        number = reader.link.send(reader.request({TOPIC: {0: offset}}, max_wait_ms=5_000), reader.version)
        rig.run(0.2)
        rig.produce()
        began = rig.scheduler.now
        rig.until(lambda link=reader.link, number=number: number in link.answers, 5)
        waits.append(rig.scheduler.now - began)
    assert sorted(waits)[5] < 20_000, waits


def test_client_ahead_of_a_follower_goes_to_the_leader(rig: RackRig) -> None:
    """A follower that does not reach an offset within the client's wait sends it to the leader, without a reset."""
    reader = rig.consumer(rig.follower)
    answer = rig.fetch(reader, 7, max_wait_ms=300)
    assert answer.error_code == KafkaError.OFFSET_NOT_AVAILABLE


def test_client_ahead_of_a_follower_is_awaited(rig: RackRig) -> None:
    """A client that has read more at another replica receives nothing twice and no error when this one catches up."""
    reader = rig.consumer(rig.follower)
    number = reader.link.send(reader.request({TOPIC: {0: 6}}, max_wait_ms=5_000), reader.version)
    rig.run(0.1)
    rig.produce()
    rig.produce()
    rig.until(lambda: number in reader.link.answers, 3)
    (topic,) = reader.link.answers.pop(number).responses
    assert topic.partitions[0].error_code == 0
    assert topic.partitions[0].high_watermark == 7


def test_follower_without_a_leader_refuses(rig: RackRig) -> None:
    """A follower that is cut off could be behind indefinitely: it sends clients to the leader."""
    rig.cut_off(rig.follower)
    rig.run(2)
    assert rig.fetch(rig.consumer(rig.follower), 0).error_code == KafkaError.NOT_LEADER_OR_FOLLOWER


def test_waiting_client_is_sent_away_from_a_lost_follower(rig: RackRig) -> None:
    """A client that waits at a follower is answered when that loses its leader, not at the end of its wait."""
    reader = rig.consumer(rig.follower)
    number = reader.link.send(reader.request({TOPIC: {0: 5}}, max_wait_ms=20_000), reader.version)
    rig.run(0.1)
    rig.cut_off(rig.follower)
    rig.until(lambda: number in reader.link.answers, 5)
    (topic,) = reader.link.answers.pop(number).responses
    assert topic.partitions[0].error_code == KafkaError.NOT_LEADER_OR_FOLLOWER


def test_leader_names_no_dead_replica(rig: RackRig) -> None:
    """Once the cluster has noticed that a node is down, its rack is served by the leader."""
    rig.cluster.processes[rig.follower].die(silent=False)
    rig.until(lambda: rig.image.is_fenced(rig.follower), 30)
    rig.run(0.5)
    answer = rig.fetch(rig.consumer(rig.leader_of(TOPIC) or 0, RACKS[rig.follower - 1]), 0)
    assert (answer.error_code, answer.preferred_read_replica) == (0, -1)
    assert answer.records
