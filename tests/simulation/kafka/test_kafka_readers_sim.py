"""The seeds' readers of Kafka's protocol come to the end in sessions, and notice what a session keeps from them."""

from __future__ import annotations

import pytest

from quorumlog.chaos.checkers.checkers import check
from quorumlog.chaos.checkers.history import History
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace, KafkaFetchSession, KeptPartition
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.clients import PartitionName
from quorumlog.simulator.world.kafka_readers import KafkaReaderPlan, SimKafkaReader
from tests.support.fetching_rig import FetchingRig
from tests.support.quiet_cluster import TOPIC

PARTITIONS = 4
#: Batches of one record in each partition.
BATCHES = 5


class ReadingRig(FetchingRig):
    """Nodes whose partitions are written to while one reads them."""

    def __init__(self, *, by_id: bool = True, throws_away: float = 0.0, leaves_out: float = 0.0) -> None:
        super().__init__(1, PARTITIONS)
        self.names = tuple(PartitionName(TOPIC, number) for number in range(PARTITIONS))
        plan = KafkaReaderPlan(
            "reader", self.names, by_id=by_id, throws_away=throws_away, leaves_out=leaves_out, max_wait_ms=20
        )
        self.reads = History()
        self.space = FetchSessionSpace()
        spaces = dict.fromkeys(self.cluster.node_ids, self.space)
        self.reader = SimKafkaReader(plan, self.cluster, self.scheduler, self.reads, spaces)

    def write(self) -> None:
        """Writes into all partitions, a little at a time."""
        for _ in range(BATCHES):
            for number in range(PARTITIONS):
                self.produce(partition=number)
            self.run(0.2)

    def read_all(self) -> None:
        """Waits until the reader has come to the end."""
        self.until(lambda: not self.reader.behind(dict.fromkeys(self.names, BATCHES)), 20)


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize(("throws_away", "leaves_out"), [(0.0, 0.0), (0.3, 0.0), (0.3, 0.2)])
def test_a_reader_comes_to_the_end_in_sessions(by_id: bool, throws_away: float, leaves_out: float) -> None:
    rig = ReadingRig(by_id=by_id, throws_away=throws_away, leaves_out=leaves_out)
    rig.write()
    rig.reader.heal()
    rig.read_all()
    assert rig.reader.incremental > 5 * BATCHES
    assert rig.space.kept == PARTITIONS
    assert sum(len(poll.records) for poll in rig.reads.polls()) == PARTITIONS * BATCHES
    assert not check(rig.reads)
    rig.reader.stop()
    assert rig.space.kept == 0


def test_a_session_that_says_nothing_of_what_is_there_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(self: KafkaFetchSession, kept: KeptPartition, next_offset: int) -> None:
        """The node is not asked again for what it has sent."""
        assert kept.known is not None
        kept.known = kept.known._replace(fetch_offset=next_offset)

    monkeypatch.setattr(KafkaFetchSession, "moved", moved)
    rig = ReadingRig(throws_away=0.5)
    with pytest.raises(Violation, match="but omits it"):
        rig.write()


def test_a_session_that_tells_of_what_is_not_wanted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaFetchSession, "forget", lambda self, topic, number: None)
    rig = ReadingRig(leaves_out=0.3)
    with pytest.raises(Violation, match="which it does not want"):
        rig.write()


def test_a_connection_that_ends_by_a_fault_of_its_node_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(self: KafkaFetchSession, kept: KeptPartition) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(KafkaFetchSession, "lose", lose)
    rig = ReadingRig(leaves_out=0.3)
    with pytest.raises(Violation, match="ends the connection"):
        rig.write()
