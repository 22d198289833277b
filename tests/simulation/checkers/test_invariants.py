"""Each invariant names the step that breaks it, on hand-made steps of hand-made nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.server.metadata.topic_table import TopicTable
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.simulator.world.disk import DiskOptions, SimDisk
from quorumlog.simulator.world.invariants import ClusterInvariants
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.v1 import coordinator_log_pb2, groups_pb2
from quorumlog.wire.entry import Codec, EnvelopeKind, build_batch, entry_hash, seal, seal_batch
from quorumlog.wire.topic_names import GROUPS_TOPIC

GROUP = 1000
VOTERS = Configuration((1, 2, 3))


@dataclass
class Raft:
    """A Raft group as a test wants it to look."""

    term: int = 1
    is_leader: bool = False
    commit_index: int = 0
    log: list[Entry] = field(default_factory=list)
    configuration: Configuration = VOTERS
    first_index: int = 1
    anchor: EntryId = ORIGIN

    @property
    def last_id(self) -> EntryId:
        return identity(self.log[-1]) if self.log else ORIGIN

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        return self.log[first - 1 : last]


@dataclass
class Hosted:
    """A replica on a node, reduced to its Raft group."""

    raft: Raft


def identity(entry: Entry) -> EntryId:
    return EntryId(entry.index, entry.term, entry.hash)


def noop(previous: EntryId, term: int = 1) -> Entry:
    data = seal(GROUP, term, previous.index + 1, previous.hash, EnvelopeKind.NOOP, b"")
    return Entry(previous.index + 1, term, EntryKind.NOOP, entry_hash(data), data)


def batch(previous: EntryId, value: str, offset: int, term: int = 1) -> Entry:
    payload = value.encode()
    payload += b"\0" * (-len(payload) % 8)
    unsealed = build_batch(payload, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
    place = previous.index + 1
    data = seal_batch(unsealed, group=GROUP, term=term, index=place, previous_hash=previous.hash, base_offset=offset)
    return Entry(place, term, EntryKind.BATCH, entry_hash(data), data)


class Cluster:
    """Three disks and their judge."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1)
        self.disks: dict[int, SimDisk] = {}
        self.judge = ClusterInvariants(self.disks)
        for node in VOTERS.voters:
            rng = self.scheduler.stream(f"disk-{node}")
            self.disks[node] = SimDisk(node, self.scheduler, rng, DiskOptions(), self.judge.before_sync)
            self.write(node, RaftGroupWrite(GROUP, create=VOTERS))

    def write(self, node: int, write: RaftGroupWrite) -> None:
        self.disks[node].submit(StorageTransaction(1, [write]), lambda done: None)
        self.scheduler.run(self.scheduler.now + 1_000_000)

    def step(self, node: int, raft: Raft) -> None:
        self.judge.after_step(node, {GROUP: Hosted(raft)}, [GROUP])

    def commit(self, *log: Entry, holders: tuple[int, ...] = (1, 2)) -> Raft:
        """Node 1 leads term 1 and has committed ``log``, which is on the disks of ``holders``."""
        for node in holders:
            self.write(node, RaftGroupWrite(GROUP, entries=list(log), hard_state=HardState(1, 1, 0)))
        raft = Raft(is_leader=True, commit_index=len(log), log=list(log))
        self.step(1, raft)
        return raft


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


FIRST = noop(ORIGIN)


def test_a_faultless_course_is_let_through(cluster: Cluster) -> None:
    one = batch(identity(FIRST), "a", 0)
    cluster.commit(FIRST, one)
    cluster.step(2, Raft(commit_index=2, log=[FIRST, one]))
    cluster.judge.acknowledged(1, GROUP, 0, 1, ["a"], copies=2, acks_all=True)
    cluster.step(2, Raft(term=2, is_leader=True, commit_index=2, log=[FIRST, one]))


def test_two_leaders_in_one_term(cluster: Cluster) -> None:
    cluster.step(1, Raft(is_leader=True))
    with pytest.raises(Violation, match="election safety: nodes 1 and 2"):
        cluster.step(2, Raft(is_leader=True))


def test_a_leader_without_a_committed_entry(cluster: Cluster) -> None:
    cluster.commit(FIRST)
    with pytest.raises(Violation, match="leader completeness: node 3"):
        cluster.step(3, Raft(term=2, is_leader=True))


def test_a_late_winner_of_an_old_term_may_lack_what_newer_terms_committed(cluster: Cluster) -> None:
    raft = cluster.commit(FIRST)
    second = noop(raft.last_id, term=3)
    for node in (1, 2):
        cluster.write(node, RaftGroupWrite(GROUP, entries=[second], hard_state=HardState(3, 2, 0)))
    cluster.step(2, Raft(term=3, is_leader=True, commit_index=2, log=[FIRST, second]))
    cluster.step(3, Raft(term=2, is_leader=True, log=[FIRST]))


def test_a_commit_that_is_on_too_few_disks(cluster: Cluster) -> None:
    with pytest.raises(Violation, match=r"of the voters \(1, 2, 3\) only \[1\] have it on disk"):
        cluster.commit(FIRST, holders=(1,))


def test_a_copy_on_a_disk_that_is_lost_since_counts_and_what_the_disk_never_had_does_not(cluster: Cluster) -> None:
    second = noop(identity(FIRST))
    cluster.write(2, RaftGroupWrite(GROUP, entries=[FIRST], hard_state=HardState(1, 1, 0)))
    cluster.disks[2].wipe()
    raft = cluster.commit(FIRST, holders=(1,))
    cluster.write(1, RaftGroupWrite(GROUP, entries=[second]))
    raft.log, raft.commit_index = [FIRST, second], 2
    with pytest.raises(Violation, match=r"EntryId\(index=2, .* only \[1\] have it on disk"):
        cluster.step(1, raft)


def test_a_leader_without_what_was_committed_with_a_lost_disk(cluster: Cluster) -> None:
    cluster.commit(FIRST)
    cluster.disks[1].wipe()
    cluster.disks[2].wipe()
    with pytest.raises(Violation, match="leader completeness: node 2"):
        cluster.step(2, Raft(term=2, is_leader=True))


def test_two_nodes_that_commit_different_entries(cluster: Cluster) -> None:
    cluster.commit(FIRST)
    with pytest.raises(Violation, match=r"takes .* for committed, but"):
        cluster.step(3, Raft(term=2, commit_index=1, log=[noop(ORIGIN, term=2)]))


@pytest.mark.parametrize(
    ("change", "complaint"), [({"commit_index": 0}, "commit index .* went back"), ({"term": 0}, "term .* went back")]
)
def test_what_goes_back(cluster: Cluster, change: dict[str, int], complaint: str) -> None:
    raft = cluster.commit(FIRST)
    for name, value in change.items():
        setattr(raft, name, value)
    with pytest.raises(Violation, match=complaint):
        cluster.step(1, raft)


def test_a_committed_entry_is_truncated(cluster: Cluster) -> None:
    cluster.commit(FIRST)
    with pytest.raises(Violation, match="truncates group 1000 from 1"):
        cluster.write(2, RaftGroupWrite(GROUP, truncate_from=1))


def test_two_entries_at_one_index_and_term(cluster: Cluster) -> None:
    cluster.write(1, RaftGroupWrite(GROUP, entries=[FIRST]))
    with pytest.raises(Violation, match="log matching"):
        cluster.write(2, RaftGroupWrite(GROUP, entries=[batch(ORIGIN, "a", 0)]))


@pytest.mark.parametrize(
    ("second", "complaint"), [(HardState(2, 3, 0), "votes twice in term 2"), (HardState(1, 1, 0), "persists term 1")]
)
def test_a_vote_or_a_term_is_taken_back(cluster: Cluster, second: HardState, complaint: str) -> None:
    cluster.write(1, RaftGroupWrite(GROUP, hard_state=HardState(2, 1, 0)))
    with pytest.raises(Violation, match=complaint):
        cluster.write(1, RaftGroupWrite(GROUP, hard_state=second))


def test_offsets_with_a_gap(cluster: Cluster) -> None:
    with pytest.raises(Violation, match="not dense: batch at index 2 starts at 5 instead of 0"):
        cluster.commit(FIRST, batch(identity(FIRST), "a", 5))


def test_a_value_committed_twice(cluster: Cluster) -> None:
    one = batch(identity(FIRST), "a", 0)
    with pytest.raises(Violation, match="value a is committed twice"):
        cluster.commit(FIRST, one, batch(identity(one), "a", 1))


def test_acknowledgements_of_what_is_not_safe(cluster: Cluster) -> None:
    cluster.commit(FIRST, batch(identity(FIRST), "a", 0))
    with pytest.raises(Violation, match="committed is nothing"):
        cluster.judge.acknowledged(1, GROUP, 1, 1, ["b"], copies=2, acks_all=True)
    with pytest.raises(Violation, match=r"only \[1, 2\] have it on disk, 3 copies are promised"):
        cluster.judge.acknowledged(1, GROUP, 0, 1, ["a"], copies=3, acks_all=True)
    with pytest.raises(Violation, match=r"in epoch 7 .* which no node led"):
        cluster.judge.acknowledged(1, GROUP, 0, 7, ["a"], copies=2, acks_all=True)


def test_an_acknowledgement_of_one_copy_that_is_not_on_the_node_s_own_disk(cluster: Cluster) -> None:
    cluster.commit(FIRST, batch(identity(FIRST), "a", 0))
    cluster.judge.acknowledged(2, GROUP, 0, 1, ["a"], copies=1, acks_all=False)
    for node, values in ((3, ["a"]), (2, ["b"])):
        with pytest.raises(Violation, match="its disk lacks it"):
            cluster.judge.acknowledged(node, GROUP, 0, 1, values, copies=1, acks_all=False)


def test_images_that_differ_or_go_back(cluster: Cluster) -> None:
    assert cluster.judge.image_at(1, 5, lambda: "x")
    assert not cluster.judge.image_at(2, 5, lambda: "x")
    with pytest.raises(Violation, match="differ at index 5: node 3"):
        cluster.judge.image_at(3, 5, lambda: "y")
    with pytest.raises(Violation, match="went back from 5 to 4"):
        cluster.judge.image_at(1, 4, lambda: "x")


def commits_one(cluster: Cluster) -> None:
    """A consumer group without members has read a record of ``GROUP``, whose models have none."""
    topics = [Topic("t", b"t" * 16, {}), Topic(GROUPS_TOPIC, b"g" * 16, {})]
    partitions = [PartitionRecord(topic, 0, GROUP + place, (1, 2, 3), (1, 2, 3)) for place, topic in enumerate(topics)]
    cluster.judge.coordinators.learn(1, partitions)
    offset = groups_pb2.CommittedOffset(topic_id=b"t" * 16, offset=1, metadata=str(CommitLabel(OUTSIDER, 0, 1)))
    change = coordinator_log_pb2.GroupChange(group_id="g", version=1, offsets=[offset])
    command = coordinator_log_pb2.GroupCommand(changes=[change]).SerializeToString()
    data = seal(GROUP + 1, 1, 1, ORIGIN.hash, EnvelopeKind.COMMAND, command)
    cluster.judge.coordinators.commit(GROUP + 1, Entry(1, 1, EntryKind.COMMAND, entry_hash(data), data), 0)


def test_a_commit_beyond_the_end_of_a_log(cluster: Cluster) -> None:
    with pytest.raises(Violation, match="1 of 747474-0 is committed, its log ends at 0"):
        commits_one(cluster)


def test_where_the_log_of_a_deleted_topic_ends_is_known_to_nobody(cluster: Cluster) -> None:
    """An offset beyond the end of a deleted topic may be committed: its leader may not have applied the deletion
    yet."""
    table = TopicTable(lambda node: False, lambda nodes: None)
    table.next_group = GROUP + 1
    cluster.judge.topics_at(1, table)
    commits_one(cluster)
    assert cluster.judge.coordinators.commands == 1


def test_a_leader_in_the_metadata_that_was_none(cluster: Cluster) -> None:
    cluster.step(1, Raft(is_leader=True))
    cluster.judge.leader_reported(GROUP, 1, 1)
    with pytest.raises(Violation, match="has node 2 as leader in epoch 1"):
        cluster.judge.leader_reported(GROUP, 2, 1)


def test_reading_from_a_leader_whose_term_has_committed_nothing_is_noticed(cluster: Cluster) -> None:
    cluster.commit(FIRST)
    cluster.judge.served(1, GROUP, 1)
    with pytest.raises(Violation, match="committed ends in term 1"):
        cluster.judge.served(2, GROUP, 2)
