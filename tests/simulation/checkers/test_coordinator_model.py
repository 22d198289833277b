"""The model of a coordinator's log takes what a leader should decide, and names what it should not."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import CommitLabel, CoordinatorModel
from quorumlog.simulator.models.members_heard import HeardMembers, Removal
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.v1 import coordinator_log_pb2 as log
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.wire.entry import ENVELOPE_BYTES

TOPIC = bytes(16)
SECOND = 1_000_000
LOG_END = 10


def member(
    name: str, epoch: int = 1, assigned: tuple[int, ...] = (), revoking: tuple[int, ...] = (), since: int = 1
) -> log.GroupMember:
    """A member with a session of 2 s and a second to give up."""
    row = log.GroupMember(
        member_id=name, member_epoch=epoch, session_timeout_ms=2_000, rebalance_timeout_ms=1_000, topics=["t"]
    )
    if assigned:
        row.assigned.add(topic_id=TOPIC, assignment_epoch=since, partitions=assigned)
    if revoking:
        row.revoking.add(topic_id=TOPIC, assignment_epoch=since, partitions=revoking)
    return row


def offset(place: int, who: str, epoch: int, partition: int = 0, number: int = 1) -> pb.CommittedOffset:
    """An offset with its label."""
    label = str(CommitLabel(who, epoch, number))
    return pb.CommittedOffset(topic_id=TOPIC, partition=partition, offset=place, metadata=label)


class Log:
    """A coordinator's log of one group."""

    def __init__(self) -> None:
        self.heard = HeardMembers()
        self.model = CoordinatorModel(1_000, self.heard, lambda partition: LOG_END)
        self.index = 0
        self.version = 0
        self.commands: list[log.GroupCommand] = []

    def put(self, *, at_us: int = 0, epoch: int = 1, base: int | None = None, **fields: object) -> None:
        """Commits a change."""
        change = log.GroupChange(
            group_id="g",
            base_version=self.version if base is None else base,
            version=self.version + 1,
            header=log.GroupHeader(group_epoch=epoch, assignment_epoch=epoch),
            **fields,  # type: ignore[arg-type]
        )
        self.version += 1
        self.index += 1
        for row in change.members:
            row.assignment_version = row.assignment_version or self.version
        command = log.GroupCommand(changes=[change])
        self.commands.append(command)
        data = bytes(ENVELOPE_BYTES) + command.SerializeToString()
        self.model.commit(Entry(self.index, 1, EntryKind.COMMAND, 0, data), at_us, 0)

    def snapshot(self) -> log.GroupsSnapshot:
        """Returns the expected snapshot of a replica that applied only the first change."""
        whole = log.GroupChange()
        whole.CopyFrom(self.commands[0].changes[0])
        return log.GroupsSnapshot(groups=[whole], applied_index=1)


@pytest.fixture
def shared() -> Log:
    """Two members with a partition each; the first must release a third one."""
    shared = Log()
    shared.put(
        members=[member("a", assigned=(0,), revoking=(2,)), member("b", assigned=(1,))],
        targets=[pb_target("a", 0), pb_target("b", 1, 2)],
    )
    for name in ("a", "b"):
        shared.heard.answered(pb.GroupHeartbeatRequest(group_id="g", member_id=name, member_epoch=1), 0)
    return shared


def pb_target(name: str, *partitions: int) -> log.MemberTarget:
    """A member's part."""
    return log.MemberTarget(member_id=name, topics=[pb.TopicPartitions(topic_id=TOPIC, partitions=partitions)])


def test_a_partition_is_given_once_it_is_released(shared: Log) -> None:
    shared.put(epoch=2, members=[member("a", 2, assigned=(0,))])
    shared.put(epoch=2, members=[member("b", 2, assigned=(1, 2))])
    assert shared.model.commands == 3


def test_what_a_member_works_on_is_not_taken_from_it(shared: Log) -> None:
    shared.heard.begins("g", "a", (TOPIC, 2))
    with pytest.raises(Violation, match=r"are taken from a, which is processing them"):
        shared.put(epoch=2, members=[member("a", 2, assigned=(0,))])


def test_what_a_member_has_given_up_may_be_taken(shared: Log) -> None:
    shared.heard.begins("g", "a", (TOPIC, 2))
    shared.heard.ends("g", "a", (TOPIC, 2))
    shared.put(epoch=2, members=[member("a", 2, assigned=(0,))])


def test_what_a_member_has_changes_under_a_new_version(shared: Log) -> None:
    row = member("a", 2, assigned=(0,))
    row.assignment_version = 1
    with pytest.raises(Violation, match="what a has changes in version 2 and is of 1"):
        shared.put(epoch=2, members=[row])


def test_a_partition_given_before_it_is_released_is_named(shared: Log) -> None:
    with pytest.raises(Violation, match=r"000000-2 belongs to both a and b"):
        shared.put(epoch=2, members=[member("b", 2, assigned=(1, 2))])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (offset(3, "a", 1), None),
        (offset(3, "a", 1, partition=2), None),
        (offset(3, "a", 0), "committed by a in epoch 0; it belongs to a since epoch 1"),
        (offset(3, "a", 2), "committed by a in epoch 2"),
        (offset(3, "b", 1), "committed by b in epoch 1; it belongs to a since epoch 1"),
        (offset(3, "c", 1), "committed by c in epoch 1"),
        (offset(3, "b", 1, partition=3), None),
        (offset(LOG_END + 1, "a", 1), "11 of 000000-0 is committed, its log ends at 10"),
    ],
)
def test_only_owners_commit(shared: Log, row: pb.CommittedOffset, message: str | None) -> None:
    if message is None:
        shared.put(offsets=[row])
        return
    with pytest.raises(Violation, match=message):
        shared.put(offsets=[row])


@pytest.mark.parametrize("late", [offset(2, "a", 1, partition=3), offset(2, "b", 1, partition=3, number=9)])
def test_committed_offsets_do_not_go_back(shared: Log, late: pb.CommittedOffset) -> None:
    shared.put(offsets=[offset(3, "a", 1, partition=3, number=2)])
    with pytest.raises(Violation, match=r"goes back from 3 \(a 1 2\) to 2"):
        shared.put(offsets=[late])


def test_a_member_may_take_its_own_commit_back(shared: Log) -> None:
    shared.put(offsets=[offset(3, "a", 1, number=2)])
    shared.put(offsets=[offset(2, "a", 1, number=3)])


def test_a_member_is_put_out_after_a_session_of_silence(shared: Log) -> None:
    with pytest.raises(Violation, match="b is removed, although its last heartbeat was 1999000 µs ago"):
        shared.put(at_us=1_999_000, removed_members=["b"])


@pytest.mark.parametrize(("name", "at_us", "why"), [("b", 2 * SECOND, Removal.SILENT), ("a", SECOND, Removal.OVERDUE)])
def test_the_reason_is_kept_why_a_member_was_put_out(shared: Log, name: str, at_us: int, why: Removal) -> None:
    shared.put(at_us=at_us, removed_members=[name])
    assert shared.heard.removals[("g", name)].why is why


def test_who_says_so_goes_at_once(shared: Log) -> None:
    shared.heard.sent(pb.GroupHeartbeatRequest(group_id="g", member_id="b", member_epoch=-1))
    shared.put(removed_members=["b"])
    assert shared.heard.removals[("g", "b")].why is Removal.LEFT


def test_a_change_based_on_another_version_is_named(shared: Log) -> None:
    with pytest.raises(Violation, match="it is based on version 0, the log has 1"):
        shared.put(base=0)


def test_epochs_do_not_go_back_and_no_member_is_ahead(shared: Log) -> None:
    shared.put(epoch=3)
    with pytest.raises(Violation, match=r"epochs go from \(3, 3\) to \(2, 2\)"):
        shared.put(epoch=2)
    with pytest.raises(Violation, match="a is in epoch 4, the targets in 3"):
        shared.put(epoch=3, members=[member("a", 4, assigned=(0,))], base=3)


def test_a_replica_must_hold_what_the_log_says(shared: Log) -> None:
    held = shared.snapshot()
    shared.model.check_table("it", 1, held.SerializeToString())
    shared.put(offsets=[offset(3, "a", 1)])
    shared.model.check_table("it", 1, held.SerializeToString())
    del held.groups[0].targets[:]
    with pytest.raises(Violation, match="it as of entry 1 is not what the log says"):
        shared.model.check_table("it", 1, held.SerializeToString())
    with pytest.raises(Violation, match="calls itself a state of entry 1; it is of 2"):
        shared.model.check_table("it", 2, held.SerializeToString())


# -- offsets in transactions ------------------------------------------------------------------------------------------


def pending(place: int, *offsets: pb.CommittedOffset, producer: int = 7) -> log.PendingOffsets:
    """Offsets of a transaction that started at an index of its coordinator's log."""
    record = log.PendingOffsets(coordinator=2, offsets=offsets)
    record.producer.producer_id, record.place.index = producer, place
    return record


def ended(place: int, decided: int, *, commit: bool = True, producer: int = 7) -> log.EndedOffsets:
    """The decision on such a transaction."""
    row = log.EndedOffsets(producer_id=producer, commit=commit)
    row.place.index, row.decided.index = place, decided
    return row


def overtaken(partition: int = 0, producer: int = 7) -> log.PendingOffsets:
    """The record that a pending offset was overtaken."""
    return pending(1, pb.CommittedOffset(topic_id=TOPIC, partition=partition), producer=producer)


def test_a_transaction_takes_effect_with_its_decision(shared: Log) -> None:
    mine = offset(5, "a", 1)
    shared.put(pending=[pending(1, mine)])
    shared.put(offsets=[mine], ended=[ended(1, 2)])
    shared.put(pending=[pending(3, offset(6, "a", 1, number=2))])
    shared.put(ended=[ended(3, 4, commit=False)])
    shared.put(pending=[pending(5, offset(7, "a", 1, number=3))])
    shared.put(offsets=[offset(8, "a", 1, number=4)], overtaken=[overtaken()])
    shared.put(ended=[ended(5, 6)])
    assert shared.model.groups["g"].offsets[TopicIdPartition(TOPIC, 0)].offset == 8


def test_a_transaction_without_its_decision_is_noticed(shared: Log) -> None:
    mine = offset(5, "a", 1)
    shared.put(pending=[pending(1, mine)])
    with pytest.raises(Violation, match="has not committed it"):
        shared.put(offsets=[mine])


def test_an_aborted_transaction_that_takes_effect_is_noticed(shared: Log) -> None:
    mine = offset(5, "a", 1)
    shared.put(pending=[pending(1, mine)])
    with pytest.raises(Violation, match="has not committed it"):
        shared.put(offsets=[mine], ended=[ended(1, 2, commit=False)])


def test_a_committed_transaction_without_effect_is_noticed(shared: Log) -> None:
    shared.put(pending=[pending(1, offset(5, "a", 1))])
    with pytest.raises(Violation, match="take no effect"):
        shared.put(ended=[ended(1, 2)])


def test_an_offset_pending_after_a_later_commit_is_noticed(shared: Log) -> None:
    shared.put(pending=[pending(1, offset(5, "a", 1))])
    with pytest.raises(Violation, match="is pending after"):
        shared.put(offsets=[offset(6, "a", 1, number=2)])


def test_a_pending_offset_of_another_member_is_noticed(shared: Log) -> None:
    shared.put(pending=[pending(1, offset(5, "-", -1))])
    with pytest.raises(Violation, match="is committed by b"):
        shared.put(pending=[pending(1, offset(5, "b", 1))])


def test_a_commit_in_a_transaction_that_is_over_is_noticed(shared: Log) -> None:
    mine = offset(5, "a", 1)
    shared.put(pending=[pending(1, mine)])
    with pytest.raises(Violation, match="two transactions"):
        shared.put(pending=[pending(2, offset(6, "a", 1, number=2))])
    again = Log()
    again.put(pending=[pending(1, offset(5, "-", -1))])
    again.put(offsets=[offset(5, "-", -1)], ended=[ended(1, 3)])
    with pytest.raises(Violation, match="is over"):
        again.put(pending=[pending(3, offset(6, "-", -1, number=2))])
    with pytest.raises(Violation, match="ends that is not open"):
        again.put(base=2, ended=[ended(1, 3)])


def test_a_group_deleted_with_pending_offsets_is_noticed() -> None:
    gone = Log()
    gone.put(pending=[pending(1, offset(5, "-", -1))])
    change = log.GroupChange(group_id="g", base_version=1)
    data = bytes(ENVELOPE_BYTES) + log.GroupCommand(changes=[change]).SerializeToString()
    with pytest.raises(Violation, match="deleted with offsets in open transactions"):
        gone.model.commit(Entry(2, 1, EntryKind.COMMAND, 0, data), 0, 0)


def test_a_table_without_pending_offsets_is_noticed() -> None:
    log_of_one = Log()
    log_of_one.put(pending=[pending(1, offset(5, "-", -1))])
    held = log_of_one.snapshot()
    held.groups[0].pending[0].version = 1
    log_of_one.model.check_table("it", 1, held.SerializeToString())
    del held.groups[0].pending[:]
    with pytest.raises(Violation, match="is not what the log says"):
        log_of_one.model.check_table("it", 1, held.SerializeToString())
