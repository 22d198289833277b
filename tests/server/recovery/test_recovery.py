"""Survey, plan and application on real data directories of nodes that never ran."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from quorumlog.cli.main import main
from quorumlog.raft.types import NO_NODE, ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.directory_identity import CLUSTER_ROW, DIRECTORY_ROW, NODE_ROW
from quorumlog.server.node.formation import Membership
from quorumlog.server.partition.witness import witness_rows
from quorumlog.server.recovery import directory as recovery_directory
from quorumlog.server.recovery.application import FRESH_OFFSET
from quorumlog.server.recovery.directory import apply_plan, opened, survey_directory
from quorumlog.server.recovery.plan import Loss, RecoveryPlan, make_plan
from quorumlog.server.recovery.survey import RecoveryError, Survey
from quorumlog.storage import rows
from quorumlog.storage.interface import DamageError, DataDirectoryLockedError, FatalStorageError
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.raft_group_write import RaftGroupWriter
from quorumlog.storage.recheck_list import are_pages_suspect
from quorumlog.storage.rows import read_snapshot
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupState, RaftGroupWrite, StorageTransaction
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.partition_log_pb2 import PartitionCommand
from quorumlog.wire.entry import ENVELOPE_BYTES

FORMER = "0123456789abcdef012345"
#: The partitions of the one topic: their replicas. Their groups are 1000, 1001, 1002.
REPLICAS = ((1, 2, 3), (2, 1, 4), (3, 4, 5))
WHOLE, PARTLY, NOWHERE = 1000, 1001, 1002


def commands(name: str = "t") -> list[metadata_log_pb2.MetadataCommand]:
    """Returns the metadata log of five nodes, of which three vote, and a topic."""
    made = [
        metadata_log_pb2.MetadataCommand(
            register_broker=peer_pb2.RegisterBroker(
                node_id=node,
                directory_id=f"disk-{node}",
                boot_id=node,
                host="127.0.0.1",
                port=9000 + node,
                feature_level=2,
            )
        )
        for node in range(1, 6)
    ]
    topic = metadata_log_pb2.CreateTopic(name=name, topic_id=b"0123456789abcdef")
    for replicas in REPLICAS:
        topic.partitions.add(replicas=replicas)
    return [*made, metadata_log_pb2.MetadataCommand(create_topic=topic)]


def metadata_write(term: int = 3, missing: int = 0, topic: str = "t") -> RaftGroupWrite:
    write = RaftGroupWrite(METADATA_GROUP, create=Configuration((1, 2, 3)))
    last = ORIGIN
    made = commands(topic)
    for command in made[: len(made) - missing]:
        seal = GroupSealer(METADATA_GROUP).command(command.SerializeToString(deterministic=True))
        entry = seal(last.index + 1, term, last.hash)
        write.entries.append(entry)
        last = EntryId(entry.index, entry.term, entry.hash)
    write.hard_state = HardState(term, NO_NODE, 0)
    return write


def log(
    group: int, terms: Sequence[int], *, voters: tuple[int, ...], term: int = 0, witness: int = 0
) -> RaftGroupWrite:
    """Returns a log of empty entries of these terms, for a group with this witness, if any."""
    members = Configuration(voters, witnesses=(witness,) if witness else ())
    write = RaftGroupWrite(group, create=members, hard_state=HardState(max([term, *terms])))
    last = ORIGIN
    for each in terms:
        entry = GroupSealer(group).noop(last.index + 1, each, last.hash)
        write.entries.append(entry)
        last = EntryId(entry.index, entry.term, entry.hash)
    return write


def directory(tmp_path: Path, node: int, *writes: RaftGroupWrite, metadata: RaftGroupWrite | None = None) -> Path:
    place = tmp_path / f"node-{node}"
    membership = Membership(FORMER, tuple((each, f"disk-{each}", f"127.0.0.1:{9000 + each}") for each in (1, 2, 3)))
    rows: dict[bytes, bytes | None] = {
        NODE_ROW: b"%d" % node,
        DIRECTORY_ROW: b"disk-%d" % node,
        CLUSTER_ROW: membership.encode(),
    }
    with Storage(place, reserve_bytes=0) as storage:
        storage.commit(StorageTransaction(1, [metadata or metadata_write(), *writes], rows))
    return place


def plan_for(*places: Path) -> RecoveryPlan:
    return make_plan([survey_directory(each) for each in places])


def states_in(place: Path) -> dict[int, RaftGroupState]:
    with opened(place) as storage:
        return storage.groups()


def image_in(place: Path) -> MetadataImage:
    with opened(place) as storage:
        snapshot = storage.groups()[METADATA_GROUP].snapshot
        assert snapshot is not None
        return MetadataImage.from_snapshot(read_snapshot(storage, METADATA_GROUP, snapshot.data))


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Nodes 1 and 4 are left of five; 1 is ahead in one partition, and 4 in the other."""
    one = directory(
        tmp_path, 1, log(WHOLE, [1, 1, 2], voters=(1, 2, 3), term=7), log(PARTLY, [1, 1, 1, 1], voters=(2, 1, 4))
    )
    other = directory(tmp_path, 4, log(PARTLY, [1, 1, 2], voters=(2, 1, 4), term=5))
    return one, other


# -- the plan -----------------------------------------------------------------------------------------------------


def test_each_partition_goes_on_from_the_most_complete_log(two: tuple[Path, Path]) -> None:
    plan = plan_for(*two)
    assert plan.outcomes[WHOLE].goes_on.node == 1
    assert plan.outcomes[PARTLY].goes_on.node == 4, "a later term beats a longer log"
    assert (plan.outcomes[WHOLE].loss, plan.outcomes[PARTLY].loss) == (Loss.NEWEST, Loss.NOTHING)


def test_of_two_logs_of_one_term_the_longer_goes_on(tmp_path: Path) -> None:
    one = directory(tmp_path, 1, log(PARTLY, [1, 2], voters=(2, 1, 4)))
    other = directory(tmp_path, 4, log(PARTLY, [1, 2, 2], voters=(2, 1, 4)))
    assert plan_for(one, other).outcomes[PARTLY].goes_on.node == 4


def test_a_witness_never_goes_on_but_knows_what_is_lost(tmp_path: Path) -> None:
    one = directory(tmp_path, 1, log(PARTLY, [1, 1], voters=(2, 1, 4), witness=4))
    ahead = log(PARTLY, [1, 1, 1, 1, 1], voters=(2, 1, 4), witness=4)
    other = directory(tmp_path, 4, replace(ahead, table={**witness_rows()}))
    outcome = plan_for(one, other).outcomes[PARTLY]
    assert (outcome.goes_on.node, outcome.loss) == (1, Loss.NEWEST)
    assert "at least 3 newer entries are lost, reported by the witness on node 4" in outcome.why


def test_a_witness_alone_has_nothing_to_go_on_with(tmp_path: Path) -> None:
    alone = log(PARTLY, [1, 1], voters=(2, 1, 4), witness=4)
    outcomes = plan_for(directory(tmp_path, 4, replace(alone, table={**witness_rows()}))).outcomes
    [outcome] = [each for each in outcomes.values() if each.name == "t-1"]
    assert (outcome.loss, outcome.goes_on.fresh) == (Loss.ALL, True)


def test_the_metadata_go_on_from_the_newest(tmp_path: Path) -> None:
    behind = directory(tmp_path, 1, metadata=metadata_write(missing=1))
    ahead = directory(tmp_path, 4)
    plan = plan_for(behind, ahead)
    assert plan.metadata_node == 4
    assert len(plan.outcomes) == len(REPLICAS)


def test_the_recovered_cluster_is_another_one_whoever_makes_the_plan(two: tuple[Path, Path]) -> None:
    one, other = two
    plan = plan_for(one, other)
    assert plan.cluster_id != plan.former_cluster_id == FORMER
    assert plan_for(other, one) == plan
    assert plan_for(one).cluster_id != plan.cluster_id, "of other survivors it is another one again"
    assert MetadataImage.from_snapshot(plan.snapshot).former_cluster_ids == (FORMER,)


def test_terms_are_above_all_that_anybody_has_seen(two: tuple[Path, Path]) -> None:
    plan = plan_for(*two)
    surveys = [survey_directory(each) for each in two]
    for group, outcome in plan.outcomes.items():
        seen = [each.groups[group].term for each in surveys if group in each.groups]
        assert outcome.goes_on.term > max([0, *seen])
        record = MetadataImage.from_snapshot(plan.snapshot).partitions[group]
        assert record.leader_epoch == outcome.goes_on.term
    assert plan.last.term > 3
    assert plan.last.index > len(commands())


def test_the_lost_are_given_up_and_their_replicas_and_votes_come_back_with_them(two: tuple[Path, Path]) -> None:
    plan = plan_for(*two)
    assert plan.lost == (2, 3, 5)
    image = MetadataImage.from_snapshot(plan.snapshot)
    assert [node for node, broker in image.brokers.items() if broker.is_vacant] == [2, 3, 5]
    assert all(image.lost_disks.is_given_up(node, f"disk-{node}") for node in plan.lost)
    assert {node for node, lost in image.lost_disks.by_node.items() if lost.voted} == {2, 3}
    assert image.quorum.voters == (1,), "of those that voted"
    for record in image.partitions.values():
        assert record.replicas == record.isr == (plan.outcomes[record.group].goes_on.node,)
        assert record.returning == REPLICAS[record.number]


def test_a_partition_without_a_survivor_begins_anew_as_another_group(two: tuple[Path, Path]) -> None:
    plan = plan_for(*two)
    [(group, outcome)] = [(group, each) for group, each in plan.outcomes.items() if each.loss is Loss.ALL]
    assert group > NOWHERE
    assert outcome.name == "t-2"
    assert any("t-2: restarts empty; all of its records are lost" in line for line in plan.report)


def test_where_a_majority_is_left_of_everything_nothing_is_given_up(tmp_path: Path) -> None:
    places = [
        directory(
            tmp_path,
            node,
            *(log(1000 + number, [1], voters=voters) for number, voters in enumerate(REPLICAS) if node in voters),
        )
        for node in (1, 2, 3, 4)
    ]
    with pytest.raises(RecoveryError, match="every group still has a majority"):
        plan_for(*places)


def test_members_that_change_in_the_log_are_not_counted_on(tmp_path: Path) -> None:
    one = log(PARTLY, [1, 1], voters=(2, 1, 4))
    last = one.entries[-1]
    one.entries.append(GroupSealer(PARTLY).config(3, 1, last.hash, Configuration((2, 1, 5), (), (2, 1, 4))))
    other = directory(tmp_path, 4, log(PARTLY, [1, 1], voters=(2, 1, 4)))
    outcome = plan_for(directory(tmp_path, 1, one), other).outcomes[PARTLY]
    assert (outcome.goes_on.node, outcome.loss) == (1, Loss.NEWEST)


def test_surveys_that_do_not_belong_together_are_refused(two: tuple[Path, Path]) -> None:
    one, other = (survey_directory(each) for each in two)
    with pytest.raises(RecoveryError, match="specify those of all survivors"):
        make_plan([])
    with pytest.raises(RecoveryError, match="two surveys are of node 1"):
        make_plan([one, one])
    with pytest.raises(RecoveryError, match="of different clusters"):
        make_plan([one, replace(other, cluster_id="another")])
    with pytest.raises(RecoveryError, match="do not have node 4 with data directory disk-9"):
        make_plan([one, replace(other, directory_id="disk-9")])


def test_files_carry_surveys_and_plans_and_nothing_else_is_taken_for_them(two: tuple[Path, Path]) -> None:
    found = [survey_directory(each) for each in two]
    plan = make_plan(found)
    assert [Survey.from_json(each.to_json(), "it") for each in found] == found
    assert RecoveryPlan.from_json(plan.to_json(), "it") == plan
    for wrong in (None, 7, [], {}, {"survey_format": 1, "plan_format": 1}, found[0].to_json() | {"groups": [{}]}):
        with pytest.raises(RecoveryError, match="it is no"):
            Survey.from_json(wrong, "it")
        with pytest.raises(RecoveryError, match="it is no"):
            RecoveryPlan.from_json(wrong, "it")


def test_files_that_were_changed_are_refused(two: tuple[Path, Path]) -> None:
    found = [survey_directory(each) for each in two]
    plan = make_plan(found)
    with pytest.raises(RecoveryError, match="it was modified after it was printed: survey that node again"):
        Survey.from_json(found[0].to_json() | {"node_id": 5}, "it")
    with pytest.raises(RecoveryError, match="it was modified after it was printed: make a new plan"):
        RecoveryPlan.from_json(plan.to_json() | {"cluster_id": plan.former_cluster_id}, "it")


# -- the application ----------------------------------------------------------------------------------------------


def test_every_survivor_has_the_same_metadata_and_its_own_partitions_alone(two: tuple[Path, Path]) -> None:
    one, other = two
    before = {place: states_in(place) for place in two}
    plan = plan_for(*two)
    assert all(apply_plan(plan, place) for place in two)
    after = {place: states_in(place) for place in two}
    for place in two:
        metadata = after[place][METADATA_GROUP]
        assert metadata.anchor == metadata.last == plan.last, "nothing of the node's own log is left"
        assert metadata.configuration == plan.configuration
        assert metadata.hard_state == HardState(plan.last.term, NO_NODE, plan.last.index)
        assert image_in(place).to_snapshot() == plan.snapshot
        found = survey_directory(place)
        assert (found.cluster_id, found.recovery) == (plan.cluster_id, plan.plan_id)
    fresh = max(plan.outcomes)
    heir = one if plan.outcomes[fresh].goes_on.node == 1 else other
    assert set(after[one]) - {fresh} == {METADATA_GROUP, WHOLE}, "what was not chosen is gone"
    assert set(after[other]) - {fresh} == {METADATA_GROUP, PARTLY}
    assert fresh in after[heir]
    for place, group in ((one, WHOLE), (other, PARTLY)):
        state, goes_on = after[place][group], plan.outcomes[group].goes_on
        assert state.configuration == Configuration((goes_on.node,))
        assert state.last.index == before[place][group].last.index + 1 == state.hard_state.commit
        assert state.hard_state.term == state.last.term == goes_on.term
        with opened(place) as storage:
            [entry] = storage.entries(group, state.last.index, state.last.index, 1 << 20)
        assert entry.kind is EntryKind.CONFIG


@pytest.mark.parametrize("topic", ["t", "__groups-1"])
def test_a_partition_that_begins_anew_gives_no_offset_a_second_time(tmp_path: Path, topic: str) -> None:
    """A partition that is created again starts above all former offsets, also if its topic's name only starts with that
    of the coordinators' topic."""
    metadata = metadata_write(topic=topic)
    one = directory(tmp_path, 1, log(WHOLE, [1], voters=(1, 2, 3)), metadata=metadata)
    other = directory(tmp_path, 4, log(PARTLY, [1], voters=(2, 1, 4)), metadata=metadata)
    plan = plan_for(one, other)
    fresh = max(plan.outcomes)
    place = one if plan.outcomes[fresh].goes_on.node == 1 else other
    apply_plan(plan, place)
    with opened(place) as storage:
        entries = storage.entries(fresh, 1, 2, 1 << 20)
    steps = [PartitionCommand.FromString(entry.data[ENVELOPE_BYTES:]) for entry in entries]
    assert steps[0].begin_restore.next_offset == steps[1].finish_restore.log_start_offset == FRESH_OFFSET >= 1 << 40


def test_a_directory_that_changed_since_it_was_surveyed_is_refused(two: tuple[Path, Path]) -> None:
    plan = plan_for(*two)
    with opened(two[0]) as storage:
        last = storage.groups()[WHOLE].last
        entry = GroupSealer(WHOLE).noop(last.index + 1, last.term, last.hash)
        storage.commit(StorageTransaction(1, [RaftGroupWrite(WHOLE, entries=[entry])]))
    with pytest.raises(RecoveryError, match="has changed since its survey"):
        apply_plan(plan, two[0])
    assert survey_directory(two[0]).cluster_id == FORMER


def test_a_directory_that_the_plan_was_made_without_is_refused(two: tuple[Path, Path]) -> None:
    with pytest.raises(RecoveryError, match="made without node 4"):
        apply_plan(plan_for(two[0]), two[1])


def test_what_was_applied_is_not_applied_again(two: tuple[Path, Path]) -> None:
    plan = plan_for(*two)
    assert apply_plan(plan, two[0])
    before = survey_directory(two[0]).fingerprint
    assert not apply_plan(plan, two[0])
    assert survey_directory(two[0]).fingerprint == before
    with pytest.raises(RecoveryError, match="of different clusters"):
        plan_for(*two)


def test_a_crash_on_the_way_leaves_all_as_it_was(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(*two)
    before = survey_directory(two[0])

    def breaks(_: object) -> None:
        raise FatalStorageError("the process dies here")

    with monkeypatch.context() as patched:
        patched.setattr(RaftGroupWriter, "finish", breaks)
        with pytest.raises(FatalStorageError):
            apply_plan(plan, two[0])
    assert survey_directory(two[0]) == before
    assert apply_plan(plan, two[0])


def test_a_directory_in_use_or_without_a_cluster_is_refused(two: tuple[Path, Path], tmp_path: Path) -> None:
    with opened(two[0]), pytest.raises(DataDirectoryLockedError, match="is in use"):
        survey_directory(two[0])
    with pytest.raises(RecoveryError, match=r"has no data\.mdb"):
        survey_directory(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    Storage(tmp_path / "empty", reserve_bytes=0).close()
    with pytest.raises(RecoveryError, match="belongs to no cluster"):
        survey_directory(tmp_path / "empty")


def test_nothing_waits_for_what_only_the_lost_nodes_had(tmp_path: Path) -> None:
    place = directory(tmp_path, 1, log(WHOLE, [1, 1], voters=(1, 2, 3)))
    row = b"former-replica/%d" % WHOLE
    with opened(place) as storage:
        storage.commit(StorageTransaction(1, [], {row: bytes(16)}))
    apply_plan(plan_for(place), place)
    with opened(place) as storage:
        assert row not in storage.node_state()


# -- copies in doubt ----------------------------------------------------------------------------------------------


def damage(place: Path, entry: Entry) -> None:
    """Flips a bit of an entry, wherever its bytes are."""
    whole = (place / "data.mdb").read_bytes()
    assert entry.data in whole
    flipped = entry.data[:-1] + bytes([entry.data[-1] ^ 4])
    (place / "data.mdb").write_bytes(whole.replace(entry.data, flipped))


def test_of_two_copies_that_are_as_far_the_one_without_damage_goes_on(tmp_path: Path) -> None:
    """The undamaged one of two equally long copies is kept: after recovery no other copy is left for repairs."""
    long = [1] * 100
    one = directory(tmp_path, 1, log(PARTLY, long, voters=(2, 1, 4)))
    other = directory(tmp_path, 4, log(PARTLY, long, voters=(2, 1, 4)))
    assert plan_for(one, other).outcomes[PARTLY].goes_on.node == 1
    damage(one, log(PARTLY, long, voters=(2, 1, 4)).entries[4])
    plan = plan_for(one, other)
    assert (plan.outcomes[PARTLY].goes_on.node, plan.outcomes[PARTLY].loss) == (4, Loss.NOTHING)
    assert RecoveryPlan.from_json(plan.to_json(), "it") == plan
    assert apply_plan(plan, one)
    assert apply_plan(plan, other)
    assert PARTLY not in states_in(one)


def test_a_damaged_copy_that_is_ahead_does_not_go_on(tmp_path: Path) -> None:
    """A damaged copy is not kept, even if it is longer: with an entry that it cannot apply, it would never lead."""
    one = directory(tmp_path, 1, log(PARTLY, [1] * 100, voters=(2, 1, 4)))
    damage(one, log(PARTLY, [1] * 100, voters=(2, 1, 4)).entries[4])
    other = directory(tmp_path, 4, log(PARTLY, [1, 1], voters=(2, 1, 4)))
    outcome = plan_for(one, other).outcomes[PARTLY]
    assert (outcome.goes_on.node, outcome.loss) == (4, Loss.NEWEST)
    assert "node 1 has them, but its copy is damaged" in outcome.why


def test_an_unreadable_tail_proves_nothing(tmp_path: Path) -> None:
    """An unreadable uncommitted entry may change the members, so a majority of the known members proves nothing."""
    write = log(PARTLY, [1] * 100, voters=(2, 1, 4))
    one = directory(tmp_path, 1, write)
    other = directory(tmp_path, 4, log(PARTLY, [1] * 100, voters=(2, 1, 4)))
    assert not survey_directory(one).groups[PARTLY].changes_members
    assert plan_for(one, other).outcomes[PARTLY].loss is Loss.NOTHING
    damage(one, write.entries[4])
    survey = survey_directory(one)
    assert survey.groups[PARTLY].changes_members
    # The same holds if nothing else reports that the copy is damaged.
    survey.groups[PARTLY] = replace(survey.groups[PARTLY], damaged_entries=0)
    outcome = make_plan([survey, survey_directory(other)]).outcomes[PARTLY]
    assert (outcome.goes_on.node, outcome.loss) == (1, Loss.NEWEST)


def test_an_unreadable_head_proves_enough(tmp_path: Path) -> None:
    """A damaged committed entry is not taken for a change of members: the members are known from the applied state."""
    write = log(PARTLY, [1] * 100, voters=(2, 1, 4))
    write.hard_state = HardState(1, NO_NODE, 50)
    one = directory(tmp_path, 1, write)
    damage(one, write.entries[4])
    assert not survey_directory(one).groups[PARTLY].changes_members


def test_the_plan_says_that_a_copy_that_goes_on_is_damaged(tmp_path: Path) -> None:
    one = directory(tmp_path, 1, log(PARTLY, [1] * 100, voters=(2, 1, 4)))
    damage(one, log(PARTLY, [1] * 100, voters=(2, 1, 4)).entries[4])
    other = directory(tmp_path, 4)
    outcome = plan_for(one, other).outcomes[PARTLY]
    assert (outcome.goes_on.node, outcome.loss) == (1, Loss.NEWEST)
    assert "1 damaged entry" in outcome.why
    assert "delete-records" in outcome.why


def test_a_copy_that_began_anew_is_no_witness_of_what_was_committed(tmp_path: Path) -> None:
    """A replica that was created again proves nothing up to its former end: it may have helped to commit entries that
    only a lost node has."""
    one = directory(tmp_path, 1, log(PARTLY, [1, 1], voters=(2, 1, 4)))
    other = directory(tmp_path, 4, log(PARTLY, [1, 1], voters=(2, 1, 4)))
    assert plan_for(one, other).outcomes[PARTLY].loss is Loss.NOTHING
    with opened(other) as storage:
        storage.commit(StorageTransaction(1, [], {b"former-replica/%d" % PARTLY: struct.pack("<QQ", 1, 3)}))
    assert plan_for(one, other).outcomes[PARTLY].loss is Loss.NEWEST
    with opened(other) as storage:
        last = storage.groups()[PARTLY].last
        entry = GroupSealer(PARTLY).noop(last.index + 1, last.term, last.hash)
        write = RaftGroupWrite(PARTLY, entries=[entry], hard_state=HardState(1, NO_NODE, 3))
        storage.commit(StorageTransaction(1, [write]))
    assert plan_for(one, other).outcomes[PARTLY].loss is Loss.NOTHING, (
        "it has learned by now that all of that is committed"
    )


def test_a_node_that_returned_empty_is_no_witness_of_the_metadata(tmp_path: Path) -> None:
    one, other = directory(tmp_path, 1), directory(tmp_path, 2)
    assert "metadata: continue from node 1; a majority is left, nothing is lost" in plan_for(one, other).report
    with opened(other) as storage:
        membership = Membership.decode(storage.node_state()[CLUSTER_ROW])
        storage.commit(StorageTransaction(1, [], {CLUSTER_ROW: replace(membership, votes_from=4).encode()}))
    assert any("the newest changes may be lost" in line for line in plan_for(one, other).report)


def test_a_partition_that_is_lost_in_each_of_two_recoveries_gives_no_offset_a_second_time(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    def beginning(plan: RecoveryPlan, *places: Path) -> int:
        [fresh] = [group for group, each in plan.outcomes.items() if each.name == "t-2"]
        for place in places:
            apply_plan(plan, place)
            with opened(place) as storage:
                if fresh in storage.groups():
                    command = storage.entries(fresh, 1, 1, 1 << 20)[0].data[ENVELOPE_BYTES:]
                    found = PartitionCommand.FromString(command).begin_restore.next_offset
        return found

    plan = plan_for(*two)
    [fresh] = [each for each in plan.outcomes.values() if each.name == "t-2"]
    first = beginning(plan, *two)
    survivor = two[1] if fresh.goes_on.node == 1 else two[0]
    assert beginning(plan_for(survivor), survivor) >= 2 * first


def test_damaged_pages_are_looked_for_before_the_engine_opens_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage that was found stays recorded across surveys, and keeps the engine from opening the pages."""
    one = directory(tmp_path, 1, log(PARTLY, [1] * 2_000, voters=(2, 1, 4)))
    plan = plan_for(one)
    with PageFile(one / "data.mdb") as pages, pages.cursor(rows.ENTRIES) as cursor:
        assert cursor.set_range(rows.position_key(PARTLY, 1_000))
        place = cursor._path[-1][0].number * pages.meta.page_size
    with (one / "data.mdb").open("r+b") as file:
        file.seek(place + 10)
        file.write(b"\xff")
    with pytest.raises(DamageError):
        survey_directory(one)
    assert are_pages_suspect(one)

    def opens(*_: object, **__: object) -> None:
        raise AssertionError("the engine opens it")

    monkeypatch.setattr(recovery_directory, "Storage", opens)
    for _ in range(2):
        with pytest.raises(DamageError):
            survey_directory(one)
        with pytest.raises(DamageError):
            apply_plan(plan, one)
        assert are_pages_suspect(one)


def test_nobody_waits_for_a_limit_of_an_earlier_loss(tmp_path: Path) -> None:
    lost = metadata_log_pb2.MetadataCommand(
        replace_disk=metadata_log_pb2.ReplaceDisk(
            node_id=5, directory_id="disk-5", state=metadata_log_pb2.DISK_STATE_LOST, bytes_per_second=1_000
        )
    )
    write = metadata_write()
    last = write.entries[-1]
    seal = GroupSealer(METADATA_GROUP).command(lost.SerializeToString(deterministic=True))
    write.entries.append(seal(last.index + 1, last.term, last.hash))
    plan = plan_for(directory(tmp_path, 1, metadata=write))
    assert {each.throttle for each in MetadataImage.from_snapshot(plan.snapshot).lost_disks.by_node.values()} == {0}


# -- the command --------------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    """Runs a command, and returns its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_what_was_broken_off_on_one_machine_goes_on_with_the_plan_that_was_kept(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = two
    arguments = ["recover", "local", "--data-dir", str(one), "--data-dir", str(other), "--accept-loss"]

    def broken_off(plan: RecoveryPlan, data_dir: Path) -> bool:
        if data_dir == other:
            raise RecoveryError("no room on the disk")
        return apply_plan(plan, data_dir)

    with monkeypatch.context() as patched:
        patched.setattr(recovery_directory, "apply_plan", broken_off)
        assert run(*arguments) == 1
    said = capsys.readouterr().err
    kept = one / "recovery-plan.json"
    assert f"quorumlog recover apply {kept} --data-dir DIR --accept-loss" in said
    for each in two:
        assert run("recover", "apply", str(kept), "--data-dir", str(each), "--accept-loss") == 0
    capsys.readouterr()
    assert survey_directory(one).cluster_id == survey_directory(other).cluster_id != FORMER
