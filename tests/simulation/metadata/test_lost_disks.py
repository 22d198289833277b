"""A node of a simulated cluster loses its disk, and is its own replacement: it forgets, and nothing is lost."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, TOPIC, Quiet

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.raft.types import NO_NODE, AppendResponse, VoteRequest
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.step.events import FrameReceived, PeerFrame, Stream
from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1 import admin_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

REPLACE_DISK = admin_pb2.NODE_ACTION_REPLACE_DISK


class Losing(Quiet):
    """A cluster that is written to, and of which nodes lose their disks."""

    def __init__(self, seed: int, nodes: int = 3, partitions: int = 3) -> None:
        super().__init__(seed, partitions=partitions, nodes=nodes)
        names = [PartitionName(TOPIC, number) for number in range(partitions)]
        options = SimProducerOptions(interval_us=(2_000, 8_000), max_in_flight=1, request_timeout_us=200_000)
        SimProducer("writer", names, self.cluster, self.scheduler, options, self.history, self.cluster)
        self.run(2)

    def alter(self, node: int, by: int, action: admin_pb2.NodeAction.ValueType) -> admin_pb2.AlterNodeResponse:
        """Asks one node for it until it is answered for good."""
        image = self.cluster.processes[by].image
        assert image is not None
        directory = image.brokers[node].registration.directory_id
        request = admin_pb2.AlterNodeRequest(node_id=node, action=action, directory_id=directory, timeout_ms=1_000)
        answers: list[object] = []

        def final() -> list[admin_pb2.AlterNodeResponse]:
            found = [each for each in answers if isinstance(each, admin_pb2.AlterNodeResponse)]
            return [each for each in found if each.error.code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)]

        end = self.scheduler.now + 10 * SECOND
        while not final():
            assert self.scheduler.now < end, answers
            self.cluster.request("admin", by, request, answers.append)
            self.run(0.5)
        return final()[0]

    def replace(self, node: int, by: int) -> None:
        """Gives the disk of a node up, once the node counts as down."""
        end = self.scheduler.now + 20 * SECOND
        while (refused := self.alter(node, by, REPLACE_DISK).error.message) != "":
            assert "is up" in refused and self.scheduler.now < end, refused
            self.run(0.5)

    def is_whole(self) -> bool:
        """True if no node is fenced, all partitions have three replicas in sync, and the metadata have three voters."""
        for process in self.cluster.processes.values():
            image = process.image
            if image is None or METADATA_GROUP not in process.replicas:
                return False
            if len(process.replicas[METADATA_GROUP].raft.configuration.voters) != 3:
                return False
            if any(broker.fenced for broker in image.brokers.values()):
                return False
            for record in image.partitions.values():
                if record.is_moving or record.returning or len(record.isr) != 3 or len(record.replicas) != 3:
                    return False
        return True

    def wrote(self) -> int:
        """Records acknowledged so far."""
        return len(list(self.history.sends(OperationOutcome.OK)))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_controller_that_returns_empty_gets_all_back_by_one_command(seed: int, lost: int) -> None:
    losing = Losing(seed)
    by = lost % 3 + 1
    former = losing.cluster.identity(lost).directory_id
    losing.cluster.wipe(lost)
    losing.run(3)
    assert losing.cluster.identity(lost).cluster_id == "", "it waits"
    losing.replace(lost, by)
    losing.until(losing.is_whole, 30)
    assert losing.cluster.identity(lost).directory_id != former
    before = losing.wrote()
    losing.run(1)
    assert losing.wrote() > before
    # It counts for what it has now: without another one, there is a majority with it.
    losing.cluster.processes[by].die(silent=False)
    losing.run(5)
    before = losing.wrote()
    losing.run(2)
    assert losing.wrote() > before


def test_one_disk_after_the_other_is_lost_until_none_is_left_of_those_that_formed_the_cluster() -> None:
    losing = Losing(7)
    for lost in (2, 3, 1, 2):
        losing.cluster.wipe(lost)
        losing.replace(lost, lost % 3 + 1)
        losing.until(losing.is_whole, 40)
    assert losing.wrote() > 100


def test_a_node_that_is_no_controller_gets_its_replicas_back() -> None:
    losing = Losing(8, nodes=4, partitions=6)
    image = losing.cluster.processes[1].image
    assert image is not None
    had = sorted(group for group, record in image.partitions.items() if 4 in record.replicas)
    assert had
    losing.cluster.wipe(4)
    losing.run(3)
    assert losing.cluster.identity(4).cluster_id == "", "it waits"
    losing.replace(4, 1)
    losing.until(losing.is_whole, 40)
    image = losing.cluster.processes[1].image
    assert image is not None
    assert had == sorted(group for group, record in image.partitions.items() if 4 in record.replicas)


@pytest.mark.scenario("19c")
def test_the_directory_that_was_given_up_is_refused_for_ever() -> None:
    losing = Losing(9)
    process = losing.cluster.processes[3]
    process.die(silent=False)
    losing.run(5)
    losing.replace(3, 1)
    losing.cluster.start(3)
    losing.run(5)
    image = losing.cluster.processes[1].image
    assert image is not None
    assert image.brokers[3].is_lost
    assert image.is_fenced(3)
    assert not losing.cluster.network.connected(1, 3)
    assert not losing.cluster.network.connected(3, 1)
    losing.cluster.wipe(3)
    losing.until(losing.is_whole, 30)


def test_the_replacement_goes_on_whichever_controller_dies() -> None:
    losing = Losing(11, nodes=5, partitions=6)
    losing.cluster.wipe(5)
    losing.replace(5, 1)
    for _ in range(3):
        leader = losing.led_by(METADATA_GROUP)
        assert leader is not None
        losing.cluster.processes[leader].die(silent=False)
        losing.run(1)
        losing.cluster.start(leader)
        losing.run(2)

    def is_back() -> bool:
        image = losing.cluster.processes[1].image
        assert image is not None
        return 5 in losing.replicas_of(METADATA_GROUP)[1].configuration.voters and all(
            not record.returning and len(record.isr) == 3 for record in image.partitions.values()
        )

    losing.until(is_back, 60)


def test_a_disk_that_is_found_after_all_counts_again() -> None:
    losing = Losing(10)
    losing.cluster.processes[3].die(silent=False)
    losing.run(5)
    losing.replace(3, 1)
    answer = losing.alter(3, 1, admin_pb2.NODE_ACTION_UNDRAIN)
    if answer.HasField("error"):
        assert "has lost its place" in answer.error.message
        losing.cluster.wipe(3)
    else:
        losing.cluster.start(3)
    losing.until(losing.is_whole, 30)


def test_what_was_created_while_a_lost_disk_had_no_place_is_there_when_the_node_is_back() -> None:
    """The coordinators of groups do not wait for a node that is gone: it is among their replicas all the same."""
    losing = Losing(15)
    losing.cluster.processes[3].die(silent=False)
    losing.run(5)
    losing.replace(3, 1)

    def has_lost_its_place() -> bool:
        image = losing.cluster.processes[1].image
        return image is not None and image.brokers[3].is_vacant

    losing.until(has_lost_its_place, 30)
    found: list[object] = []

    def are_found() -> bool:
        return any(isinstance(each, groups_pb2.FindCoordinatorsResponse) and each.coordinators for each in found)

    end = losing.scheduler.now + 20 * SECOND
    while not are_found():
        assert losing.scheduler.now < end, found
        losing.cluster.request("admin", 1, groups_pb2.FindCoordinatorsRequest(all=True), found.append)
        losing.run(0.5)
    image = losing.cluster.processes[1].image
    assert image is not None
    groups = {record.group for record in image.partitions.values() if record.topic.name == "__groups"}
    assert groups
    assert all(3 in image.partitions[group].replicas for group in groups)
    losing.cluster.wipe(3)
    losing.until(losing.is_whole, 30)
    assert groups <= losing.cluster.processes[3].replicas.keys()


@pytest.mark.scenario("19e")
def test_a_node_on_a_new_disk_makes_no_replica_that_was_meant_for_the_former_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the metadata from the beginning, and with them that it was to found those replicas."""
    losing = Losing(12)
    begun: list[tuple[int, ...]] = []
    begin = ReplicaTombstones.begin

    def begin_and_tell(self: ReplicaTombstones, record: PartitionRecord) -> RaftGroupState:
        state = begin(self, record)
        begun.append(state.configuration.voters)
        return state

    monkeypatch.setattr(ReplicaTombstones, "begin", begin_and_tell)
    losing.cluster.wipe(3)
    losing.replace(3, 1)
    losing.until(losing.is_whole, 30)
    assert len(begun) == 3
    assert all(3 not in voters for voters in begun), "it starts as a learner of the survivors"


@pytest.mark.scenario("19b")
def test_a_controller_on_a_new_disk_has_no_say_before_it_knows_what_was_committed_when_it_was_let_in() -> None:
    losing = Losing(13)
    losing.cluster.wipe(3)
    losing.replace(3, 1)
    process = losing.cluster.processes[3]
    losing.until(lambda: METADATA_GROUP in process.replicas, 30)
    raft = process.replicas[METADATA_GROUP].raft
    voter = losing.cluster.processes[1].replicas[METADATA_GROUP].raft
    # A candidate with the same information requests its vote before any other node has sent it anything.
    assert raft.commit_index < voter.commit_index
    refused = VoteRequest(1, 3, raft.term + 5, raft.last_id.index, raft.last_id.term, False, True)
    process.deliver(FrameReceived(1, PeerFrame(Stream.CONTROL, messages=[(METADATA_GROUP, refused)])))
    losing.run(0.0003)
    assert raft.vote == NO_NODE
    losing.until(losing.is_whole, 30)


@pytest.mark.scenario("19c")
def test_a_word_of_the_former_disk_that_was_under_way_is_not_heard() -> None:
    losing = Losing(14, nodes=5, partitions=6)
    image = losing.cluster.processes[1].image
    assert image is not None
    # The partition must not change before the message arrives, so its third node is down.
    group, record = next((group, each) for group, each in image.partitions.items() if 5 in each.replicas)
    heard, down = [node for node in record.replicas if node != 5]
    former = losing.cluster.identity(5).directory_id
    losing.cluster.processes[down].die(silent=False)
    losing.cluster.wipe(5)
    losing.replace(5, heard)
    raft = losing.cluster.processes[heard].replicas[group].raft
    answer = AppendResponse(5, heard, raft.term + 50, 0, True)
    losing.cluster.deliver(heard, FrameReceived(5, PeerFrame(Stream.DATA, messages=[(group, answer)]), former))
    losing.run(0.1)
    assert raft.term < answer.term
