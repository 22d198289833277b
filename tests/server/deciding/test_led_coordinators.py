"""Terms of coordinators start and end with their Raft groups; a stalled node confirms its leaderships first."""

from __future__ import annotations

from dataclasses import dataclass, field

from counting_coordinator import COUNTS, CountLeader, CountReplica

from quorumlog.server.deciding.led_coordinators import DOUBT_US, LedCoordinators
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.v1 import errors_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode

STEP_US = 100_000


@dataclass
class Options:
    """The options of a node that coordinators read."""

    heartbeat_interval_us: int = STEP_US


@dataclass
class Metadata:
    """The metadata of a node."""

    image: MetadataImage = field(default_factory=MetadataImage)


@dataclass
class Services:
    """Objects that a node shares with its coordinators.

    Arguments:
        round: the next round of Raft heartbeats; None while the disk is stalled.
    """

    options: Options = field(default_factory=Options)
    metadata: Metadata = field(default_factory=Metadata)
    replicas: dict[int, CountReplica] = field(default_factory=dict)
    round: int | None = 1
    touched: list[int] = field(default_factory=list)

    @property
    def rounds(self) -> Services:
        return self

    @property
    def host(self) -> Services:
        return self

    @property
    def leaders(self) -> Services:
        return self

    def begin(self, now: int, group: int) -> int | None:
        return self.round

    def touch(self, group: int) -> None:
        self.touched.append(group)

    def known_leader(self, record: object) -> tuple[int, int]:
        return 2, 9


class Rig:
    """A node with one coordinator, which has the Raft group of the only partition of its topic."""

    def __init__(self) -> None:
        self.services = Services()
        self.image = self.services.metadata.image
        topic = log.CreateTopic(name=COUNTS.topic, topic_id=b"c" * 16, partitions=[log.ReplicaSet(replicas=[1])])
        self.image.apply(1, log.MetadataCommand(create_topic=topic))
        self.replica = CountReplica(group=self.image.topics[COUNTS.topic].partitions[0].group)
        self.services.replicas[self.replica.group] = self.replica
        self.led: LedCoordinators[CountReplica, CountLeader] = LedCoordinators(  # type: ignore[type-var]
            0,
            COUNTS,
            self.services,
            lambda replica: CountLeader(replica, self.led.clock),  # type: ignore[arg-type]
        )

    def keeper(self) -> CountLeader:
        keeper = self.led.keeper_of("a")
        assert isinstance(keeper, CountLeader)
        return keeper

    def refusal(self, key: str = "a") -> errors_pb2.Error:
        refused = self.led.keeper_of(key)
        assert isinstance(refused, errors_pb2.Error)
        return refused

    def step(self, passed_us: int = STEP_US) -> None:
        self.led.clock.step(self.led.clock.now + passed_us, 0)
        self.led.on_time()


def test_leader_decides_the_calls_of_a_step() -> None:
    rig = Rig()
    assert rig.refusal("").code == ErrorCode.INVALID_GROUP_ID
    rig.led.after_round(rig.replica)
    rig.keeper().submit("a", 1)
    rig.step()
    assert rig.services.touched == [rig.replica.group]
    rig.replica.apply()
    assert rig.replica.leadership is not None
    assert rig.replica.leadership.log == ["a is 1"]


def test_leader_waits_for_newer_metadata() -> None:
    rig = Rig()
    rig.replica.table.metadata_index = rig.image.applied_index + 1
    rig.led.after_round(rig.replica)
    assert rig.replica.leadership is None
    rig.led.metadata_changed()
    assert rig.replica.leadership is None
    more = log.AddPartitions(topic_id=b"c" * 16, first_number=1, partitions=[log.ReplicaSet(replicas=[1])])
    rig.image.apply(rig.replica.table.metadata_index, log.MetadataCommand(add_partitions=more))
    rig.led.metadata_changed()
    assert rig.replica.leads


def test_term_ends_with_the_leadership() -> None:
    rig = Rig()
    rig.led.after_round(rig.replica)
    leader = rig.keeper()
    leader.submit("a", 1)
    rig.replica.raft.is_leader = False
    rig.led.after_round(rig.replica)
    assert leader.log == ["a +1 refused: NOT_COORDINATOR"]
    assert rig.replica.leadership is None
    refused = rig.refusal()
    assert refused.code == ErrorCode.NOT_COORDINATOR
    assert (refused.leader.node_id, refused.leader.leader_epoch) == (2, 9)
    assert "keeps the count" in refused.message


def test_next_term_has_a_new_leader() -> None:
    rig = Rig()
    rig.led.after_round(rig.replica)
    former = rig.keeper()
    rig.replica.raft.term += 1
    rig.led.after_round(rig.replica)
    assert rig.keeper() is not former


def test_stalled_node_confirms_before_it_decides() -> None:
    """After a stall, a leader decides once a quorum has confirmed it; while the disk stalls, it asks again later."""
    rig = Rig()
    rig.led.after_round(rig.replica)
    rig.services.round = None
    rig.keeper().submit("a", 1)
    rig.step(10_000_000)
    assert not rig.replica.proposed
    assert rig.led.next_deadline == rig.led.clock.now + DOUBT_US
    rig.services.round = 5
    rig.step(DOUBT_US)
    assert not rig.replica.proposed, "the round is not confirmed yet"
    rig.replica.raft.confirmed_round = 5
    rig.led.after_round(rig.replica)
    assert len(rig.replica.proposed) == 1


def test_late_call_is_decided_at_once() -> None:
    """A service of the node itself may call after ``on_time``: the node steps again without waiting for a heartbeat."""
    rig = Rig()
    rig.led.after_round(rig.replica)
    rig.step()
    rig.led.wake(rig.replica.group)
    assert rig.led.next_deadline == rig.led.clock.now
    rig.step(0)
    assert rig.led.next_deadline != rig.led.clock.now


def test_coordinator_is_found_by_its_number() -> None:
    rig = Rig()
    rig.led.after_round(rig.replica)
    assert rig.led.keeper_at(0) is rig.keeper()
    for number in (-1, 1):
        refused = rig.led.keeper_at(number)
        assert isinstance(refused, errors_pb2.Error) and refused.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
