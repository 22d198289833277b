"""The metadata image applies entries as the design says, entry by entry."""

import pytest
from image_log import GROUP, ImageLog

from quorumlog.server.metadata.image import MetadataImage, MetadataLogError
from quorumlog.server.metadata.records import FEATURE_LEVEL, ApplyResult
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1 import peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def code_of(result: ApplyResult) -> int:
    """Returns the error code of the only change in a request; NONE if it was applied."""
    (outcome,) = result.response.partition_changes.results
    return outcome.error.code


@pytest.fixture
def three() -> ImageLog:
    """Returns three unfenced brokers, and a topic of one partition on all of them, without a leader yet."""
    made = ImageLog()
    for node in (1, 2, 3):
        made.register(node)
    made.unfence(1, 2, 3)
    made.create("orders", (1, 2, 3))
    return made


@pytest.fixture
def led(three: ImageLog) -> ImageLog:
    """Returns the image of ``three`` after node 1 has become the leader in epoch 1."""
    three.report(1, 1)
    return three


# -- brokers ------------------------------------------------------------------------------------------------------


def test_a_broker_starts_fenced_and_its_epoch_is_the_index_of_its_registration() -> None:
    made = ImageLog()
    made.image.advance(7)
    result = made.register(1)
    assert result.response.broker_registered.broker_epoch == 8
    assert result.brokers_changed
    assert made.image.brokers[1].fenced


def test_a_new_process_gets_a_new_epoch_is_fenced_and_leaves_the_isrs(led: ImageLog) -> None:
    before = led.epoch(2)
    result = led.register(2, boot=2)
    assert led.epoch(2) == led.image.applied_index > before
    assert led.image.brokers[2].fenced
    assert led.partition.isr == (1, 3)
    assert result.changed_groups == {GROUP}


def test_the_same_process_asking_again_keeps_its_epoch(led: ImageLog) -> None:
    before = led.epoch(2)
    result = led.register(2)
    assert result.response.broker_registered.broker_epoch == before == led.epoch(2)
    assert not led.image.brokers[2].fenced
    assert led.partition.isr == (1, 2, 3)


def test_another_directory_under_a_known_node_id_is_refused(led: ImageLog) -> None:
    result = led.register(2, directory="other", boot=2)
    assert result.response.error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "dir-2" in result.response.error.message
    assert led.image.brokers[2].registration.directory_id == "dir-2"


def test_a_node_below_the_feature_level_is_refused() -> None:
    made = ImageLog()
    made.register(1)
    made.unfence(1)
    made.apply(log.MetadataCommand(raise_feature_level=log.RaiseFeatureLevel(level=FEATURE_LEVEL)))
    result = made.register(2, level=FEATURE_LEVEL - 1)
    assert result.response.error.code == ErrorCode.UNSUPPORTED_VERSION
    assert made.image.brokers.keys() == {1}


def test_a_log_begins_at_the_first_feature_level_whichever_version_reads_it() -> None:
    made = ImageLog()
    assert made.image.feature_level == 1
    assert not made.register(1, level=1).response.HasField("error")


def test_a_feature_level_that_this_version_does_not_know_ends_the_node() -> None:
    made = ImageLog()
    with pytest.raises(MetadataLogError, match="upgrade this node"):
        made.apply(log.MetadataCommand(raise_feature_level=log.RaiseFeatureLevel(level=FEATURE_LEVEL + 1)))
    snapshot = log.MetadataSnapshot.FromString(made.image.to_snapshot())
    snapshot.feature_level = FEATURE_LEVEL + 1
    with pytest.raises(MetadataLogError, match="upgrade this node"):
        MetadataImage.from_snapshot(snapshot.SerializeToString())


def test_fencing_of_a_former_life_does_nothing(led: ImageLog) -> None:
    old = led.identity(2)
    led.register(2, boot=2)
    led.unfence(2)
    result = led.apply(log.MetadataCommand(fence_brokers=log.FenceBrokers(brokers=[old])))
    assert not led.image.brokers[2].fenced
    assert not result.brokers_changed


def test_unfencing_of_a_former_life_does_nothing(led: ImageLog) -> None:
    old = led.identity(2)
    led.register(2, boot=2)
    led.apply(log.MetadataCommand(unfence_brokers=log.UnfenceBrokers(brokers=[old])))
    assert led.image.brokers[2].fenced


@pytest.mark.scenario("25c")
def test_a_fenced_broker_leaves_the_isr_in_the_same_entry(led: ImageLog) -> None:
    before = led.partition.partition_epoch
    result = led.fence(3)
    assert led.partition.isr == (1, 2)
    assert led.partition.partition_epoch == before + 1
    assert result.changed_groups == {GROUP}


def test_the_last_member_of_an_isr_stays(three: ImageLog) -> None:
    three.fence(1, 2, 3)
    assert three.partition.isr == (1,)
    assert three.partition.leader == -1


def test_a_fenced_leader_stays_until_another_reports_but_is_not_shown(led: ImageLog) -> None:
    led.fence(1)
    assert led.partition.leader == 1
    assert led.partition.isr == (1, 2, 3)
    assert led.image.available_leader(led.partition) == -1
    led.report(2, 2)
    assert led.image.available_leader(led.partition) == 2
    assert led.partition.isr == (2, 3)


# -- topics -------------------------------------------------------------------------------------------------------


def test_groups_are_given_out_when_the_command_is_applied() -> None:
    made = ImageLog()
    made.register(1)
    made.unfence(1)
    first = made.create("a", (1,), (1,))
    second = made.create("b", (1,))
    assert [partition.group for partition in first.created[0].partitions] == [GROUP, GROUP + 1]
    assert [partition.group for partition in second.created[0].partitions] == [GROUP + 2]
    assert second.changed_groups == {GROUP + 2}
    assert second.response.create_topics.results[0].topic_id == b"b".ljust(16, b"\0")


def test_a_new_partition_has_no_leader_and_its_isr_is_who_is_present() -> None:
    made = ImageLog()
    for node in (1, 2, 3):
        made.register(node)
    made.unfence(1, 3)
    made.create("orders", (1, 2, 3))
    assert (made.partition.leader, made.partition.leader_epoch, made.partition.isr) == (-1, 0, (1, 3))


def test_the_second_creation_of_a_name_is_refused_whoever_proposed_it(three: ImageLog) -> None:
    before = three.image.topic_table.next_group
    result = three.create("orders", (1, 2, 3))
    assert result.response.create_topics.results[0].error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert not result.created
    assert three.image.topic_table.next_group == before


def test_names_that_metrics_cannot_tell_apart_are_refused(three: ImageLog) -> None:
    three.create("a.b", (1,))
    result = three.create("a_b", (1,))
    assert result.response.create_topics.results[0].error.code == ErrorCode.INVALID_TOPIC
    assert "a.b" in result.response.create_topics.results[0].error.message


# -- leaders ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("25c")
def test_a_report_sets_leader_and_isr_in_one_entry(led: ImageLog) -> None:
    led.alter(1, led.change(1, 2))
    before = led.partition.partition_epoch
    result = led.report(3, 2)
    assert code_of(result) == ErrorCode.NONE
    assert (led.partition.leader, led.partition.leader_epoch, led.partition.isr) == (3, 2, (1, 2, 3))
    assert led.partition.partition_epoch == before + 1 == result.response.partition_changes.results[0].partition_epoch


def test_a_report_of_an_older_leader_is_refused(led: ImageLog) -> None:
    led.report(2, 5)
    result = led.report(1, 4)
    assert code_of(result) == ErrorCode.FENCED_LEADER_EPOCH
    assert result.response.partition_changes.results[0].error.leader.node_id == 2
    assert led.partition.leader == 2


def test_a_second_leader_of_the_same_epoch_is_refused(led: ImageLog) -> None:
    assert code_of(led.report(2, 1)) == ErrorCode.FENCED_LEADER_EPOCH
    assert led.partition.leader == 1


def test_a_repeated_report_changes_nothing(led: ImageLog) -> None:
    before = led.partition.partition_epoch
    result = led.report(1, 1)
    assert code_of(result) == ErrorCode.NONE
    assert not result.changed_groups
    assert led.partition.partition_epoch == before


def test_a_report_of_a_former_life_is_refused_as_a_whole(led: ImageLog) -> None:
    old = led.epoch(2)
    led.register(2, boot=2)
    result = led.report(2, 9, broker_epoch=old)
    assert result.response.error.code == ErrorCode.STALE_BROKER_EPOCH
    assert led.partition.leader == 1


def test_who_has_no_replica_cannot_lead(led: ImageLog) -> None:
    led.register(4)
    assert code_of(led.report(4, 9)) == ErrorCode.INVALID_REQUEST
    assert led.partition.leader == 1


def test_a_report_for_no_partition_is_told_so(led: ImageLog) -> None:
    assert code_of(led.report(1, 9, group=77)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- ISR: scenario 25 ---------------------------------------------------------------------------------------------


def test_a_leader_shrinks_and_expands_its_isr(led: ImageLog) -> None:
    assert code_of(led.alter(1, led.change(1, 2))) == ErrorCode.NONE
    assert led.partition.isr == (1, 2)
    assert code_of(led.alter(1, led.change(3, 2, 1))) == ErrorCode.NONE
    assert led.partition.isr == (1, 2, 3)


@pytest.mark.scenario("25a")
def test_a_shrink_that_was_delayed_does_not_land_after_the_expansion(led: ImageLog) -> None:
    delayed = led.change(1, 2)
    led.alter(1, led.change(1, 2))
    led.alter(1, led.change(1, 2, 3))
    assert code_of(led.alter(1, delayed)) == ErrorCode.INVALID_UPDATE_VERSION
    assert led.partition.isr == (1, 2, 3)


@pytest.mark.scenario("25b")
def test_a_fenced_broker_is_not_added(led: ImageLog) -> None:
    led.fence(3)
    assert code_of(led.alter(1, led.change(1, 2, 3))) == ErrorCode.INELIGIBLE_REPLICA
    assert led.partition.isr == (1, 2)


@pytest.mark.scenario("25b")
def test_a_broker_is_not_added_on_what_its_former_life_held(led: ImageLog) -> None:
    old = led.epoch(3)
    led.register(3, boot=2)
    led.unfence(3)
    assert code_of(led.alter(1, led.change(1, 2, 3, broker_3=old))) == ErrorCode.INELIGIBLE_REPLICA
    assert led.partition.isr == (1, 2)


@pytest.mark.scenario("25a")
def test_a_change_of_an_older_leader_is_refused(led: ImageLog) -> None:
    delayed = led.change(1)
    led.report(2, 2)
    assert code_of(led.alter(1, delayed)) == ErrorCode.FENCED_LEADER_EPOCH
    assert led.partition.isr == (1, 2, 3)


def test_a_change_before_its_leaders_report_is_to_come_again(led: ImageLog) -> None:
    assert code_of(led.alter(1, led.change(1, 2, leader_epoch=2))) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_only_the_leader_changes_the_isr(led: ImageLog) -> None:
    result = led.alter(2, led.change(1, 2))
    assert code_of(result) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.response.partition_changes.results[0].error.leader.node_id == 1


def test_the_leader_cannot_leave_its_isr(led: ImageLog) -> None:
    assert code_of(led.alter(1, led.change(2, 3))) == ErrorCode.INVALID_REQUEST


def test_the_isr_cannot_hold_a_node_twice_or_one_without_a_replica(led: ImageLog) -> None:
    led.register(4)
    led.unfence(4)
    assert code_of(led.alter(1, led.change(1, 1, 2))) == ErrorCode.INVALID_REQUEST
    assert code_of(led.alter(1, led.change(1, 4))) == ErrorCode.INVALID_REQUEST


# -- ids, snapshots -----------------------------------------------------------------------------------------------


def test_producer_ids_come_in_blocks_that_never_overlap(three: ImageLog) -> None:
    body = peer_pb2.AllocateProducerIds(node_id=1, broker_epoch=three.epoch(1))
    command = log.MetadataCommand(allocate_producer_ids=body)
    blocks = [three.apply(command).response.producer_id_block for _ in range(3)]
    assert [(block.first_id, block.count) for block in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_a_snapshot_is_the_image(led: ImageLog) -> None:
    led.fence(3)
    led.create("more", (2, 3, 1), (3, 1, 2))
    data = led.image.to_snapshot()
    copy = MetadataImage.from_snapshot(data)
    assert copy.to_snapshot() == data
    assert copy.applied_index == led.image.applied_index
    assert copy.topics["more"].configs == {"retention.ms": "1", "cleanup.policy": "delete"}
    assert copy.partitions[GROUP].isr == (1, 2)
    assert copy.topic_table.colliding("orders") is None


def test_bytes_that_are_no_snapshot_are_refused() -> None:
    with pytest.raises(MetadataLogError, match="cannot be read"):
        MetadataImage.from_snapshot(b"\xff\xff\xff")


def test_an_empty_snapshot_is_an_empty_image() -> None:
    empty = MetadataImage()
    assert MetadataImage.from_snapshot(empty.to_snapshot()).to_snapshot() == empty.to_snapshot()


def test_a_command_of_a_later_version_stops_the_node() -> None:
    with pytest.raises(MetadataLogError, match=r"entry 1 .* upgrade this node"):
        ImageLog().apply(log.MetadataCommand())
