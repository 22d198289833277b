"""A client's view of the cluster is decided by the order of the metadata log, not by the node asked last."""

from __future__ import annotations

import pytest

from quorumlog.sdk.cluster import metadata as metadata_module
from quorumlog.sdk.cluster.metadata import MetadataCache, PartitionView
from quorumlog.sdk.errors import UnknownTopicOrPartitionError
from quorumlog.sdk.spark.nodes import Nodes
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import errors_pb2

OLD, NEW = b"o" * 16, b"n" * 16
GROUPS = {OLD: 1000, NEW: 1007}


def answer(
    topic_id: bytes | None,
    index: int,
    *,
    leader: int = 1,
    epoch: int = 1,
    partitions: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    cluster: str = "c",
    configs: dict[str, str] | None = None,
) -> pb.MetadataResponse:
    """Returns a node's answer on topic ``t``; its image has applied the log up to ``index``. None: none exists."""
    response = pb.MetadataResponse(cluster_id=cluster, applied_index=index)
    topic = response.topics.add(name="t", configs=configs or {})
    if topic_id is None:
        topic.error.CopyFrom(errors_pb2.Error(code=errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, message="there is no t"))
        return response
    topic.topic_id = topic_id
    for number in range(partitions):
        topic.partitions.add(
            partition=number, leader=leader, leader_epoch=epoch, replicas=replicas, group_id=GROUPS[topic_id] + number
        )
    return response


def cache_of(*answers: pb.MetadataResponse) -> MetadataCache:
    cache = MetadataCache.empty()
    for each in answers:
        cache.merge(each)
    return cache


# -- which topic has the name ---------------------------------------------------------------------------------------


def test_a_client_that_knows_only_the_new_topic_does_not_believe_a_node_that_still_has_the_old_one() -> None:
    cache = cache_of(answer(NEW, 40), answer(OLD, 20, epoch=9))
    assert cache.topics["t"].topic_id == NEW
    assert cache.partition("t", 0) == PartitionView(0, 1, 1, (1, 2, 3)), "nor what the old one's leader is"


def test_a_topic_that_was_created_later_replaces_the_older_one() -> None:
    assert cache_of(answer(OLD, 20, partitions=3), answer(NEW, 40)).topics["t"].topic_id == NEW
    # Nothing of the old one is left.
    assert len(cache_of(answer(OLD, 20, partitions=3), answer(NEW, 40)).topics["t"].partitions) == 1


def test_a_node_that_does_not_tell_its_index_is_judged_by_the_groups_all_the_same() -> None:
    assert cache_of(answer(NEW, 0), answer(OLD, 0)).topics["t"].topic_id == NEW
    assert cache_of(answer(OLD, 0), answer(NEW, 0)).topics["t"].topic_id == NEW


def test_a_deleted_topic_is_not_brought_back_by_an_older_answer() -> None:
    cache = cache_of(answer(OLD, 20), answer(None, 30))
    assert isinstance(cache.merge(answer(OLD, 25))["t"], UnknownTopicOrPartitionError)
    assert cache.merge(answer(NEW, 40)) == {}, "the next one of its name is newer"
    assert cache.topics["t"].topic_id == NEW


def test_a_topic_is_not_gone_because_an_older_image_does_not_have_it_yet() -> None:
    cache = cache_of(answer(NEW, 40))
    assert isinstance(cache.merge(answer(None, 30))["t"], UnknownTopicOrPartitionError), "the node reported that"
    assert cache.merge(answer(NEW, 38)) == {}


def test_names_without_a_topic_are_remembered_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_module, "MAX_ABSENT", 3)
    cache = MetadataCache.empty()
    for number in range(10):
        response = answer(None, 30)
        response.topics[0].name = f"t{number}"
        cache.merge(response)
    assert list(cache._absent) == ["t7", "t8", "t9"]


def test_another_cluster_behind_the_addresses_has_an_order_of_its_own() -> None:
    cache = cache_of(answer(NEW, 40), answer(OLD, 3, cluster="formed again"))
    assert cache.topics["t"].topic_id == OLD
    cache.merge(answer(None, 5, cluster="formed again"))
    assert "t" in cache.merge(answer(OLD, 4, cluster="formed again"))


def test_a_topic_that_was_restored_with_its_id_has_leader_epochs_of_its_own() -> None:
    """Otherwise a client would continue asking the former leader of the topic."""
    behind_the_addresses = cache_of(answer(OLD, 40, leader=3, epoch=9), answer(OLD, 3, cluster="restored"))
    assert behind_the_addresses.partition("t", 0) == PartitionView(0, 1, 1, (1, 2, 3))
    restored = answer(OLD, 60)
    restored.topics[0].partitions[0].group_id += 1
    in_the_same_cluster = cache_of(answer(OLD, 40, leader=3, epoch=9), restored)
    assert in_the_same_cluster.partition("t", 0) == PartitionView(0, 1, 1, (1, 2, 3))
    in_the_same_cluster.merge(answer(OLD, 41, leader=3, epoch=9))
    assert in_the_same_cluster.partition("t", 0) == PartitionView(0, 1, 1, (1, 2, 3)), "an older answer"


# -- one topic ------------------------------------------------------------------------------------------------------


def test_an_older_answer_takes_no_partition_away() -> None:
    cache = cache_of(answer(NEW, 40, partitions=3), answer(NEW, 30, partitions=2))
    assert [p.partition for p in cache.topics["t"].partitions] == [0, 1, 2]
    cache.merge(answer(NEW, 0, partitions=1))
    assert len(cache.topics["t"].partitions) == 3, "nor one without an age"


def test_an_older_answer_that_knows_more_partitions_than_leaders_adds_nothing_wrong() -> None:
    cache = cache_of(answer(NEW, 30, partitions=2), answer(NEW, 40, partitions=3, epoch=2))
    assert [p.leader_epoch for p in cache.topics["t"].partitions] == [2, 2, 2]


def test_an_older_answer_does_not_replace_a_newer_leader() -> None:
    cache = cache_of(answer(NEW, 40, leader=2, epoch=5), answer(NEW, 30, leader=1, epoch=4))
    assert cache.partition("t", 0) == PartitionView(0, 2, 5, (1, 2, 3))
    cache.merge(answer(NEW, 50, leader=1, epoch=4))
    assert cache.partition("t", 0) == PartitionView(0, 2, 5, (1, 2, 3)), "whose epoch no image shows yet"


def test_a_leader_of_a_later_epoch_is_believed_to_a_node_whose_image_is_older() -> None:
    cache = cache_of(answer(NEW, 40, leader=1, epoch=4), answer(NEW, 30, leader=2, epoch=5, replicas=(2, 3, 4)))
    assert cache.partition("t", 0) == PartitionView(0, 2, 5, (1, 2, 3)), "it learns of elections before its image does"


def test_an_image_that_shows_no_leader_does_not_erase_the_known_one() -> None:
    cache = cache_of(answer(NEW, 40, leader=2, epoch=5), answer(NEW, 50, leader=-1, epoch=5))
    assert cache.partition("t", 0) == PartitionView(0, 2, 5, (1, 2, 3))
    cache.merge(answer(NEW, 60, leader=-1, epoch=6))
    assert cache.partition("t", 0) == PartitionView(0, -1, 6, (1, 2, 3)), "but in its own epoch none is known"
    cache.merge(answer(NEW, 60, leader=3, epoch=6))
    assert cache.partition("t", 0) == PartitionView(0, 3, 6, (1, 2, 3))


def test_replicas_and_settings_are_those_of_the_newest_image() -> None:
    newest = answer(NEW, 40, replicas=(4, 5, 6), configs={"cleanup.policy": "compact", "max.message.bytes": "9000"})
    older = answer(NEW, 30)
    for order in ((newest, older), (older, newest)):
        view = cache_of(*order).topics["t"]
        assert (view.compacted, view.max_message_bytes, view.partitions[0].replicas) == (True, 9000, (4, 5, 6))
    later = cache_of(newest, answer(NEW, 50)).topics["t"]
    assert (later.compacted, later.partitions[0].replicas) == (False, (1, 2, 3))


def test_that_time_has_passed_is_no_news_of_a_topic() -> None:
    """Spark asks another node when what it asked had nothing new to say."""
    assert cache_of(answer(NEW, 40)).topics == cache_of(answer(NEW, 41)).topics


# -- leaders that nodes name, and addresses -------------------------------------------------------------------------


def test_a_hint_about_the_deleted_topic_is_none_of_the_new_one() -> None:
    cache = cache_of(answer(NEW, 40, leader=1, epoch=3))
    assert not cache.learn_leader("t", OLD, 0, 2, 9)
    assert cache.partition("t", 0) == PartitionView(0, 1, 3, (1, 2, 3))
    assert cache.learn_leader("t", NEW, 0, 2, 4), "it would count as old behind the other topic's epoch"


def test_a_hint_of_an_older_epoch_is_no_news() -> None:
    cache = cache_of(answer(NEW, 40, leader=1, epoch=3))
    assert not cache.learn_leader("t", NEW, 0, 2, 2)
    assert not cache.learn_leader("t", NEW, 0, 1, 3)
    assert not cache.learn_leader("t", NEW, 0, -1, 4), "-1 names no leader"
    assert not cache.learn_leader("t", NEW, 1, 2, 4), "there is no such partition"


def registered(port: int, broker_epoch: int, cluster: str = "c") -> pb.MetadataResponse:
    response = pb.MetadataResponse(cluster_id=cluster)
    response.brokers.add(node_id=1, host="h", port=port, broker_epoch=broker_epoch)
    return response


def test_a_node_is_reached_where_it_has_registered_last() -> None:
    cache = cache_of(registered(9001, 7), registered(9002, 12), registered(9001, 7))
    assert cache.addresses == {1: "h:9002"}
    cache.learn_address(1, "h", 9003, 0)
    assert cache.addresses == {1: "h:9002"}, "nor what does not say of which registration it is"


def test_addresses_of_another_cluster_replace_those_known() -> None:
    assert cache_of(registered(9001, 70), registered(9002, 3, "formed again")).addresses == {1: "h:9002"}


# -- Spark ----------------------------------------------------------------------------------------------------------


def test_sparks_driver_believes_a_linearizable_answer_whatever_a_lagging_node_has_said_before() -> None:
    nodes = Nodes("127.0.0.1:1")
    for heard in (answer(NEW, 40), answer(OLD, 20, epoch=7)):
        nodes._take(["t"], heard)
    assert nodes._take(["t"], answer(NEW, 41, epoch=9))["t"].topic_id == NEW
    assert nodes._take(["t"], answer(None, 50)) == {}, "deleted"
    assert nodes._take(["t"], answer(NEW, 41)) == {}, "and not brought back"


def test_one_registration_may_say_its_address_again() -> None:
    """A node that advertises another address after a reload keeps its registration."""
    cache = cache_of(registered(1000, 5), registered(2000, 5))
    assert [address.rpartition(":")[2] for address in cache.addresses.values()] == ["2000"]


def test_an_older_answer_does_not_make_the_view_older() -> None:
    """The index of the newest image that described a topic stays: answers between the two would be believed."""
    cache = cache_of(answer(OLD, 40), answer(OLD, 20))
    assert cache.topics["t"].described_at == 40
    cache.forget("t")
    with_old = cache.merge(answer(OLD, 30))
    assert isinstance(with_old["t"], UnknownTopicOrPartitionError)
    assert cache.merge(answer(OLD, 40)) == {}
