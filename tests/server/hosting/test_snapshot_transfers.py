"""Snapshots between two nodes' hosts, frame by frame: the window, the disk, and every way for a transfer to end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import (
    ORIGIN,
    Configuration,
    Entry,
    EntryId,
    HardState,
    Heartbeat,
    InstallSnapshot,
    Message,
    RaftLogServices,
    RestoredReplica,
    Snapshot,
)
from quorumlog.server.config.options import NodeLimits, NodeOptions
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.step.events import ChunkReceipt, PeerFrame, SnapshotChunk, SnapshotOffer, Stream
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup, apply_write
from quorumlog.storage.rows import cut_slice, describe_snapshot

GROUP, LEADER, FOLLOWER, OTHER = 1000, 1, 2, 3
CONFIGURATION = Configuration((LEADER,), (FOLLOWER, OTHER))
LAST = EntryId(10, 1, 77)
DATA = bytes(range(256)) * 2
SLICE, WINDOW, STALL = 64, 2, 1_000
#: The leader's, after its election.
TERM = 2
SLICES = len(DATA) // SLICE
LIMITS = NodeLimits(snapshot_slice_bytes=SLICE, snapshot_window=WINDOW, snapshot_transfers=1)


class Machine:
    """A state machine that is its snapshot's data."""

    def __init__(self, disk: dict[int, DurableRaftGroup]) -> None:
        self.state = b""
        self._disk = disk

    def apply(self, entries: list[Entry]) -> None:
        pass

    def restore(self, snapshot: Snapshot) -> None:
        slices = self._disk[GROUP].slices[snapshot.data.stage]
        self.state = b"".join(slices[number] for number in range(snapshot.data.slices))

    def take_rows(self) -> dict[bytes, bytes | None]:
        return {}


class Store:
    """A store that is never read."""

    def term_at(self, index: int) -> int:
        raise AssertionError(f"entry {index} is asked for")

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        raise AssertionError(f"entries {first} to {last} are asked for")


class Side:
    """One node as far as one group and its snapshots go. What it writes is durable only after ``sync``."""

    def __init__(self, node_id: int, last: EntryId) -> None:
        self.node_id = node_id
        self.disk: dict[int, DurableRaftGroup] = {}
        self.said: list[Message] = []
        self.logged: list[str] = []
        self.now = 0
        options = NodeOptions(node_id, f"n{node_id}:1", {}, limits=LIMITS, snapshot_stall_us=STALL)
        self.host = RaftHost(lambda group, message: self.said.append(message))
        self.pace = ReplicationThrottle(0)
        self.snapshots = Snapshots(
            options,
            self.host,
            self,
            random.Random(node_id),
            self.pace,
            lambda: True,
            self._install,  # type: ignore[arg-type]
            lambda level, event, **fields: self.logged.append(f"{event}: {fields.get('reason', '')}"),
        )
        self.snapshot: Snapshot | None = None
        restored = RestoredReplica(
            node_id=node_id,
            group=GROUP,
            configuration=CONFIGURATION,
            hard_state=HardState(last.term, -1, last.index),
            last=last,
            first_index=last.index + 1,
            anchor=last,
            applied=last.index,
        )
        services = RaftLogServices(Store(), GroupSealer(GROUP), snapshot_source=lambda: self.snapshot)
        self.raft = RaftGroup(restored, services, RaftOptions(), random.Random(node_id), now=0)
        self.machine = Machine(self.disk)
        self.disk[GROUP] = DurableRaftGroup(GROUP, CONFIGURATION, HardState(last.term, -1, last.index), last)
        self.host.add(GROUP, HostedReplica(self.raft, self.machine, lazy_commit=False))

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        return self.disk[group].slices[stage][number]

    def keep(self, data: bytes, last: EntryId = LAST) -> None:
        """Keeps a durable snapshot to offer."""
        stage = 7 + last.index
        described = describe_snapshot(stage, data, SLICE)
        self.disk[GROUP].slices[stage] = {n: cut_slice(stage, data, SLICE, n).data for n in range(described.slices)}
        self.snapshot = self.disk[GROUP].snapshot = Snapshot(last, CONFIGURATION, described)

    def _install(self, group: int, message: Message) -> None:
        self.raft.step(self.now, message)
        self.host.touch(group)

    def sync(self) -> bool:
        """Writes what has gathered; False when there is nothing."""
        self.host.run_round()
        transaction = self.host.take_transaction(self.now)
        if transaction is None:
            return False
        for write in transaction.writes:
            after = apply_write(self.disk[GROUP], write)
            assert after is not None
        self.host.on_durable(self.now, transaction.number)
        self.host.run_round()
        return True

    def step(self, peer: int, frame: PeerFrame) -> None:
        self.snapshots.on_frame(self.now, peer, frame)

    def frames(self) -> list[PeerFrame]:
        return [frame for _, frame in self.snapshots.collect(self.now)]

    def staged(self) -> list[int]:
        """Returns the number of slices of each stage."""
        return [len(slices) for slices in self.disk[GROUP].slices.values()]


@pytest.fixture
def sides() -> tuple[Side, Side]:
    """Returns a leader that has compacted its log up to entry 10, and an empty follower."""
    leader, follower = Side(LEADER, LAST), Side(FOLLOWER, ORIGIN)
    leader.keep(DATA)
    leader.raft.campaign(0)
    leader.host.touch(GROUP)
    while leader.sync():
        pass
    assert leader.raft.leads_committed
    follower.raft.step(0, leader.raft.next_append(0, FOLLOWER, 1 << 20))  # type: ignore[arg-type]
    settle(follower)
    for message in take(follower):
        leader.raft.step(0, message)
    offer(leader, FOLLOWER)
    return leader, follower


def offer(leader: Side, peer: int) -> None:
    """Offers the message that Raft has for the peer."""
    message = leader.raft.next_append(leader.now, peer, 1 << 20)
    assert message is not None
    leader.snapshots.sender.offer(leader.now, GROUP, message)  # type: ignore[arg-type]


def settle(side: Side) -> None:
    while side.sync():
        pass


def take(side: Side) -> list[Message]:
    said, side.said = side.said, []
    return said


def carry(leader: Side, follower: Side) -> int:
    """Frames to and fro, with the follower's disk at work, until nothing moves; returns how many slices went."""
    sent = 0
    while True:
        frames = leader.frames()
        for frame in frames:
            follower.step(LEADER, frame)
        settle(follower)
        answers = follower.frames()
        for frame in answers:
            leader.step(FOLLOWER, frame)
        sent += len(frames)
        if not frames and not answers:
            return sent


def assert_installed(follower: Side, data: bytes = DATA, last: EntryId = LAST) -> None:
    durable = follower.disk[GROUP]
    assert durable.snapshot is not None
    assert (durable.snapshot.last, durable.anchor, durable.hard_state.commit) == (last, last, last.index)
    assert follower.machine.state == data
    assert follower.staged() == [durable.snapshot.data.slices], "nothing else is left"
    assert follower.raft.last_id == last


def test_a_snapshot_arrives_slice_by_slice_and_the_follower_goes_on_behind_it(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    assert carry(leader, follower) == SLICES
    assert_installed(follower)
    for message in take(follower):
        leader.raft.step(0, message)
    assert leader.raft.progress[FOLLOWER].state is ProgressState.REPLICATE
    assert not leader.snapshots.sender.is_sending(GROUP)


def test_no_more_leaves_than_the_window_before_the_followers_disk_has_it(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    frames = leader.frames()
    assert [frame.chunks[0].number for frame in frames] == [0, 1]
    for frame in frames:
        follower.step(LEADER, frame)
    follower.host.run_round()
    assert follower.frames() == [], "nothing is durable yet"
    assert leader.frames() == []
    settle(follower)
    (answer,) = follower.frames()
    assert [receipt.durable for receipt in answer.receipts] == [1, 2]
    assert follower.disk[GROUP].snapshot is None
    leader.step(FOLLOWER, answer)
    assert [frame.chunks[0].number for frame in leader.frames()] == [2, 3]


def test_a_broken_connection_ends_it_on_both_sides_and_a_resend_begins_anew(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    for frame in leader.frames():
        follower.step(LEADER, frame)
    settle(follower)
    (first,) = follower.disk[GROUP].slices
    follower.snapshots.peer_lost(0, LEADER)
    leader.snapshots.peer_lost(0, FOLLOWER)
    settle(follower)
    assert follower.staged() == []
    assert leader.raft.progress[FOLLOWER].state is ProgressState.PROBE
    leader.raft.peer_unreachable(0, FOLLOWER)
    offer(leader, FOLLOWER)
    assert carry(leader, follower) == SLICES
    assert_installed(follower)
    assert first not in follower.disk[GROUP].slices


def test_a_follower_that_acknowledges_nothing_is_given_up_and_drops_what_it_has(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    for frame in leader.frames():
        follower.step(LEADER, frame)
    settle(follower)
    leader.now = follower.now = STALL
    assert leader.snapshots.next_deadline == STALL
    leader.snapshots.on_time(STALL)
    follower.snapshots.on_time(STALL)
    settle(follower)
    assert leader.raft.progress[FOLLOWER].state is ProgressState.PROBE
    assert leader.logged == ["snapshot_not_sent: no receipt in time"]
    assert follower.staged() == []
    assert (leader.snapshots.next_deadline, follower.snapshots.next_deadline) == (None, None)


def test_while_its_own_disk_is_slow_a_follower_waits(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    for frame in leader.frames():
        follower.step(LEADER, frame)
    follower.snapshots.on_time(STALL)
    assert follower.snapshots.next_deadline == 2 * STALL
    settle(follower)
    assert follower.staged() == [WINDOW]


def frames_of(transfer: int, term: int, last: EntryId, data: bytes) -> list[PeerFrame]:
    """Returns the frames of a whole transfer, as a leader sends them."""
    described = describe_snapshot(0, data, SLICE)
    offer = SnapshotOffer(term, last, CONFIGURATION, described.slices, described.size_bytes, described.checksum)
    return [
        PeerFrame(
            Stream.SNAPSHOT,
            chunks=[
                SnapshotChunk(GROUP, transfer, n, cut_slice(0, data, SLICE, n).data, offer if n == 0 else None),
            ],
        )
        for n in range(described.slices)
    ]


def receipts(side: Side) -> list[ChunkReceipt]:
    return [receipt for frame in side.frames() for receipt in frame.receipts]


@pytest.mark.scenario("6e")
def test_a_newer_snapshot_takes_the_place_of_one_that_is_being_staged(sides: tuple[Side, Side]) -> None:
    """A newer snapshot replaces one that is being staged: slices of the first one that complete later do not count for
    it."""
    leader, follower = sides
    for frame in leader.frames():
        follower.step(LEADER, frame)
    follower.host.run_round()
    under_way = follower.host.take_transaction(0)
    assert under_way is not None
    newer = EntryId(12, 3, 78)
    first, *rest = frames_of(1, 3, newer, DATA[::-1])
    follower.step(OTHER, first)
    apply_write(follower.disk[GROUP], under_way.writes[0])
    follower.host.on_durable(0, under_way.number)
    assert receipts(follower) == [], "nothing of the second one is durable"
    for frame in rest:
        follower.step(OTHER, frame)
        settle(follower)
    assert_installed(follower, DATA[::-1], newer)
    assert receipts(follower)[-1].durable == SLICES
    for frame in leader.frames():
        follower.step(LEADER, frame)
    assert leader.frames() == [], "the window of the first one is never acknowledged"


@pytest.mark.scenario("6e")
def test_a_second_snapshot_comes_while_the_first_is_being_written(sides: tuple[Side, Side]) -> None:
    _, follower = sides
    for frame in frames_of(1, TERM, LAST, DATA):
        follower.step(LEADER, frame)
    assert follower.sync(), "the slices"
    write = follower.host.take_transaction(0)
    assert write is not None
    assert write.writes[0].snapshot is not None
    newer = EntryId(12, 1, 78)
    for frame in frames_of(2, TERM, newer, DATA[::-1]):
        follower.step(LEADER, frame)
    apply_write(follower.disk[GROUP], write.writes[0])
    durable = follower.disk[GROUP]
    assert (durable.anchor, durable.hard_state.commit) == (LAST, LAST.index), "the first is complete without the second"
    follower.host.on_durable(0, write.number)
    settle(follower)
    assert_installed(follower, DATA[::-1], newer)


def test_what_was_damaged_on_its_way_is_refused_whole(sides: tuple[Side, Side]) -> None:
    _, follower = sides
    frames = frames_of(1, TERM, LAST, DATA)
    chunk = frames[3].chunks[0]
    frames[3].chunks[0] = replace(chunk, data=bytes(len(chunk.data)))
    for frame in frames:
        follower.step(LEADER, frame)
    settle(follower)
    assert "were damaged on their way" in receipts(follower)[-1].refused
    assert follower.staged() == []
    assert follower.raft.last_id == ORIGIN


def test_a_slice_out_of_turn_ends_the_transfer_and_one_that_comes_twice_does_not(sides: tuple[Side, Side]) -> None:
    _, follower = sides
    frames = frames_of(1, TERM, LAST, DATA)
    for frame in (frames[0], frames[0], frames[1], frames[1], frames[3], frames[4]):
        follower.step(LEADER, frame)
    settle(follower)
    assert [bool(receipt.refused) for receipt in receipts(follower)] == [True, True]
    assert follower.staged() == []


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (frames_of(1, TERM - 1, LAST, DATA), "its term is over"),
        (frames_of(1, TERM, LAST, DATA)[1:], "this transfer has ended here"),
    ],
)
def test_what_has_no_sense_any_more_is_refused(sides: tuple[Side, Side], frames: list[PeerFrame], reason: str) -> None:
    _, follower = sides
    follower.step(LEADER, frames[0])
    assert [receipt.refused for receipt in receipts(follower)] == [reason]
    assert not follower.sync()


def test_a_new_term_ends_what_is_being_staged(sides: tuple[Side, Side]) -> None:
    _, follower = sides
    follower.step(LEADER, frames_of(1, TERM, LAST, DATA)[0])
    settle(follower)
    follower.raft.step(0, Heartbeat(OTHER, FOLLOWER, 5, 0, 1))
    follower.snapshots.on_time(0)
    settle(follower)
    assert receipts(follower)[-1].refused == "its term is over"
    assert follower.staged() == []


def test_a_snapshot_of_what_the_log_has_come_to_hold_is_answered_without_its_slices(sides: tuple[Side, Side]) -> None:
    leader, _ = sides
    behind, follower = leader.raft.progress[FOLLOWER], Side(FOLLOWER, LAST)
    assert behind.state is ProgressState.SNAPSHOT
    assert carry(leader, follower) == WINDOW
    assert follower.staged() == []
    for message in take(follower):
        leader.raft.step(0, message)
    assert behind.state is ProgressState.REPLICATE


def test_past_the_bound_a_follower_is_offered_its_snapshot_later(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    other = leader.raft.progress[OTHER]
    other.await_snapshot(LAST.index)
    assert leader.snapshot is not None
    message = InstallSnapshot(LEADER, OTHER, leader.raft.term, leader.snapshot)
    leader.snapshots.sender.offer(0, GROUP, message)
    assert other.state is ProgressState.PROBE
    assert carry(leader, follower) == SLICES
    other.await_snapshot(LAST.index)
    leader.snapshots.sender.offer(0, GROUP, message)
    assert other.state is ProgressState.SNAPSHOT


def test_no_checkpoint_begins_while_a_snapshot_is_being_sent_or_another_written(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    assert not leader.snapshots.may_checkpoint(GROUP)
    carry(leader, follower)
    assert leader.snapshots.may_checkpoint(GROUP)
    done: list[Snapshot] = []
    leader.snapshots.checkpoints.begin(GROUP, leader.raft.last_id, CONFIGURATION, DATA, done.append)
    transactions = 0
    while not done:
        assert not leader.snapshots.may_checkpoint(GROUP)
        assert leader.sync()
        transactions += 1
    assert transactions == SLICES, "one slice each"
    assert leader.disk[GROUP].snapshot == done[0]
    assert leader.disk[GROUP].anchor == leader.raft.anchor == done[0].last
    assert leader.staged() == [SLICES], "the one before is gone"


def test_a_received_snapshot_ends_a_checkpoint_that_is_being_written(sides: tuple[Side, Side]) -> None:
    _, follower = sides
    follower.snapshots.checkpoints.begin(GROUP, ORIGIN, CONFIGURATION, bytes(1000), lambda snapshot: pytest.fail("old"))
    follower.sync()
    follower.snapshots.checkpoints.abandon(GROUP)
    for frame in frames_of(1, TERM, LAST, DATA):
        follower.step(LEADER, frame)
    settle(follower)
    assert_installed(follower)


def test_a_limit_lets_slices_wait_and_a_transfer_that_waits_is_not_given_up(sides: tuple[Side, Side]) -> None:
    leader, follower = sides
    # The next slice may leave after this one's share of two stalls.
    leader.pace.throttle_of = lambda group: SLICE * 1_000_000 // (2 * STALL)
    slices = 0
    while leader.snapshots.sender.is_sending(GROUP):
        for side in sides:
            side.snapshots.on_time(side.now)
        sent = carry(leader, follower)
        assert sent <= 1
        slices += sent
        leader.now += STALL // 2
        follower.now = 0  # It has a limit of its own, which the least throttle keeps off.
    assert slices == SLICES
    assert_installed(follower)
